"""Slow work in the background, one thing at a time, for as long as somebody wants it.

A page says what it wants each time it is drawn; what nobody wants any more (another prompt, a closed
tab) is given up at its next step, and its generator closed. What is made, or why it could not be, goes
to the store of results. Quick work of a page goes first: see `quickly`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from lenses import shortage
from lenses.errors import LensesError
from lenses.progress import Progress
from lenses.ui.results import Results

PATIENCE = 90.0
"""Seconds without a word after which a visitor is taken to have left; hidden tabs speak once a minute."""

Work = Callable[[], Generator[Progress, None, Any]]


@dataclass(frozen=True)
class Failed:
    """Why something could not be made, in a sentence for the visitor."""

    reason: str


@dataclass(frozen=True)
class Full(Failed):
    """There was no place left in the line; asked for again, it may have one."""


@dataclass(frozen=True)
class State:
    """How far a job is: its last step, the seconds since it began, how many go before it."""

    progress: Progress
    seconds: float
    ahead: int
    first: float = 0.0
    """The part that was done when it began: by an earlier run, say."""

    @property
    def left(self) -> float | None:
        """Seconds that it will still take at its pace so far, or None before that can be told."""
        part = self.progress.part
        known = part is not None and part > self.first and self.seconds > 0.5
        return self.seconds * (1 - part) / (part - self.first) if known and part is not None else None


@dataclass
class _Job:
    work: Work
    began: float | None = None
    progress: Progress = field(default_factory=lambda: Progress("waiting"))
    first: float | None = None


class Jobs:
    """A queue with one worker thread, which lives only while there is work.

    At most `most` jobs are in it; one more is not taken, and its result says so until there is a place.
    """

    def __init__(
        self,
        results: Results,
        patience: float = PATIENCE,
        beside: AbstractContextManager[Any] | None = None,
        most: int | None = None,
    ) -> None:
        self.results, self._patience, self._most = results, patience, most
        self._beside = beside or nullcontext()
        """A lock that each step is taken under, where others may not work at the same time."""
        self._jobs: dict[Hashable, _Job] = {}
        self._wants: dict[str, tuple[float, frozenset[Hashable]]] = {}
        self._change = threading.Condition()
        self._worker: threading.Thread | None = None
        self._quick = 0

    def want(self, who: str, works: Mapping[Hashable, Work]) -> None:
        """All that `who` wants from now on; what is there already, or failed, is not made again."""
        missing = {key: work for key, work in works.items() if self._lacks(key)}
        with self._change:
            self._wants[who] = (time.monotonic(), frozenset(works))
            self._forget()
            for key, work in missing.items():
                self._enter(key, work)
            if self._jobs and self._worker is None:
                self._worker = threading.Thread(target=self._run, name="lenses-jobs", daemon=True)
                self._worker.start()

    def _lacks(self, key: Hashable) -> bool:
        return key not in self.results or isinstance(self.results.get(key), Full)

    def _enter(self, key: Hashable, work: Work) -> None:
        """Put a job at the end of the line, or say that there is no place."""
        if key in self._jobs:
            return
        if self._most is not None and len(self._jobs) >= self._most:
            count = len(self._jobs)
            self.results.put(
                key, Full(f"{count} are in line already and no more are taken: try again in a while")
            )
        else:
            self.results.drop(key)
            self._jobs[key] = _Job(work)

    def renew(self, who: str) -> None:
        """A sign that `who` is still there and wants the same."""
        with self._change:
            if who in self._wants:
                self._wants[who] = (time.monotonic(), self._wants[who][1])

    def state(self, key: Hashable) -> State | None:
        """How far a wanted thing is; None where it is not being made (any more)."""
        with self._change:
            if key not in self._jobs:
                return None
            job, ahead = self._jobs[key], list(self._jobs).index(key)
            seconds = 0.0 if job.began is None else time.monotonic() - job.began
            return State(job.progress, seconds, 0 if job.began else ahead, job.first or 0.0)

    def idle(self, timeout: float) -> bool:
        """Wait until nothing is left to do, at most so many seconds; whether that came about."""
        with self._change:
            return self._change.wait_for(lambda: self._worker is None, timeout)

    @contextmanager
    def quickly(self) -> Iterator[None]:
        """While a page does its own quick work, the worker rests between two steps."""
        with self._change:
            self._quick += 1
        try:
            yield
        finally:
            with self._change:
                self._quick -= 1
                self._change.notify_all()

    def _run(self) -> None:
        while True:
            with self._change:
                self._forget()
                if not self._jobs:
                    self._worker = None
                    self._change.notify_all()
                    return
                key, job = next(iter(self._jobs.items()))
                job.began = time.monotonic()
            self._finish(key, job)

    def _finish(self, key: Hashable, job: _Job) -> None:
        """Run one job to its end, or until nobody wants it."""
        try:
            work = job.work()
            try:
                with shortage.noticed("what was asked for"):
                    made = self._steps(key, job, work)
            finally:
                work.close()
        except LensesError as error:
            made = Failed(str(error))
        except Exception as error:
            # A defect must not end the worker, nor go unseen: the page shows it and the log has it all.
            logging.getLogger(__name__).exception("a job failed")
            made = Failed(f"this is a defect of LensLedger, and its log says more: {error!r}")
        with self._change:
            if self._jobs.get(key) is job:
                if made is not None and not self.results.put(key, made):
                    self.results.put(key, Failed("what was computed is too large to be kept: ask for less"))
                del self._jobs[key]
            self._change.notify_all()

    def _steps(self, key: Hashable, job: _Job, work: Generator[Progress, None, Any]) -> Any:
        """What the work makes, or None where it was given up."""
        while True:
            try:
                with self._beside:
                    step = next(work)
            except StopIteration as end:
                return end.value
            with self._change:
                job.progress = step
                job.first = job.first if job.first is not None else step.part
                self._change.wait_for(lambda: not self._quick)
                self._forget()
                if self._jobs.get(key) is not job:
                    return None

    def _forget(self) -> None:
        """Drop visitors who have left, and the jobs that nobody wants."""
        late = time.monotonic() - self._patience
        self._wants = {who: want for who, want in self._wants.items() if want[0] >= late}
        wanted = frozenset().union(*(keys for _, keys in self._wants.values()))
        self._jobs = {key: job for key, job in self._jobs.items() if key in wanted}
