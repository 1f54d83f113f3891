"""From prompt lists to a run's folder on a Ray cluster, and to the files that such a run writes."""

from __future__ import annotations

import math
import shutil
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.data
import ray.exceptions
from jaxtyping import Int
from ray.data import ActorPoolStrategy
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lenses import batch, catalog, parts, store
from lenses.batch import window
from lenses.distributed import cluster, sources, totals
from lenses.distributed.board import Board
from lenses.distributed.cluster import Workers
from lenses.distributed.sources import Files
from lenses.distributed.watching import watching
from lenses.distributed.worker import TOKEN, Explainer, Job
from lenses.errors import LensesError
from lenses.findings import Outcome
from lenses.lens import Lens
from lenses.progress import Progress
from lenses.prompts import AS_FOUND, Manner, PromptList, Row
from lenses.report.details import Details
from lenses.report.making import readable
from lenses.report.page import Beside, html
from lenses.store import Store, asked
from lenses.summary import Summary

TASK = 128
"""Rows that are handed to a worker at once: at most so many are begun again when it dies."""
NONE = np.array([], dtype=np.int64)
FILES = ("report.html", "results", "summary")
"""What a run writes: the page, and folders of Parquet files in the columns of results.csv and summary.csv."""
BESIDE = Beside(("summary/", "results/"), "parts/", "summary/")
TASKS_A_WORKER = 4
"""Tasks for each worker at least, where the list is long enough, so that all end at about the same time."""


@dataclass(frozen=True)
class Asked:
    """What to run: a list that is in memory here, or files, folders and patterns that workers read in a
    `manner`."""

    lists: PromptList | tuple[str, ...]
    model: str
    lenses: tuple[Lens, ...]
    every: bool
    """Whether each of the lenses was asked for, or those that the model can't have may be left out."""
    workers: int | None = None
    gpus: float | None = None
    batch_size: int = batch.BATCH
    manner: Manner = AS_FOUND
    device: str | None = None
    dtype: str | None = None


@dataclass(frozen=True)
class Ran:
    """A run that is done: what was asked, and the rows of the lists again, in blocks of a size."""

    settings: dict[str, Any]
    rows: Callable[[Int[np.ndarray, " row"], int], ray.data.Dataset]


def making(what: Asked, folder: Path, *, resume: bool = False) -> Generator[Progress, None, Summary]:
    """`running`, then the files `FILES` in the folder; the summary that they show."""
    ran = yield from running(what, folder, resume=resume)
    yield Progress("gathering the results")
    found = totals.lines(ran.rows(NONE, batch.WINDOW), folder / "parts", ran.settings)
    for name in ("results", "summary"):
        shutil.rmtree(folder / name, ignore_errors=True)
    yield from totals.write(found, folder)
    summary = yield from totals.summary(found)
    yield Progress("drawing report.html")
    details = Details(summary)
    for one in _outcomes(folder / "parts", summary.listed["row"].tolist()):
        details.add(one)
    (folder / "report.html").write_text(html(summary, details, BESIDE), encoding="utf-8")
    return summary


def _outcomes(folder: Path, rows: list[int]) -> Iterator[Outcome]:
    """The outcomes of a few rows, of which only their numbers are known here."""
    for number, group in groupby(rows, key=window):
        known = parts.of_window(folder, number)
        for row in group:
            yield parts.read(Row(row, 0, ""), known.get(row))


def running(what: Asked, folder: Path, *, resume: bool = False) -> Generator[Progress, None, Ran]:
    """Explain all rows on the cluster that this process is joined to, into the parts of the folder.

    Raises `BadRun` for a folder that does not take this run, and `LensesError` for whatever is wrong with
    the lists, the model, the lenses or the cluster.
    """
    workers = cluster.placed(what.workers, what.gpus)
    yield Progress("counting the rows of the files")
    lists = what.lists if isinstance(what.lists, PromptList) else sources.read(what.lists, what.manner)
    about, manner, rows = _rows(lists)
    with _token(folder) as token, Store(folder, {}, ()) as run:
        before = run.taken(resume)
        known = run.done() if before else NONE

        def begin(model: dict[str, Any], lacking: tuple[str, ...]) -> tuple[str, ...]:
            lenses = [lens for lens in what.lenses if what.every or lens.name not in lacking]
            run.settings = asked(model, about, manner, lenses)
            run.opened(resume)
            return tuple(lens.name for lens in lenses)

        total = int(about["rows"])
        if len(known) == total and before:
            names = before["lenses"]
            model = {**before["model"], "name": catalog.find(what.model).name}
            begin(model, tuple(lens.name for lens in what.lenses if lens.name not in names))
            return Ran(run.settings, rows)
        job = Job(
            folder.absolute(), token, _absolute(what.model), what.lenses, what.batch_size, workers.threads,
            run.free(), what.device, what.dtype,
        )  # fmt: skip
        board = _board()
        blocks = rows(known, _size(total - len(known), workers, what.batch_size))
        work = _work(blocks, job, board, workers)
        yield from watching(work, board, workers, folder, len(known), total, begin)
    return Ran(run.settings, rows)


def _rows(lists: PromptList | Files) -> tuple[dict[str, Any], Manner, Callable[..., ray.data.Dataset]]:
    """What a run's settings say of the lists, and what makes their rows for Ray.

    Raises `LensesError` where no row can be run.
    """
    if isinstance(lists, PromptList):
        readable(lists)
        return store.about(lists), lists.manner, partial(sources.of_list, lists.rows)
    if lists.rows == sum(file.bad for file in lists.files):
        problem = next(file.problem for file in lists.files if file.problem)
        raise LensesError(f"{lists.name}: no row of it can be run; {problem}")
    return lists.about(), lists.manner, partial(sources.rows, lists)


def _board() -> Any:
    """The run's memory, on the machine of its driver, with which it ends anyway."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(Board).remote()


@contextmanager
def _token(folder: Path) -> Iterator[str]:
    """A word in the folder by which workers know that they see it. What is empty afterwards goes again."""
    made = [path for path in (folder / "parts", folder) if not path.exists()]
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    token = uuid.uuid4().hex
    (folder / TOKEN).write_text(token, encoding="utf-8")
    try:
        yield token
    finally:
        (folder / TOKEN).unlink(missing_ok=True)
        for path in made:
            if {one.name for one in path.iterdir()} <= {".lock"}:
                shutil.rmtree(path)


def _absolute(model: str) -> str:
    """A folder or a file where it is, since a worker may run elsewhere; other names as they are."""
    return str(Path(model).absolute()) if Path(model).exists() else model


def _size(left: int, workers: Workers, batch_size: int) -> int:
    """Rows of a task: whole batches, and several tasks for each worker."""
    even = math.ceil(left / (workers.count * TASKS_A_WORKER))
    return max(batch_size, min(TASK, math.ceil(even / batch_size) * batch_size))


def _work(rows: ray.data.Dataset, job: Job, board: Any, workers: Workers) -> ray.data.Dataset:
    """The rows through workers that Ray starts again, and tasks that it tries again, without end: the board
    bounds them."""
    gpus = {"num_gpus": workers.gpus} if workers.gpus else {}
    return rows.map_batches(
        Explainer, fn_constructor_args=(job, board), batch_size=None, num_cpus=workers.cpus, **gpus,
        compute=ActorPoolStrategy(size=workers.count, max_tasks_in_flight_per_actor=2),
    )  # fmt: skip
