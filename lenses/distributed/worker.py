"""A worker: it loads the model once, and maps rows to parts of the run's folder, as one machine would.

Nothing but counts goes back. A part's name follows from its rows, so that work which is done again, after
a death, overwrites itself; what was kept before the death is not computed again.
"""

from __future__ import annotations

import pickle
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch

from lenses import batch, comparison, loading, parts
from lenses.batch import Outcomes, window
from lenses.decoder import Decoder
from lenses.distributed.board import DEATHS
from lenses.distributed.folder import Folder
from lenses.errors import BadRun, LensesError
from lenses.findings import Outcome
from lenses.lens import Lens
from lenses.progress import Progress
from lenses.prompts import Row

KILLED = (
    "its worker died each time that it was tried, the last time with this row by itself: it may need more "
    "memory than a worker has"
)


OUT_OF_MEMORY = (
    "a worker was killed each time that it loaded the model: there may be too little memory for so many; ask "
    "for fewer with --workers"
)
TICK = 0.2
"""Seconds between two questions whether to begin."""


@dataclass(frozen=True)
class Job:
    """What a worker must know; `session` numbers the parts that are written now."""

    folder: Folder
    model: str
    lenses: tuple[Lens, ...]
    batch_size: int
    threads: int
    session: int
    device: str | None = None
    dtype: str | None = None


def loaded(job: Job) -> Decoder:
    """The model, once it is sure that the worker sees the run's folder. Raises `LensesError`."""
    job.folder.seen()
    torch.set_num_threads(job.threads)
    return loading.load(job.model, device=job.device, dtype=job.dtype)


def described(decoder: Decoder, lenses: Sequence[Lens]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The model and the version as they must be on all machines, and the lenses that it can't have there."""
    model = comparison.describe(decoder, decoder.readout_gap)
    told = {name: model[name] for name in ("name", "source", "revision", "dtype")}
    told["lenses"] = comparison.versions()["lenses"]
    return told, tuple(lens.name for lens in lenses if lens.available(decoder))


def looked(job: Job) -> tuple[dict[str, Any], tuple[str, ...]] | LensesError:
    """`described` of the model as a task of its own, or why there is none."""
    try:
        return described(loaded(job), job.lenses)
    except LensesError as error:
        return error


class Explainer:
    """Maps blocks of rows to counts: `done` and `failed` of each."""

    def __init__(self, job: Job, board: Any) -> None:
        self._job, self._board = job, board
        self._decoder: Decoder | None = None
        self._lenses: tuple[Lens, ...] | None = None
        name = ray.get_runtime_context().get_actor_id()
        if not ray.get(board.loading.remote(name)):
            self._give_up(BadRun(OUT_OF_MEMORY))
            return
        try:
            self._decoder = loaded(job)
            self._same(name, self._decoder)
        except LensesError as error:
            self._give_up(error)

    def _same(self, name: str, decoder: Decoder) -> None:
        """Tell that the model is there; raises `BadRun` if it is not the one that others have."""
        here = described(decoder, self._job.lenses)
        first = ray.get(self._board.ready.remote(name, *here))
        if here[0] != first[0]:
            raise BadRun(
                f"a worker on {socket.gethostname()} has another model or version ({here[0]}) than the first "
                f"({first[0]}): bring all machines to the same"
            )
        if differ := sorted(set(here[1]) ^ set(first[1])):
            raise BadRun(
                f"{', '.join(differ)} can be had on some machines and not on {socket.gethostname()}, or only "
                "there: bring all machines to the same, a tuned lens into each one's cache"
            )

    def __call__(self, block: dict[str, np.ndarray]) -> dict[str, list[int]]:
        rows = [pickle.loads(data) for data in block["data"]]
        counts = {"done": 0, "failed": 0}
        for _, group in groupby(sorted(rows, key=lambda row: row.row), key=lambda row: window(row.row)):
            for outcomes in self._kept(tuple(group)):
                counts["done"] += len(outcomes)
                counts["failed"] += sum(one.comparison is None for one in outcomes)
        return {name: [count] for name, count in counts.items()}

    def _chosen(self) -> tuple[Lens, ...]:
        """The lenses, as soon as the driver has looked at the model."""
        while self._lenses is None:
            names = ray.get(self._board.allowed.remote())
            if names is None:
                time.sleep(TICK)
            else:
                self._lenses = tuple(lens for lens in self._job.lenses if lens.name in names)
        return self._lenses

    def _kept(self, rows: tuple[Row, ...]) -> Iterator[Outcomes]:
        """The outcomes of a task, rows of one window, each once it is kept."""
        if self._decoder is None or not self._chosen():
            return
        task = rows[0].row
        before = ray.get(self._board.begin.remote(task))
        if before is None:
            return
        known = self._of_the_dead(rows) if before else frozenset[int]()
        done = len(known)
        try:
            for outcomes in self._made(rows, known, apart=before >= DEATHS):
                parts.keep(self._path(min(one.row.row for one in outcomes)), outcomes)
                done += len(outcomes)
                yield outcomes
                if not ray.get(self._board.told.remote(task, done)):
                    return
        except LensesError as error:
            self._give_up(error)
        except OSError as error:
            self._give_up(
                BadRun(
                    f"a part can't be written into {self._job.folder.path} ({error}): mend that, and run the "
                    "same with --resume to go on"
                )
            )
        ray.get(self._board.told.remote(task, done, True))

    def _made(self, rows: Sequence[Row], known: frozenset[int], apart: bool) -> Iterator[Outcomes]:
        """The outcomes of the rows that are not known, in batches, or one at a time after deaths."""
        if not apart:
            yield from self._explained(rows, known)
            return
        for row in rows:
            if row.row in known:
                continue
            if ray.get(self._board.alone.remote(row.row)):
                yield from self._explained([row], known)
            else:
                yield (Outcome(row, failure=KILLED, passing=True),)

    def _explained(self, rows: Sequence[Row], known: frozenset[int]) -> Iterator[Outcomes]:
        assert self._decoder is not None
        job = self._job
        for step in batch.running(
            self._decoder, rows, self._chosen(), batch_size=job.batch_size, known=known
        ):  # fmt: skip
            if not isinstance(step, Progress):
                yield step

    def _of_the_dead(self, rows: Sequence[Row]) -> frozenset[int]:
        """The rows that a worker kept before it died over the others."""
        paths = [path for row in rows if (path := self._path(row.row)).exists()]
        return frozenset(row for path in paths for row in parts.table(path, ["row"])["row"].to_pylist())

    def _path(self, first: int) -> Path:
        name = f"{window(first):06d}-{self._job.session:06d}-{first:09d}.parquet"
        return self._job.folder.parts / name

    def _give_up(self, error: Exception) -> None:
        self._decoder = None
        ray.get(self._board.fault.remote(error))
