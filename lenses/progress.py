"""Long work as a generator: it yields a `Progress` at each step and returns what it made."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Progress:
    """One step of long work: what is going on, and how much of it is done (of 0: unknown).

    `preview` is a coarse version of what is being made, once there is one.
    """

    text: str
    done: int = 0
    total: int = 0
    preview: Any = None

    @property
    def part(self) -> float | None:
        """How much is done, 0…1, or None where that is unknown."""
        return min(1.0, self.done / self.total) if self.total else None


def finish(work: Generator[Progress, None, T]) -> T:
    """What the work makes, for those who don't watch it."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            made: T = end.value
            return made


def told(work: Generator[Progress, None, T], step: Progress) -> Generator[Progress, None, T]:
    """The same work as one step of longer work: whatever it yields is told as `step`."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            made: T = end.value
            return made
        yield step
