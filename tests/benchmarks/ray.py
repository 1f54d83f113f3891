"""Prompt lists on Ray beside this process alone: rows per second of both, the same numbers, and a death.

    python -m tests.benchmarks.ray ROWS [--model NAME] [--workers N] [--out FOLDER] [--lens NAME ...]

Makes ROWS prompts out of the lists that come along, each with a running number before it; explains a sample
of at most 500 in this process, then all on Ray, where one worker is killed in the middle; says how many
rows are there once and how far the sample's values differ. A line is printed every ten seconds. Run again
with the same folder, it goes on with the rows that are missing and measures those alone. It takes ROWS
divided by the rows per second that its first line tells, and the sample once before: at five a second, some
70 minutes for 20,000.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections import Counter
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch

import lenses
from lenses import batch, parts, prompts, registry
from lenses.catalog import DEFAULT
from lenses.distributed import cluster
from lenses.distributed.making import Asked, running

LISTS = Path(__file__).parent.parent.parent / "assets" / "prompts"
SAMPLE, EVERY = 500, 10.0


def made(count: int) -> prompts.PromptList:
    """So many different prompts."""
    known = [
        row for path in sorted(LISTS.glob("*.csv")) for row in prompts.read(path.read_bytes(), path.name).good
    ]
    texts = [f"({k}) {row.prompt}" for k, row in enumerate(islice(cycle(known), count), start=1)]
    quoted = ['"' + text.replace('"', '""') + '"' for text in texts]
    return prompts.read(("prompt\n" + "\n".join(quoted)).encode(), "made.csv")


def workers() -> list[int]:
    """The processes that hold a model for this one's cluster."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::MapWorker(MapBatches(Explainer)"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def on_ray(asked: Asked, folder: Path, count: int) -> float:
    """Rows per second from the first that is done on, with one worker killed half way."""
    began, first, told, killed = 0.0, 0, time.monotonic(), False
    step = None
    for step in running(asked, folder, resume=(folder / "run.json").exists()):
        if not began and step.text.startswith("explaining"):
            began, first = time.monotonic(), step.done
        if not killed and began and step.done >= (first + count) // 2:
            killed = True
            os.kill(workers()[0], signal.SIGKILL)
            print(f"killed a worker at {step.done} rows", flush=True)
        if time.monotonic() - told >= EVERY:
            told = time.monotonic()
            print(f"{step.text}: {step.done} of {step.total}", flush=True)
    return 0.0 if step is None or not began else (step.done - first) / (time.monotonic() - began)


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("rows", type=int)
    asked.add_argument("--model", default=DEFAULT)
    asked.add_argument("--workers", type=int, default=2)
    asked.add_argument("--out", type=Path, default=None)
    asked.add_argument("--lens", action="append", default=None)
    given = asked.parse_args()
    folder = given.out or Path(tempfile.mkdtemp(prefix="ray-benchmark-"))
    found, names = made(given.rows), given.lens or ["ig-lens"]
    chosen = tuple(registry.get(name) for name in names)
    decoder = lenses.load(given.model)
    torch.set_num_threads(os.cpu_count() or 1)
    sample = found.rows[:: max(1, len(found.rows) // SAMPLE)][:SAMPLE]
    list(batch.run(decoder, sample[:8], chosen))  # warm
    began = time.monotonic()
    alone = {one.row.row: one for one in batch.run(decoder, sample, chosen)}
    here = len(sample) / (time.monotonic() - began)
    print(
        f"this process, {torch.get_num_threads()} threads: {here:.2f} rows/s ({len(sample)} rows)", flush=True
    )
    del decoder
    with cluster.joined(None):
        rate = on_ray(
            Asked(found, given.model, chosen, True, workers=given.workers), folder, given.rows
        )  # fmt: skip
    print(f"Ray, {given.workers} workers: {rate:.2f} rows/s; {rate / here:.2f} × this process")
    rows = [
        row for path in (folder / "parts").glob("*.parquet") for row in pq.read_table(path)["row"].to_pylist()
    ]
    once = Counter(rows) == Counter(range(1, given.rows + 1))
    print(f"{len(rows)} outcomes in {folder}; every row once: {once}")
    worst = 0.0
    for row, one in alone.items():
        entry = parts.of_window(folder / "parts", batch.window(row)).get(row)
        other = parts.read(one.row, entry)
        assert one.comparison is not None, one.failure
        assert other.comparison is not None, other.failure
        for left, right in zip(one.comparison.results, other.comparison.results, strict=True):
            worst = max(worst, float(np.abs(left.attribution.values - right.attribution.values).max()))
    print(f"largest difference of a value over {len(alone)} rows: {worst:.1e}")


if __name__ == "__main__":
    main()
