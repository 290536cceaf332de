from __future__ import annotations

from dashinfer_lab.demo.running import Running


def test_a_stop_ends_the_work_of_its_session_alone() -> None:
    running, ended = Running(), list[str]()
    with running.work("a") as first, running.work("b") as second:
        first.ends(lambda: ended.append("a"))
        second.ends(lambda: ended.append("b"))
        running.stop("a")

        assert ended == ["a"]
        assert (first.asked, second.asked) == (True, False)


def test_a_stop_before_there_is_what_to_end_ends_it_as_soon_as_there_is() -> None:
    running, ended = Running(), list[str]()
    with running.work("a") as work:
        running.stop("a")
        work.ends(lambda: ended.append("a"))

    assert ended == ["a"]


def test_stopping_twice_cancels_once() -> None:
    running, ended = Running(), list[str]()
    with running.work("a") as work:
        work.ends(lambda: ended.append("a"))
        running.stop("a")
        running.stop("a")

    assert ended == ["a"]


def test_finished_work_is_forgotten() -> None:
    running = Running()
    with running.work("a"), running.work("a"):
        assert len(running) == 1

    assert len(running) == 0
    running.stop("a")
