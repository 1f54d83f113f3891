"""From a list of prompts to its report, in a folder that can be stopped and gone on with at any time."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from lenses import batch
from lenses.decoder import Decoder
from lenses.errors import LensesError
from lenses.findings import Findings
from lenses.lens import Lens
from lenses.progress import Progress
from lenses.prompts import PromptList, Row
from lenses.report.writing import writing
from lenses.store import Store, settings

SAMPLE = 4
"""Prompts that an estimate runs through the quick lenses; a slow one gets one."""


def making(
    decoder: Decoder,
    listed: PromptList,
    lenses: Sequence[Lens],
    folder: Path,
    *,
    resume: bool = False,
    batch_size: int = batch.BATCH,
    longest: int | None = None,
    files: Path | None = None,
) -> Generator[Progress, None, Findings]:
    """The findings of a list, whose files are in the folder (or in `files`) when it ends.

    Rows that an earlier run left in the folder are not computed again if `resume` is given. A prompt of
    more than `longest` tokens, its word included, is a failure. Raises `BadRun` for a folder that does not
    take this run, and `BadOption` for a lens that does not fit.
    """
    with Store(folder, settings(decoder, listed, lenses), listed.rows) as run:
        yield from computing(decoder, run, lenses, resume=resume, batch_size=batch_size, longest=longest)
        return (yield from writing(files or folder, run))


def computing(
    decoder: Decoder,
    run: Store,
    lenses: Sequence[Lens],
    *,
    resume: bool,
    batch_size: int,
    longest: int | None = None,
) -> Iterator[Progress]:
    """The progress of a run's rows, those that are missing, into its folder."""
    known = run.begin(resume)
    steps = batch.running(
        decoder, run.rows, lenses, batch_size=batch_size, longest=longest, known=known
    )  # fmt: skip
    yield from run.recorded(steps)


def estimating(
    decoder: Decoder, rows: Sequence[Row], lenses: Sequence[Lens], longest: int | None = None
) -> Generator[Progress, None, float]:
    """The seconds that the lenses will take for these rows, measured on prompts of middle length."""
    good = sorted((row for row in rows if not row.problem), key=lambda row: len(row.prompt))
    if not good:
        return 0.0
    middle = len(good) // 2
    quick, slow = [[lens for lens in lenses if lens.slow is one] for one in (False, True)]
    some = good[max(0, middle - SAMPLE // 2) : middle + SAMPLE // 2 + 1]
    seconds = 0.0
    for part, chosen in ((some, quick), (good[middle : middle + 1], slow)):
        if chosen:
            seconds += (yield from _timed(decoder, part, chosen, longest)) * len(good)
    return seconds


def _timed(
    decoder: Decoder, rows: Sequence[Row], lenses: Sequence[Lens], longest: int | None
) -> Generator[Progress, None, float]:
    """Seconds a row."""
    seconds = 0.0
    for _ in range(1 if lenses[0].slow else 2):  # the first pass of a model warms it up
        began = time.perf_counter()
        for step in batch.running(decoder, rows, lenses, longest=longest):
            if isinstance(step, Progress):
                yield Progress("measuring on a few prompts")
        seconds = (time.perf_counter() - began) / len(rows)
    return seconds


def readable(listed: PromptList) -> PromptList:
    """The list itself; raises `LensesError` where no row of it can be run."""
    if listed.bad and not listed.good:
        raise LensesError(f"{listed.name}: no row of it can be run; {listed.bad[0].problem}")
    return listed
