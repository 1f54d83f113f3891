"""The queue of slow work: nothing runs that nobody wants, and nothing of it is left behind."""

from __future__ import annotations

import threading

import pytest

from lenses.errors import BadOption
from lenses.progress import Progress
from lenses.ui.jobs import Failed, Full, Jobs
from lenses.ui.results import Results, size

SOON = 20.0
"""Seconds within which a job of a few steps is done on any machine."""


class Steps:
    """Work of three steps, each of which waits to be let through; knows whether it was closed."""

    def __init__(self, made: object = "made") -> None:
        self.made, self.closed, self.runs = made, threading.Event(), 0
        self.reached, self.go = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self):
        self.runs += 1
        try:
            for step in range(3):
                yield Progress("step", step, 3)
                self.reached.release()
                assert self.go.acquire(timeout=SOON)
            return self.made
        finally:
            self.closed.set()

    def free(self) -> Steps:
        self.go.release(100)
        return self


def failing(error: Exception):
    def work():
        yield Progress("step")
        raise error

    return work


@pytest.fixture
def jobs():
    return Jobs(Results(1 << 20))


def test_what_is_wanted_is_made_once_however_many_want_it(jobs):
    work = Steps()
    for who in "abc":
        jobs.want(who, {"key": work})
    work.free()
    assert jobs.idle(SOON)
    assert (jobs.results.get("key"), work.runs) == ("made", 1)
    jobs.want("d", {"key": work})
    assert jobs.idle(SOON)
    assert work.runs == 1


def test_a_job_that_nobody_wants_any_more_is_closed_and_leaves_no_result(jobs):
    work = Steps()
    jobs.want("a", {"key": work})
    assert work.reached.acquire(timeout=SOON)
    jobs.want("a", {})
    work.free()
    assert work.closed.wait(SOON)
    assert jobs.idle(SOON)
    assert "key" not in jobs.results
    assert jobs.state("key") is None


def test_a_job_goes_on_while_another_still_wants_it(jobs):
    work = Steps()
    jobs.want("a", {"key": work})
    jobs.want("b", {"key": work})
    assert work.reached.acquire(timeout=SOON)
    jobs.want("a", {"other": Steps("more").free()})
    work.free()
    assert jobs.idle(SOON)
    assert (jobs.results.get("key"), jobs.results.get("other")) == ("made", "more")


def test_a_visitor_who_says_nothing_for_long_has_left_and_one_who_does_has_not():
    for stays in (True, False):
        jobs, work = Jobs(Results(), patience=0.5), Steps()
        jobs.want("a", {"key": work})
        assert work.reached.acquire(timeout=SOON)
        gone = threading.Event()
        for _ in range(10):
            gone.wait(0.1)
            if stays:
                jobs.renew("a")
        work.free()
        assert work.closed.wait(SOON)
        assert jobs.idle(SOON)
        assert ("key" in jobs.results) == stays


def test_a_sentence_for_the_visitor_is_kept_and_a_defect_does_not_end_the_worker(jobs, caplog):
    jobs.want("a", {"bad": failing(BadOption("no such option")), "worse": failing(KeyError("x")),
                    "good": Steps().free()})  # fmt: skip
    assert jobs.idle(SOON)
    assert jobs.results.get("bad") == Failed("no such option")
    assert "defect of LensLedger" in jobs.results.get("worse").reason
    assert "KeyError" in caplog.text
    assert jobs.results.get("good") == "made"


def test_the_state_tells_the_step_the_queue_and_how_long_it_will_take(jobs):
    first, second = Steps(), Steps().free()
    jobs.want("a", {"one": first, "two": second})
    assert first.reached.acquire(timeout=SOON)
    assert jobs.state("one").progress.part == 0
    assert (jobs.state("two").progress.text, jobs.state("two").ahead) == ("waiting", 1)
    first.go.release()
    assert first.reached.acquire(timeout=SOON)
    assert jobs.state("one").progress == Progress("step", 1, 3)
    first.free()
    assert jobs.idle(SOON)


def test_a_full_line_takes_no_more_says_so_and_has_room_again_when_something_is_done():
    jobs = Jobs(Results(1 << 20), most=2)
    first, second, third = Steps(), Steps().free(), Steps("third").free()
    jobs.want("a", {"one": first})
    assert first.reached.acquire(timeout=SOON)
    jobs.want("b", {"two": second})
    jobs.want("c", {"three": third})
    assert jobs.results.get("three") == Full(
        "2 are in line already and no more are taken: try again in a while"
    )
    assert jobs.state("three") is None
    jobs.want("c", {"three": third})  # drawn again while it is still full
    assert (third.runs, jobs.state("two").ahead) == (0, 1)
    jobs.want("a", {"one": first})  # what is in line already stays in it
    assert jobs.results.get("one") is None
    first.free()
    assert jobs.idle(SOON)
    jobs.want("c", {"three": third})
    assert jobs.idle(SOON)
    assert jobs.results.get("three") == "third"


def test_a_visitor_who_gives_up_leaves_a_place_in_a_full_line():
    jobs = Jobs(Results(1 << 20), most=2)
    first = Steps()
    jobs.want("a", {"one": first})
    assert first.reached.acquire(timeout=SOON)
    jobs.want("b", {"two": Steps()})
    jobs.want("b", {})
    jobs.want("c", {"three": Steps("third").free()})
    first.free()
    assert jobs.idle(SOON)
    assert (jobs.results.get("two"), jobs.results.get("three")) == (None, "third")


def test_the_worker_rests_while_a_page_does_its_own_quick_work(jobs):
    work = Steps()
    with jobs.quickly():
        jobs.want("a", {"key": work.free()})
        # The worker stops before its first step is through, so nothing can be reached.
        assert not work.reached.acquire(timeout=0.3)
    assert jobs.idle(SOON)
    assert jobs.results.get("key") == "made"


def test_an_error_within_quick_work_lets_the_worker_go_on(jobs):
    work = Steps().free()
    jobs.want("a", {"key": work})
    with pytest.raises(BadOption), jobs.quickly():
        raise BadOption("x")
    assert jobs.idle(SOON)
    assert jobs.results.get("key") == "made"


def test_results_are_given_up_from_the_oldest_when_there_are_too_many_bytes():
    kept = Results(bound=10 * size("x" * 100))
    for k in range(11):
        kept.put(k, "x" * 100)
        assert kept.get(0) if k < 10 else True
    assert kept.get(1) is None
    assert kept.get(0) == kept.get(10) == "x" * 100


def test_a_result_larger_than_the_bound_is_made_each_time_and_not_kept():
    kept, made = Results(bound=1000), []
    for _ in range(2):
        assert kept.recall("key", lambda: made.append(1) or "x" * 2000)
    assert (len(made), "key" in kept) == (2, False)
