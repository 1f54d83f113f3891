"""Long lists: memory above the loaded model as they go on, and prompts per second, batched and one by one.

    python -m tests.benchmarks.lists [ROWS]

Prompts of 20 tokens through the default model with the quick lenses, into a folder, as `lenses report`
runs them; the files of the report are written at the end. One by one is measured on the same rows in
the same run, so that only the ratio of the two counts.
"""

from __future__ import annotations

import ctypes
import resource
import sys
import tempfile
import time
from pathlib import Path

import lenses
from lenses import batch, prompts, registry, report
from lenses.progress import Progress
from lenses.report.making import computing
from lenses.store import Store, settings

WORDS = ["river", "stone", "apple", "house", "green", "winter", "music", "paper", "glass", "bread"]
EVERY, ALONE, LENGTH = 500, 96, 20


def listed(decoder: lenses.Decoder, count: int) -> prompts.PromptList:
    """So many different prompts of 20 tokens."""
    lines = []
    for k in range(count):
        text = " ".join([f"Item {k}:", *(WORDS[(k * 7 + j * (1 + k % 9)) % 10] for j in range(LENGTH))])
        ids = decoder.tokenizer(text).input_ids[:LENGTH]
        lines.append(decoder.tokenizer.decode(ids))
    return prompts.read(("prompt\n" + "\n".join(lines)).encode(), "made.csv")


def resident() -> float:
    """Megabytes in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def peak() -> float:
    """The most megabytes that were in memory at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def rate(decoder: lenses.Decoder, rows: tuple[prompts.Row, ...], size: int) -> float:
    began = time.perf_counter()
    made = list(batch.run(decoder, rows, batch_size=size))
    assert all(one.comparison is not None for one in made)
    return len(rows) / (time.perf_counter() - began)


def main(count: int) -> None:
    decoder = lenses.load()
    chosen = [registry.get(name) for name in registry.quick()]
    found = listed(decoder, count)
    rate(decoder, found.rows[:4], 4)  # warm
    for _ in range(2):
        alone, together = rate(decoder, found.rows[:ALONE], 1), rate(decoder, found.rows[:ALONE], batch.BATCH)
        print(f"prompts per second: {alone:.1f} one by one, {together:.1f} batched: ×{together / alone:.2f}")
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    start, began, told = resident(), time.perf_counter(), 0
    with tempfile.TemporaryDirectory() as name:
        run = Store(Path(name), settings(decoder, found, chosen), found.rows)
        with run:
            for step in computing(decoder, run, chosen, resume=False, batch_size=batch.BATCH):
                if isinstance(step, Progress) and step.done >= told + EVERY:
                    told = step.done
                    print(f"{told} rows: {resident() - start:+.0f} MB now, {peak() - start:+.0f} MB at most")
        print(f"{count / (time.perf_counter() - began):.1f} prompts per second over all {count}")
        report.write(Path(name), run)
        size = (Path(name) / "report.html").stat().st_size / 1e6
        print(f"report written: {peak() - start:+.0f} MB at most; report.html {size:.1f} MB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
