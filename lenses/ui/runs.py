"""Runs of prompt lists in the background: each in a folder of its own, found again by what was asked.

The folder's name is made of the list's bytes, how it was read, the model and the lenses: who asks the
same again, also after closing the page, goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections.abc import Callable, Generator, Hashable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from lenses.building import BUILDING
from lenses.convert import cache
from lenses.ui.answers import jobs
from lenses.ui.jobs import Jobs, Work
from lenses.ui.picker import progress, who
from lenses.ui.settings import settings
from lenses.ui.text import small

if TYPE_CHECKING:
    from lenses.findings import Findings, Outcome
    from lenses.lens import Lens
    from lenses.progress import Progress
    from lenses.prompts import PromptList
    from lenses.report import Archived
    from lenses.ui.models import Held

DIGITS = 24
"""Of the digest that names a run's folder."""
BATCH = 8
"""Prompts in one step: other visitors' work goes on between two steps."""
KEPT = 7 * 24 * 3600
"""Seconds after which a run that nobody touched is deleted."""
_NAME = re.compile(f"[0-9a-f]{{{DIGITS}}}")
WANTED, ACTIVE = "report_wanted", "report_run"
"""The run that a session started, and the one that goes on while other pages are looked at."""


@dataclass(frozen=True)
class Run:
    """A list's run, or a report that was opened: its key, its folder, and how it is made."""

    key: Hashable
    folder: Path
    work: Work
    one: Callable[[int], Outcome]
    total: int = 0
    closing: Work | None = None
    """Makes the report of what is done by now."""


@st.cache_resource(show_spinner=False)
def queue() -> Jobs:
    """The one queue of runs: beside that of the pages' own work, whose results it shares."""
    return Jobs(jobs().results, beside=BUILDING)


def run(held: Held, listed: PromptList, lenses: tuple[Lens, ...]) -> Run:
    """The run of a list with a model and lenses."""
    from lenses.store import Store
    from lenses.store import settings as asked_for

    asked = asked_for(held.decoder, listed, lenses)
    asked["file"] |= {"name": ""}  # the same content under another name is the same run
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:DIGITS]
    folder = _home() / digest

    def work() -> Generator[Progress, None, Findings]:
        from lenses.report import making

        _forget_old(folder)
        folder.mkdir(parents=True, exist_ok=True)
        return (yield from making(held.decoder, listed, lenses, folder, resume=True, batch_size=BATCH))

    store = Store(folder, asked_for(held.decoder, listed, lenses), listed.rows)

    def closing() -> Generator[Progress, None, Findings]:
        from lenses.report import writing

        with store:
            store.begin(resume=True)
            return (yield from writing(folder, store))

    key = ("run", held.serial, digest, listed.name)
    return Run(key, folder, work, store.one, len(listed.rows), closing)


def opened(archived: Archived, digest: str) -> Run:
    """A report that was saved, whose files are made again."""
    folder = _home() / digest[:DIGITS]

    def work() -> Generator[Progress, None, Findings]:
        from lenses.report import writing

        _forget_old(folder)
        folder.mkdir(parents=True, exist_ok=True)
        return (yield from writing(folder, archived))

    return Run(("opened", digest), folder, work, archived.one)


def estimate(held: Held, listed: PromptList, lenses: tuple[Lens, ...]) -> tuple[Hashable, Work]:
    """The key and the work of an estimate of a run's seconds."""

    def work() -> Generator[Progress, None, float]:
        from lenses.report import estimating

        return (yield from estimating(held.decoder, listed.rows, lenses))

    return ("estimate", held.serial, listed.sha256, listed.manner, lenses), work


def owner() -> str:
    """The name under which this session wants its run, on whichever page it is."""
    return f"{who()}/run"


def aside() -> None:
    """On other pages, the progress of the visitor's run, which goes on meanwhile."""
    wanted: Hashable | None = st.session_state.get(ACTIVE)
    if wanted is None or queue().state(wanted) is None:
        return

    @st.fragment(run_every=1.0)
    def watch() -> None:
        queue().renew(owner())
        now = queue().state(wanted)
        if now is None:
            small("The report is ready on its page.")
        else:
            progress("Report", now)

    with st.sidebar:
        watch()


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
