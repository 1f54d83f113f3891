"""A run on workers as steps of progress: how many rows are done, and what a run that is quiet waits for."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic

import ray
import ray.data
import ray.exceptions

from lenses.distributed.board import State
from lenses.distributed.cluster import Workers, said
from lenses.errors import BadRun
from lenses.progress import Progress, T
from lenses.prompts.wording import counted

TICK = 0.5
"""Seconds between two looks at the board."""
QUIET = 60.0
"""Seconds without a finished batch after which a run says what it waits for."""
PATIENCE = 30.0
"""Seconds that workers get to end their batches once a run is given up."""


def watching(
    work: ray.data.Dataset, board: Any, workers: Workers, folder: Path, before: int, total: int,
    begin: Callable[[dict[str, Any], tuple[str, ...]], tuple[str, ...]],
) -> Iterator[Progress]:  # fmt: skip
    """Run the work, of which `before` rows were done, to its end. Raises `LensesError` where it can't go on.

    `begin` is told the model that the first worker has, and the lenses that it can't have, and says with
    which it is to be. A run that is given up (`close`) lets the workers end their batches, whose rows are
    then kept.
    """
    news: queue.Queue[BaseException | None] = queue.Queue()
    thread = threading.Thread(target=_consume, args=(work, news), daemon=True)
    thread.start()
    begun = False
    try:
        while True:
            over, ended = _news(news)
            state: State = ray.get(board.state.remote())
            if state.fault is not None:
                raise state.fault
            if ended is not None:
                raise BadRun(
                    f"Ray ended the run: {said(ended)}; what is done is kept in {folder}: mend that, and run "
                    "the same with --resume to go on"
                ) from ended
            if state.model is not None and not begun:
                ray.get(board.allow.remote(begin(state.model, state.lacking)))
                begun = True
            yield Progress(told(state, workers), min(total, before + state.done), total)
            if over:
                return
    finally:
        if thread.is_alive():
            ray.get(board.stop.remote())
            thread.join(PATIENCE)


def aside(work: Generator[Progress, None, T]) -> Generator[Progress, None, T]:
    """Work that waits for Ray at each of its steps, in a thread of its own; each step is told again and
    again while it lasts, and with its time once that is long. One that is given up ends after its step."""
    steps: queue.Queue[Progress | Made[T] | BaseException] = queue.Queue()
    given_up = threading.Event()
    threading.Thread(target=_stepped, args=(work, steps, given_up), daemon=True).start()
    step, since = Progress("waiting for Ray"), time.monotonic()
    try:
        while True:
            try:
                news = steps.get(timeout=TICK)
            except queue.Empty:
                quiet = time.monotonic() - since
                late = (
                    f"; at it for {quiet / 60:.0f} min: `ray status` says what Ray does"
                    if quiet >= QUIET
                    else ""
                )
                yield replace(step, text=step.text + late)
                continue
            if isinstance(news, BaseException):
                raise news
            if isinstance(news, Made):
                return news.value
            step, since = news, time.monotonic()
            yield step
    finally:
        given_up.set()


@dataclass(frozen=True)
class Made(Generic[T]):
    """What work came to."""

    value: T


def _stepped(work: Generator[Progress, None, T], steps: queue.Queue[Any], given_up: threading.Event) -> None:
    """Do the work, and tell its steps and its end."""
    try:
        while not given_up.is_set():
            steps.put(next(work))
    except StopIteration as end:
        steps.put(Made(end.value))
    except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that watches
        steps.put(error)


def told(state: State, workers: Workers) -> str:
    """What goes on, in a few words."""
    text = f"explaining with {state.ready} of {counted(workers.count, 'worker')}"
    if state.deaths:
        text += f", {counted(state.deaths, 'death')} made good"
    if not state.ready and state.quiet < QUIET:
        return "loading the model on the workers"
    if state.quiet < QUIET:
        return text
    since = f"; nothing finished for {state.quiet / 60:.0f} min"
    if state.ready + state.loading < workers.count:
        gpus = f" and {workers.gpus:g} GPUs" if workers.gpus else ""
        return f"{text}{since}: waiting for Ray to place a worker of {workers.cpus:g} CPUs{gpus}"
    if state.loading:
        return f"{text}{since}: waiting for {counted(state.loading, 'worker')} to load the model"
    if state.busy:
        return f"{text}{since}: waiting for the batches of rows {', '.join(map(str, state.busy[:4]))}"
    return f"{text}{since}: waiting for rows to be read"


def _news(news: queue.Queue[BaseException | None]) -> tuple[bool, BaseException | None]:
    """Whether the work is over, and by what error, waiting a little."""
    try:
        return True, news.get(timeout=TICK)
    except queue.Empty:
        return False, None


def _consume(work: ray.data.Dataset, news: queue.Queue[BaseException | None]) -> None:
    """Draw the counts to their end, which is what makes Ray Data run; whatever ends that is news.

    Also of a run that is given up: its workers begin nothing new, and one that is in the middle of a batch
    would be killed over it.
    """
    try:
        for _ in work.iter_batches(batch_size=None, prefetch_batches=0):
            pass
    except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that watches
        news.put(error)
    else:
        news.put(None)
