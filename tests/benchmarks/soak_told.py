"""What many visitors of one server saw, and whether it may be so: the judge of `soak`."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lenses.ui.results import BOUND

WARM = 120.0
"""Seconds after which memory is first looked at."""
GROWTH = 1.25
"""Times its memory of then that a server may have in the end, beside the store of results."""


@dataclass
class Told:
    """What was seen; `memory` is pairs of seconds and megabytes."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    wrong: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)

    @property
    def failures(self) -> list[str]:
        """All for which the server does not pass."""
        return [*self.wrong, *self.dead, *self.faults, *grown(self.memory)]


def strangers(seen: Iterable[str], before: str, expected: str) -> list[str]:
    """The headlines that were there, for however short, and are neither the one before nor the one after."""
    own = {_plain(before), _plain(expected)}
    return [text for text in map(_plain, seen) if text not in own]


def grown(memory: Sequence[tuple[float, float]], bound: float = BOUND / 2**20) -> list[str]:
    """A sentence with the figures where the server takes more in the end than it may."""
    (at, warm), (_, last) = _warm(memory), memory[-1]
    most = GROWTH * warm + bound
    if last <= most:
        return []
    return [
        f"the server's memory grew from {warm:.0f} MB at minute {at / 60:.1f} to {last:.0f} MB, more than "
        f"{most:.0f} MB ({GROWTH:g} times that and {bound:.0f} MB of results)"
    ]


def report(told: Told, kinds: Iterable[str]) -> str:
    """The table of requests, and all that was counted."""
    lines = ["| request | times | p50, s | p95, s |", "|---|---|---|---|"]
    for kind in kinds:
        if seconds := sorted(told.seconds[kind]):
            late = seconds[min(len(seconds) - 1, int(0.95 * len(seconds)))]
            lines.append(f"| {kind} | {len(seconds)} | {statistics.median(seconds):.2f} | {late:.2f} |")
    at, warm = _warm(told.memory)
    lines += [
        "",
        f"requests: {sum(map(len, told.seconds.values()))}; wrong numbers: {len(told.wrong)}; "
        f"dead sessions: {len(told.dead)}; errors in the browser: {len(told.faults)}",
        f"server's memory: {warm:.0f} MB at minute {at / 60:.1f}, {told.memory[-1][1]:.0f} MB at the end, "
        f"{max(size for _, size in told.memory):.0f} MB at most",
        *(f"- {line}" for line in told.failures),
    ]
    return "\n".join(lines)


def _warm(memory: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """When memory was first looked at once all had begun, and what it was: at once in a run that is short."""
    return next((one for one in memory if one[0] >= WARM), memory[0])


def _plain(text: str) -> str:
    return " ".join(text.split())
