"""What the command line's commands share: a console, progress on stderr, and the model."""

from __future__ import annotations

import io
import logging
import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from lenses.decoder import Decoder
    from lenses.progress import Progress

SILENCE = 10.0
"""Seconds after which a run that nobody watches says how far it is."""


def load(model: str, device: str | None = None, dtype: str | None = None) -> Decoder:
    """The decoder, with its progress on stderr."""
    with status("importing torch and transformers"):
        from lenses.loading import loading
    decoder: Decoder = watched(loading(model, device=device, dtype=dtype))
    return decoder


def watched(work: Generator[Progress, None, Any]) -> Any:
    """What the work makes, with its progress on stderr where that is a terminal."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    screen = console(stderr=True)
    if not screen.is_terminal:
        return _logged(work)
    columns = (
        SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Progress(*columns, console=screen, transient=True) as progress:
        task = progress.add_task("", total=None)
        while True:
            try:
                step = next(work)
            except StopIteration as end:
                return end.value
            done = f" {step.done} of {step.total}" if step.total else ""
            progress.update(task, description=step.text + done, completed=step.done, total=step.total or None)


def _logged(work: Generator[Progress, None, Any]) -> Any:
    """The same where nobody watches a bar: a line on stderr now and then, so that no run is silent."""
    told = time.monotonic()
    while True:
        try:
            step = next(work)
        except StopIteration as end:
            return end.value
        if time.monotonic() - told >= SILENCE:
            told = time.monotonic()
            done = f": {step.done} of {step.total}" if step.total else ""
            sys.stderr.write(f"{step.text}{done}\n")
            sys.stderr.flush()


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Work whose parts are kept in a folder: says how to go on where it is stopped."""
    try:
        yield
    except KeyboardInterrupt:
        text = f"What is done is kept in {folder}: run the same with --resume to go on."
        console(stderr=True).print(text, markup=False, soft_wrap=True)
        raise


@contextmanager
def status(text: str) -> Iterator[None]:
    with console(stderr=True).status(text):
        yield


def console(**options: Any) -> Any:
    """A rich console; where there is no terminal to measure, a table gets 120 columns."""
    from rich.console import Console

    screen = Console(highlight=False, **options)
    return screen if screen.is_terminal else Console(highlight=False, width=120, **options)


def quiet() -> None:
    """Keep transformers' and the Hub client's own bars and notes off the terminal."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    for library in ("transformers", "huggingface_hub", "accelerate"):
        logging.getLogger(library).setLevel(logging.ERROR)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a table's bars on a terminal that has no such characters
