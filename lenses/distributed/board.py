"""What a run must remember when a worker dies: an actor of Ray that loads nothing and computes nothing.

Workers tell it what they begin and end. A worker that begins what it never ended has died of it, or was
taken away; so a batch that kills whoever takes it up can be told from one that was merely unlucky.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

DEATHS = 2
"""Deaths after which the rows of a task are taken up one at a time, and the row that is next to kill a
worker, then alone, is a failure."""
LOADS = 3
"""Times that a worker may die while it loads the model."""


@dataclass
class State:
    """How far a run is, as its driver asks for it: `quiet` are the seconds since anything was done,
    `model` what the first worker to have it says of it, and `lacking` the lenses that it can't have."""

    done: int = 0
    loading: int = 0
    ready: int = 0
    deaths: int = 0
    quiet: float = 0.0
    fault: Exception | None = None
    model: dict[str, Any] | None = None
    lacking: tuple[str, ...] = ()
    busy: list[int] = field(default_factory=list)


class Board:
    """The memory of a run: made an actor by `making`."""

    def __init__(self) -> None:
        self._loads: dict[str, int] = {}
        self._ready: set[str] = set()
        self._begun: dict[int, int] = {}
        self._done: dict[int, int] = {}
        self._alone: set[int] = set()
        self._deaths, self._stopped = 0, False
        self._fault: Exception | None = None
        self._model: dict[str, Any] | None = None
        self._lacking: tuple[str, ...] = ()
        self._allowed: tuple[str, ...] | None = None
        self._news = time.monotonic()

    def loading(self, worker: str) -> bool:
        """A worker begins to load the model; whether it may, having died of it too often otherwise."""
        known = self._loads.get(worker, 0)
        self._deaths += bool(known) or worker in self._ready
        self._ready.discard(worker)
        self._loads[worker] = known + 1
        self._news = time.monotonic()
        return known < LOADS

    def ready(
        self, worker: str, model: dict[str, Any], lacking: tuple[str, ...]
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """It has the model; what the first worker says of it and of the lenses, which must be the same."""
        self._loads.pop(worker, None)
        self._ready.add(worker)
        self._news = time.monotonic()
        if self._model is None:
            self._model, self._lacking = model, lacking
        return self._model, self._lacking

    def allow(self, lenses: tuple[str, ...]) -> None:
        """The driver has looked at the model: these lenses it is."""
        self._allowed = lenses

    def allowed(self) -> tuple[str, ...] | None:
        """The lenses, once they are allowed; none once the run is stopped."""
        return () if self._stopped else self._allowed

    def begin(self, task: int) -> int | None:
        """A task is begun; how often it was before without an end, or None once the run is stopped."""
        if self._stopped:
            return None
        before = self._begun.get(task, 0)
        self._begun[task] = before + 1
        return before

    def alone(self, row: int) -> bool:
        """A row is taken up by itself; whether it may be, having killed its worker otherwise."""
        before = row in self._alone
        self._alone.add(row)
        return not before

    def told(self, task: int, done: int, ended: bool = False) -> bool:
        """So many rows of a task are kept by now; whether to go on with it."""
        self._done[task] = done
        self._news = time.monotonic()
        if ended:
            self._begun.pop(task, None)
        return not self._stopped

    def fault(self, error: Exception) -> None:
        """Something that no worker can get over."""
        self._fault = self._fault or error

    def stop(self) -> None:
        """Let every worker end after its batch."""
        self._stopped = True

    def state(self) -> State:
        quiet = time.monotonic() - self._news
        return State(
            sum(self._done.values()), len(self._loads), len(self._ready), self._deaths, quiet, self._fault,
            self._model, self._lacking, sorted(self._begun),
        )  # fmt: skip
