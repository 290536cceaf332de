from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dashinfer_lab.errors import NonFiniteError, RequestError
from dashinfer_lab.sampling import SamplingParams
from tests.engine.conftest import MakeEngine
from tests.engine.fake_runner import FakeRunner, Gate

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6]


def oracle(runner: FakeRunner, positions: list[int]) -> np.ndarray:
    return np.stack([runner.logits(TOKENS[: position + 1]) for position in positions])


@pytest.mark.parametrize("max_chunk_tokens", [1, 7, 32])
def test_all_rows_come_in_chunks_that_fit_the_step(
    make_engine: MakeEngine, max_chunk_tokens: int
) -> None:
    runner = FakeRunner(max_logit_rows=5)
    logits = make_engine(runner, max_chunk_tokens=max_chunk_tokens).compute_logits(TOKENS)

    assert (logits.dtype, logits.shape) == (np.float32, (len(TOKENS), runner.vocab_size))
    np.testing.assert_array_equal(logits, oracle(runner, list(range(len(TOKENS)))))
    most = min(max_chunk_tokens, 5)
    assert max(len(batch[0].token_ids) for batch in runner.batches) == most


def test_positions_choose_rows_in_the_order_asked_for(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    positions = [9, 2, 10, 2, 11]
    logits = make_engine(runner).compute_logits(TOKENS, positions)

    np.testing.assert_array_equal(logits, oracle(runner, positions))
    # No row is computed that nobody asked for, and nothing behind the last one.
    rows = sum(len(b[0].token_ids) for b in runner.batches if b[0].logit_rows == "all")
    assert rows == 4
    assert sum(len(b[0].token_ids) for b in runner.batches) == 12


def test_no_positions_give_no_rows(make_engine: MakeEngine) -> None:
    assert make_engine().compute_logits(TOKENS, []).shape == (0, 97)


@pytest.mark.parametrize("positions", [[23], [-1], [1.5]])
def test_a_position_outside_is_refused(make_engine: MakeEngine, positions: list[int]) -> None:
    with pytest.raises(RequestError, match="position"):
        make_engine().compute_logits(TOKENS, positions)


def test_as_many_tokens_as_the_context_are_legal_and_one_more_is_not(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(FakeRunner(context_length=23))

    assert engine.compute_logits(TOKENS, [22]).shape == (1, 97)
    with pytest.raises(RequestError, match="24 tokens exceed the context of 23"):
        engine.compute_logits([*TOKENS, 1])


def test_logits_are_computed_beside_requests_that_draw(make_engine: MakeEngine) -> None:
    gate = Gate()
    runner = FakeRunner(max_logit_rows=6, before_step=gate)
    # With a slowdown to keep, decodes would be timed alone first and two requests be queued longer.
    engine = make_engine(runner, max_slowdown=None)
    handles = [engine.submit([i], SamplingParams(temperature=0, max_tokens=30)) for i in range(3)]
    for _ in range(2):  # by the second step all three were taken from the queue
        gate.wait_for_step()
        gate.let_through()
    gate.wait_for_step()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(engine.compute_logits, TOKENS)
        while engine.stats().num_queued == 0:
            pass
        gate.open()
        logits = asked.result(timeout=30)

    np.testing.assert_array_equal(logits, oracle(runner, list(range(len(TOKENS)))))
    for i, handle in enumerate(handles):
        assert handle.completion(timeout=30).token_ids == runner.answer([i], 30)
    assert any({chunk.logit_rows for chunk in batch} == {"all", "last"} for batch in runner.batches)


def test_nan_in_the_way_is_an_error(make_engine: MakeEngine) -> None:
    with pytest.raises(NonFiniteError):
        make_engine(FakeRunner(poison=8)).compute_logits(TOKENS)
