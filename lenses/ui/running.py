"""A run on the page: how far it is, stopped and gone on with, or what came of it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import streamlit as st

from lenses.prompts.wording import counted
from lenses.ui import findings, picker
from lenses.ui.jobs import Failed
from lenses.ui.runs import Run, owner, queue
from lenses.ui.text import message, small


def follow(
    slot: str, show: Callable[[Hashable, Any, Run], None] = findings.of_run, page: str = "report.html"
) -> None:
    """The run that the session keeps in a slot: its progress, or what came of it, as `show` shows it.

    `page` is the file that stands for all that it wrote.
    """
    run: Run = st.session_state[slot]
    wanted = run.wanted
    queue().want(owner(slot), dict([wanted]) if wanted is not None else {})
    with suppress(OSError):  # it may not be there yet
        os.utime(run.folder)  # while somebody looks at it, it is not old
    if run.stopped:
        _halted(slot, run)
    if wanted is None:
        return
    key, _ = wanted
    found = queue().results.get(key)
    if isinstance(found, Failed):
        message("error", found.reason)
        if st.button("Try again", key=f"retry-{slot}"):
            queue().results.drop(key)
            st.rerun()
    elif found is None:
        _pending(slot, key, run)
    elif not (run.files / page).exists():
        queue().results.drop(key)
        del st.session_state[slot]
        message("info", "the files of this run were deleted after a week without use: run the list again")
    else:
        if not run.stopped:
            st.session_state[slot] = replace(run, work=None)  # it is done, and needs no model again
        small(f"{run.name}, {counted(run.total, 'prompt')}")
        show(key, found, run)


def _pending(slot: str, key: Hashable, run: Run) -> None:
    @st.fragment(run_every=0.5)
    def watch() -> None:
        queue().renew(owner(slot))
        now = queue().state(key)
        if now is None:
            st.rerun()
        picker.progress(f"{run.name}: {now.progress.done} of {run.total} prompts", now)
        if run.work is not None and st.button("Stop", key=f"stop-{slot}"):
            st.session_state[slot] = replace(run, stopped=True, partial="")
            st.rerun()

    watch()


def _halted(slot: str, run: Run) -> None:
    """A run that was stopped: it can go on, or be reported as far as it got."""
    message("info", f"the run of {run.name} was stopped; what is done is kept, and it can go on from there")
    left, right, _ = st.columns([1, 1, 3])
    if left.button("Go on", type="primary", key=f"resume-{slot}", width="stretch"):
        st.session_state[slot] = replace(run, stopped=False, partial="")
        st.rerun()
    if right.button("Report what is done", key=f"partial-{slot}", width="stretch"):
        st.session_state[slot] = replace(run, partial=uuid.uuid4().hex)
        st.rerun()
