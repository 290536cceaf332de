from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dashinfer_lab import LLM
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.quantize import GROUP_SIZES
from dashinfer_lab.widgets import QuantisationExplorer
from dashinfer_lab.widgets.charts import heat_map
from dashinfer_lab.widgets.damage import damage
from dashinfer_lab.widgets.weight_samples import sample_matrices
from tests.convert.memory_checkpoint import tiny_checkpoint
from tests.model.tiny_artifact import tiny_artifact, tiny_llama

ROWS = np.random.default_rng(5).normal(0, 1, (17, 1003)).astype(np.float32)


def test_the_error_is_that_of_rounding_to_half_a_step() -> None:
    found = damage(ROWS, 64)

    # Uniform rounding errors have a root mean square of step / sqrt(12); float16 scales add 1/8
    # step at most, and the steps of groups differ by a factor of two or so.
    expected = found.median_step / np.sqrt(12) / np.sqrt(np.mean(ROWS**2))
    assert found.relative_error == pytest.approx(expected, rel=0.25)
    assert np.abs(found.residual).max() < 2 * found.median_step


def test_larger_groups_cost_more_error_and_fewer_bits() -> None:
    found = [damage(ROWS, size) for size in GROUP_SIZES]

    errors = [each.relative_error for each in found]
    bits = [each.bits_per_weight for each in found]
    assert errors == sorted(errors)
    assert bits == sorted(bits, reverse=True)
    assert bits[0] == 8 + 32 / 32


def test_four_bits_cost_sixteen_times_the_error_and_half_the_codes() -> None:
    eight, four = damage(ROWS, 32), damage(ROWS, 32, 4)

    # 15 steps where there were 255.
    assert four.relative_error == pytest.approx(17 * eight.relative_error, rel=0.1)
    assert four.bits_per_weight == eight.bits_per_weight - 4


def test_constant_rows_lose_nothing() -> None:
    assert damage(np.zeros((3, 40), np.float32), 32).relative_error == 0.0


@pytest.mark.parametrize("scheme", ["fp32", "bf16", "a16w8", "a16w8:row", "a16w4"])
def test_samples_of_a_converted_model_are_its_weights(scheme: str, tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "tiny", scheme)
    checkpoint = tiny_checkpoint(tiny_llama())

    samples, stored = sample_matrices(artifact.directory)

    assert stored.startswith(scheme)
    assert len(samples) == 2 * 7
    # bf16 has 8 bits of mantissa; a step of u8 is 1/255 of a group's range, here below 8 sigma;
    # one of u4 is at most 2/15 of the largest, and float16 scales lose 5/8 of it.
    others = {"fp32": 0.0, "bf16": 2**-8, "a16w4": 5 / 8 * 2 / 15}
    tolerance = others.get(scheme, 8 / 255)
    for sample in samples:
        rows = np.asarray(checkpoint.read(sample.name), np.float32)[:16]
        allowed = tolerance * np.abs(rows).max()
        assert np.abs(sample.rows[: len(rows)] - rows).max() <= allowed


def test_choosing_a_group_size_or_matrix_draws_it(tiny: LLM) -> None:
    view = QuantisationExplorer(tiny, lang="en")
    formats, pickers, _ = view.widget.children[1:]
    bits, sizes = formats.children
    kind, layer = pickers.children
    before = view.picture.value

    sizes.value = "row"
    after = view.picture.value
    kind.value, layer.value, bits.value = "up_proj", 1, 4

    assert "group size 64" in before
    assert "in 8 bits, group size row" in after
    assert "in 4 bits, group size row" in view.picture.value
    assert "Weights of model.layers.1.mlp.up_proj.weight" in view.picture.value
    assert (view.kind, view.layer, view.group_size) == ("up_proj", 1, "row")
    view.close()


def test_the_controls_follow_what_is_chosen_by_a_call(tiny: LLM) -> None:
    view = QuantisationExplorer(tiny, lang="en")
    formats, pickers, _ = view.widget.children[1:]

    view.choose(group_size=512, bits=4, kind="o_proj", layer=1)

    assert [it.value for it in formats.children] == [4, 512]
    assert [each.value for each in pickers.children] == ["o_proj", 1]
    assert "mlp" not in view.picture.value.partition("Weights of")[2].partition("</b>")[0]
    view.close()


def test_it_begins_at_the_matrix_that_loses_most(tiny: LLM) -> None:
    view = QuantisationExplorer(tiny, lang="en")

    errors = view.errors()
    assert errors[view.kind, view.layer] == max(errors.values())


def test_what_there_is_not_is_refused_by_name(tiny: LLM) -> None:
    view = QuantisationExplorer(tiny)

    with pytest.raises(ConfigError, match="q_proj.*layers 0 to 1.*32, 64"):
        view.choose(layer=2)
    with pytest.raises(ConfigError, match="33"):
        view.choose(group_size=33)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="3 bits.*8 or 4"):
        view.choose(bits=3)  # type: ignore[arg-type]


@pytest.mark.model
def test_weights_that_were_4_bit_in_groups_of_32_lose_least_in_such_groups(
    embedded_gguf: Path,
) -> None:
    view = QuantisationExplorer(embedded_gguf, lang="en")
    at_64 = np.median(list(view.errors().values()))
    at_32 = np.median(list(view.choose(group_size=32).errors().values()))

    assert at_32 < at_64 / 4
    assert "Q4_1" in view.html


def test_a_heat_map_of_equal_values_and_gaps_is_drawn() -> None:
    drawn = heat_map(["a", "b"], ["0", "1"], [[0.1, 0.1], [0.1, None]])

    assert drawn.count("<rect") == 3
