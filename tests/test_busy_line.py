from __future__ import annotations

import logging

import pytest

from dashinfer_lab.log_words import log_in, translate_log
from jit_kernels.runtime.contention import Contention
from tests.busy_line import without_busy_line


@pytest.mark.parametrize("language", ["en", "zh"])
def test_only_the_busy_line_is_left_out(
    language: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Contention, "told", False)
    translate_log()
    log_in("zh" if language == "zh" else "en")
    try:
        with caplog.at_level(logging.WARNING):
            contention = Contention(4)
            for second in range(3):
                contention.begin(float(second))
                contention.observe(9, 10, second + 0.5)
    finally:
        log_in(None)
    (line,) = caplog.messages

    assert without_busy_line(f"before\n{line}\nbehind\n") == "before\nbehind\n"
