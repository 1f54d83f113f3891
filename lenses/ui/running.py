"""A run on the page: how far it is, stopped and gone on with, or what came of it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import streamlit as st

from lenses.ui import findings, picker, runs
from lenses.ui.jobs import Failed, Work
from lenses.ui.runs import ACTIVE, Run, queue
from lenses.ui.text import message

if TYPE_CHECKING:
    from lenses.findings import Findings

STOPPED, PARTIAL = "report_stopped", "report_partial"
"""The run that a session stopped, and whether it is to be reported as far as it got."""


def follow(asked: Run) -> None:
    """A run that is wanted: how far it is, or what came of it."""
    stopped = st.session_state.get(STOPPED) == asked.key
    partial: Hashable = ("partial", asked.key)
    key = partial if stopped else asked.key
    works: dict[Hashable, Work] = {} if stopped else {key: asked.work}
    if stopped and st.session_state.get(PARTIAL) and asked.closing is not None:
        works = {key: asked.closing}
    queue().want(runs.owner(), works)
    found: Findings | Failed | None = queue().results.get(key)
    if isinstance(found, Failed):
        message("error", found.reason)
        if st.button("Try again", key="retry-run"):
            queue().results.drop(key)
            st.rerun()
    elif found is None:
        _halted(asked) if stopped and not works else _pending(key, asked)
    else:
        if stopped:
            _halted(asked)
        findings.show(key, found, asked.folder, asked.one)


def _pending(key: Hashable, asked: Run) -> None:
    @st.fragment(run_every=0.5)
    def watch() -> None:
        queue().renew(runs.owner())
        now = queue().state(key)
        if now is None:
            st.rerun()
        picker.progress(f"{counted(asked.total)}: {now.progress.done} of {asked.total} done", now)
        if st.button("Stop", key="stop-run"):
            st.session_state[STOPPED], st.session_state[PARTIAL] = asked.key, False
            st.session_state.pop(ACTIVE, None)
            st.rerun()

    watch()


def _halted(asked: Run) -> None:
    """A run that was stopped: it can go on, or be reported as far as it got."""
    message("info", "the run was stopped; what is done is kept, and the same list goes on from there")
    left, right, _ = st.columns([1, 1, 3])
    if left.button("Go on", type="primary", key="resume-run", width="stretch"):
        st.session_state[STOPPED] = None
        st.session_state[ACTIVE] = asked.key
        queue().results.drop(("partial", asked.key))
        st.rerun()
    if right.button("Report what is done", key="partial-run", width="stretch"):
        st.session_state[PARTIAL] = True
        st.rerun()


def counted(count: int) -> str:
    return "1 prompt" if count == 1 else f"{count} prompts"
