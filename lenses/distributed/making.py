"""From prompt lists to a run's folder on a Ray cluster, and to the files that such a run writes."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.data
from jaxtyping import Int
from ray.data import ActorPoolStrategy
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lenses import batch, parts, store
from lenses.batch import window
from lenses.distributed import cluster, sources, totals
from lenses.distributed.board import Board
from lenses.distributed.cluster import Workers
from lenses.distributed.folder import Folder, held
from lenses.distributed.sources import Files
from lenses.distributed.watching import aside, watching
from lenses.distributed.worker import Explainer, Job, looked
from lenses.errors import BadRun, LensesError
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
    """`running`, then the files `FILES` in the folder; the summary that they show.

    Raises `BadRun` where the folder holds files of these names that are no run's, and where a machine does
    not see what the workers kept.
    """
    _refuse_others(folder)
    with held(folder) as (run, seen):
        ran = yield from _running(what, run, seen, resume)
        found = yield from aside(_summed(ran, seen))
    yield Progress("drawing report.html")
    details = Details(found)
    for one in _outcomes(seen.parts, found.listed["row"].tolist()):
        details.add(one)
    (seen.path / "report.html").write_text(html(found, details, BESIDE), encoding="utf-8")
    return found


def _refuse_others(folder: Path) -> None:
    if (folder / "run.json").exists():
        return
    if others := [name for name in FILES if (folder / name).exists()]:
        raise BadRun(f"{folder} already holds {others[0]}, which is no run's: choose another folder")


def _summed(ran: Ran, folder: Folder) -> Generator[Progress, None, Summary]:
    """What a run came to, once the folders `results` and `summary` are written."""
    yield Progress("gathering the results")
    found = totals.lines(ran.rows(NONE, batch.WINDOW), folder, ran.settings)
    for name in ("results", "summary"):
        if (folder.path / name).exists():
            shutil.rmtree(folder.path / name)
    yield from totals.write(found, folder.path)
    return (yield from totals.summary(found))


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
    with held(folder) as (run, seen):
        return (yield from _running(what, run, seen, resume))


def _running(what: Asked, run: Store, folder: Folder, resume: bool) -> Generator[Progress, None, Ran]:
    workers = cluster.placed(what.workers, what.gpus)
    lists: PromptList | Files
    if isinstance(what.lists, PromptList):
        lists = what.lists
    else:
        lists = yield from aside(sources.reading(what.lists, what.manner))
    about, manner, rows = _rows(lists)
    before = run.taken(resume)
    if before:
        run.settings = {**before, **store.listing(about, manner)}
        run.opened(resume)
    known = run.done() if before else NONE

    def begin(model: dict[str, Any], lacking: tuple[str, ...]) -> tuple[str, ...]:
        lenses = [lens for lens in what.lenses if what.every or lens.name not in lacking]
        run.settings = asked(model, about, manner, lenses)
        run.opened(resume)
        return tuple(lens.name for lens in lenses)

    total = int(about["rows"])
    job = Job(
        folder, _absolute(what.model), what.lenses, what.batch_size, workers.threads, run.free(), what.device,
        what.dtype,
    )  # fmt: skip
    if len(known) == total:
        begin(*(yield from aside(_looking(job, workers))))
        return Ran(run.settings, rows)
    board = _board()
    work = _work(rows(known, _size(total - len(known), workers, what.batch_size)), job, board, workers)
    yield from watching(work, board, workers, run.folder, len(known), total, begin)
    return Ran(run.settings, rows)


def _looking(job: Job, workers: Workers) -> Generator[Progress, None, tuple[dict[str, Any], tuple[str, ...]]]:
    """What a worker says of the model where no row is left to run. Raises `LensesError`."""
    yield Progress("loading the model on a worker")
    task = ray.remote(num_cpus=workers.cpus, num_gpus=workers.gpus)(looked)
    found = ray.get(task.remote(job))
    if isinstance(found, LensesError):
        raise found
    return found


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
