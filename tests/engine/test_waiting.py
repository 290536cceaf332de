"""Waits that an interrupt ends, and that leave what is waited for as it is."""

from __future__ import annotations

import signal
import threading

import pytest

from dashinfer_lab.engine.waiting import join


def test_a_thread_goes_on_where_waiting_for_it_is_interrupted() -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    main = threading.main_thread().ident or 0
    interrupt = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT))
    interrupt.start()

    with pytest.raises(KeyboardInterrupt):
        join(thread)
    assert thread.is_alive()

    ended.set()
    join(thread)
    assert not thread.is_alive()
