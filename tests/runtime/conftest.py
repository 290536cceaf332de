"""Every worker runs in the tests of pools and programs, however busy the machine is."""

from __future__ import annotations

import pytest

from jit_kernels.runtime.contention import Contention


@pytest.fixture(autouse=True)
def unmoved_by_others(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.module.__name__.rpartition(".")[2] != "test_contention":
        monkeypatch.setattr(Contention, "observe", lambda *_: None)
