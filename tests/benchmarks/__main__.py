"""`python -m tests.benchmarks [ROW …]`: run each row against its peer in this process.

A row first checks that both ways give the same numbers, then times them in turn, and prints the
median of each and their ratio. Nothing here is asserted by the tests: machines are noisy.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

import lenses
from lenses import registry
from lenses.question import ask


@dataclass(frozen=True)
class Row:
    """One way beside another: both return the numbers that have to agree within `tolerance`."""

    name: str
    ours: Callable[[], np.ndarray]
    peer: Callable[[], np.ndarray]
    tolerance: float
    runs: int = 3


def conductance(decoder: lenses.Decoder, words: int) -> Row:
    """All depths from one sweep, against Captum's call at every depth, 20 steps."""
    prompt = "The capital of France is" if words == 5 else " the river" * words
    question = ask(decoder, prompt)

    def run(engine: str) -> np.ndarray:
        lens = registry.get("conductance", engine=engine, steps=20)
        return lens.attribute(decoder, question.trace, question.target).positions

    size = f"{decoder.blocks} depths, 20 steps, {len(question.prompt.tokens)} tokens"
    name = f"conductance, {size}: one sweep / Captum looped"
    return Row(name, lambda: run("sweep"), lambda: run("captum"), 1e-5, runs=1)


ROWS = {
    "conductance-5": lambda decoder: conductance(decoder, 5),
}


def measure(row: Row) -> str:
    ours, peer = row.ours(), row.peer()
    gap = float(np.abs(ours - peer).max() / np.abs(peer).max())
    if gap > row.tolerance:
        return f"| {row.name} | numbers differ by {gap:.1e} of the largest | | |"
    times: dict[str, list[float]] = {"ours": [], "peer": []}
    for _ in range(row.runs):
        for name, way in (("ours", row.ours), ("peer", row.peer)):
            began = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - began)
    a, b = (statistics.median(times[name]) for name in ("ours", "peer"))
    return f"| {row.name} | {a:.2f} s | {b:.2f} s | {b / a:.1f} × (numbers within {gap:.0e}) |"


def main() -> None:
    decoder = lenses.load()
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, torch {torch.__version__}, {decoder.name}\n")
    print("| what | ours | peer | peer / ours |\n|---|---|---|---|")
    for name in sys.argv[1:] or ROWS:
        print(measure(ROWS[name](decoder)), flush=True)


if __name__ == "__main__":
    main()
