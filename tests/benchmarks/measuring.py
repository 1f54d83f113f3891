"""One way beside another in this process: the same numbers first, then memory and times in turn.

The first run of each way gives its numbers and its peak memory, and its time where a row takes long
enough to be run once. Ways whose numbers differ by more than the row allows are not timed at all.
"""

from __future__ import annotations

import ctypes
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

Way: TypeAlias = Callable[[], np.ndarray | None]

HEAD = (
    "| row | what | ours | peer | peer / ours | extra memory: ours | peer | numbers |\n"
    "|---|---|---|---|---|---|---|---|"
)
QUICK = 5.0
"""Seconds below which a way is run a second time where a row is run once."""

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Missing(Exception):
    """A peer that can't be run here; the text is one sentence for its row."""


@dataclass(frozen=True)
class Row:
    """Both ways return the numbers that have to agree, within `tolerance` of the peer's largest.

    A `floor` is a peer that makes no numbers: the least that any way has to do, so that what counts
    is how far ours is above it. `note` says more of the numbers that were compared.
    """

    what: str
    ours: Way
    peer: Way
    tolerance: float = 1e-4
    runs: int = 3
    floor: bool = False
    note: str = ""


@dataclass(frozen=True)
class Found:
    """What was measured of a row: times in seconds, memory in bytes (None where it can't be read)."""

    row: Row
    gap: float
    memory: tuple[int | None, int | None]
    times: tuple[float, float] | None

    @property
    def cells(self) -> list[str]:
        """What, both times, their ratio, both memories, and what is known of the numbers."""
        memory = [megabytes(size) for size in self.memory]
        if self.times is None:
            numbers = f"differ by {self.gap:.1e} of the largest, {self.row.tolerance:.0e} is allowed"
            return [self.row.what, "–", "–", "–", *memory, f"{numbers}: not timed"]
        ours, peer = self.times
        ratio, numbers = f"{peer / ours:.2f} ×", f"within {self.gap:.0e}"
        if self.row.floor:
            ratio, numbers = f"ours / products {ours / peer:.2f}", "no numbers to compare: products only"
        numbers += f" ({self.row.note})" if self.row.note else ""
        return [self.row.what, seconds(ours), seconds(peer), ratio, *memory, numbers]


def measure(row: Row, runs: int | None = None) -> Found:
    """Compare, then time in turn: ours, peer, ours, peer …"""
    (ours, first, once), (peer, second, other) = extra(row.ours), extra(row.peer)
    gap = 0.0 if row.floor else apart(ours, peer)
    if not gap <= row.tolerance:
        return Found(row, gap, (first, second), None)
    if (runs or row.runs) == 1:
        # What takes seconds is taken as it came; what is quick is run again, since a first run is slow.
        pairs = ((row.ours, once), (row.peer, other))
        a, b = (took(way) if seconds < QUICK else seconds for way, seconds in pairs)
        return Found(row, gap, (first, second), (a, b))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(runs or row.runs):
        for way, kept in zip((row.ours, row.peer), times, strict=True):
            kept.append(took(way))
    return Found(row, gap, (first, second), (statistics.median(times[0]), statistics.median(times[1])))


def apart(ours: np.ndarray | None, peer: np.ndarray | None) -> float:
    """The largest difference, as a part of the peer's largest number; infinite for other shapes."""
    if ours is None or peer is None or ours.shape != peer.shape:
        return float("inf")
    return float(np.abs(ours - peer).max() / np.abs(peer).max())


def took(way: Way) -> float:
    """Seconds of one run."""
    gc.collect()
    began = time.perf_counter()
    way()
    return time.perf_counter() - began


def extra(way: Way) -> tuple[np.ndarray | None, int | None, float]:
    """What one run returns, the most bytes that it held beyond what was held before, and its seconds."""
    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        CLEAR.write_text("5")  # the peak starts anew
        before = _resident("VmRSS")
    except (OSError, AttributeError):
        before = None
    began = time.perf_counter()
    made = way()
    lasted = time.perf_counter() - began
    return made, None if before is None else max(0, _resident("VmHWM") - before), lasted


def _resident(name: str) -> int:
    """Bytes of one line of the process's status."""
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def seconds(value: float) -> str:
    digits = 3 if value < 1 else 2 if value < 100 else 0
    return f"{value:.{digits}f} s"


def megabytes(size: int | None) -> str:
    return "–" if size is None else f"{size / 1e6:.0f} MB"
