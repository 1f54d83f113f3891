"""Runs of prompt lists in the background: each in a folder of its own, found again by what was asked.

The folder's name is made of the list's bytes, how it was read, the model and the lenses: who asks the
same again, also after closing the page, goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from lenses.building import BUILDING
from lenses.convert import cache
from lenses.errors import BadRun
from lenses.ui import models
from lenses.ui.answers import jobs
from lenses.ui.jobs import Failed, Jobs, Work
from lenses.ui.picker import progress, who
from lenses.ui.settings import settings
from lenses.ui.text import small

if TYPE_CHECKING:
    from lenses.decoder import Decoder
    from lenses.findings import Findings, Outcome
    from lenses.lens import Lens
    from lenses.progress import Progress
    from lenses.prompts import PromptList
    from lenses.report import Archived
    from lenses.store import Store
    from lenses.ui.shelf import Choice, Held

DIGITS = 24
"""Of the digest that names a run's folder."""
BATCH = 8
"""Prompts in one step: other visitors' work goes on between two steps."""
KEPT = 7 * 24 * 3600
"""Seconds after which a run that nobody touched is deleted."""
_NAME = re.compile(f"[0-9a-f]{{{DIGITS}}}")
ACTIVE, OPENED, VALIDATED = "report_run", "report_opened", "validation_run"
"""Where a session keeps the run that it started, the saved report that it opened, and its validation."""


@dataclass(frozen=True)
class Run:
    """A list's run, or a report that was opened, as its session keeps it whatever else is chosen.

    `work` computes and writes, with the model that is on the shelf when it begins, so that no session keeps
    one in memory; it is None when it is done. `closing` writes what is done by now into a folder. `partial`
    names a report of a run that was stopped.
    """

    key: Hashable
    name: str
    folder: Path
    one: Callable[[int], Outcome]
    total: int
    work: Work | None
    closing: Callable[[Path], Work]
    stopped: bool = False
    partial: str = ""

    @property
    def wanted(self) -> tuple[Hashable, Work] | None:
        """The key and the work of what is to be made of it now; None for a run that was stopped."""
        if not self.stopped:
            return self.key, self.work or self.closing(self.files)
        return (("partial", self.key, self.partial), self.closing(self.files)) if self.partial else None

    @property
    def files(self) -> Path:
        """The folder of its report: of its own for every name of the list, and for every partial one."""
        made_of = hashlib.sha256(f"{self.name} {self.partial}".encode()).hexdigest()
        return self.folder / made_of[:DIGITS]


@st.cache_resource(show_spinner=False)
def queue() -> Jobs:
    """The one queue of runs: beside that of the pages' own work, whose results it shares."""
    return Jobs(jobs().results, beside=BUILDING, most=settings().queue)


@st.cache_resource(show_spinner=False)
def estimates() -> Jobs:
    """The queue of estimates, which wait for no run."""
    return Jobs(jobs().results, beside=BUILDING)


def run(held: Held, listed: PromptList, lenses: Sequence[Lens]) -> Run:
    """The run of a list with a model and lenses."""

    def making(decoder: Decoder, folder: Path, files: Path) -> Generator[Progress, None, Findings]:
        from lenses.report import making

        return (
            yield from making(
                decoder, listed, lenses, folder, resume=True, batch_size=BATCH,
                longest=settings().max_tokens, files=files,
            )
        )  # fmt: skip

    def closing(store: Store, files: Path) -> Generator[Progress, None, Findings]:
        from lenses.report import writing

        return (yield from writing(files, store))

    return begun("run", held, listed, lenses, making, closing)


def begun(
    kind: str,
    held: Held,
    listed: PromptList,
    lenses: Sequence[Lens],
    making: Callable[[Decoder, Path, Path], Generator[Progress, None, Any]],
    closing: Callable[[Store, Path], Generator[Progress, None, Any]],
) -> Run:
    """A run of any kind in the folder of what is asked: `making` computes into that folder and writes into
    another, `closing` writes what a stopped run holds. Neither may hold the model."""
    from lenses.store import Store
    from lenses.store import settings as asked_for

    asked = asked_for(held.decoder, listed, lenses)
    store_settings = json.loads(json.dumps(asked))
    asked["file"] |= {"name": ""}  # the same content under another name shares what was computed
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:DIGITS]
    folder = _home() / digest
    store = Store(folder, store_settings, listed.rows)
    choice = held.choice

    def work() -> Generator[Progress, None, Any]:
        _make(folder)
        return (yield from making(_model(choice), folder, made.files))

    def closed_into(files: Path) -> Work:
        def closed() -> Generator[Progress, None, Any]:
            with store:
                store.begin(resume=True)
                return (yield from closing(store, files))

        return closed

    made = Run(
        (kind, digest, listed.name), listed.name, folder, store.one, len(listed.rows), work, closed_into
    )
    return made


def _model(choice: Choice) -> Decoder:
    """The model of a run that begins or goes on; raises `BadRun` where it is not in memory any more."""
    found = models.held(choice)
    if found is None:
        raise BadRun(
            f"{choice.name} had to make room for another model meanwhile, and what is done of this run is "
            "kept: choose it in the sidebar, and try again when it is loaded"
        )
    return found.decoder


def opened(archived: Archived, digest: str) -> Run:
    """A report that was saved, whose files are made again."""
    folder = _home() / digest[:DIGITS]

    def closing(files: Path) -> Work:
        def closed() -> Generator[Progress, None, Findings]:
            from lenses.report import writing

            _make(folder)
            return (yield from writing(files, archived))

        return closed

    name = str(archived.settings["file"]["name"])
    total = len(archived.data["summary"]["rows"])
    return Run(("opened", digest), name, folder, archived.one, total, None, closing)


def estimate(held: Held, listed: PromptList, lenses: Sequence[Lens]) -> tuple[Hashable, Work]:
    """The key and the work of an estimate of a run's seconds."""

    def work() -> Generator[Progress, None, float]:
        from lenses.report import estimating

        return (yield from estimating(held.decoder, listed.rows, lenses, settings().max_tokens))

    return ("estimate", held.serial, listed.sha256, listed.manner, tuple(lenses)), work


def owner(slot: str) -> str:
    """The name under which this session wants what it keeps in a slot, on whichever page it is."""
    return f"{who()}/{slot}"


def aside(slot: str = ACTIVE, what: str = "report") -> None:
    """On other pages, the progress of the visitor's run, which goes on meanwhile."""
    kept: Run | None = st.session_state.get(slot)
    wanted = kept.wanted if kept is not None else None
    if wanted is None or queue().state(wanted[0]) is None:
        return

    @st.fragment(run_every=1.0)
    def watch() -> None:
        queue().renew(owner(slot))
        now, found = queue().state(wanted[0]), queue().results.get(wanted[0])
        if now is not None:
            progress(what.capitalize(), now)
        elif isinstance(found, Failed):
            small(f"The {what} could not be made: {found.reason}")
        else:
            small(f"The {what} is ready on its page." if found else "The run waits on its page.")

    with st.sidebar:
        watch()


def _make(folder: Path) -> None:
    """The folder of a run; raises `BadRun` where the host's setting names none that can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
    except OSError as error:
        raise BadRun(
            f"runs can't be kept in {folder.parent} ({error.strerror}): the host of this page sets the "
            "folder by LENSES_RUNS"
        ) from error
    _forget_old(folder)


def _home() -> Path:
    return settings().runs or cache() / "runs"


def _forget_old(folder: Path) -> None:
    """Delete the runs that nobody has touched for a week, but for `folder`; nothing else is looked at."""
    for other in _home().glob("*"):
        if other == folder or not _NAME.fullmatch(other.name) or other.is_symlink():
            continue
        with suppress(OSError):  # another process may be deleting it as well
            touched = max((file.stat().st_mtime for file in (other, *other.rglob("*"))), default=0.0)
            if time.time() - touched > KEPT:
                shutil.rmtree(other)
