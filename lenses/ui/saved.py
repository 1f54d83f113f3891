"""A report that was saved: its `report.json`, chosen again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from lenses.ui import runs
from lenses.ui.runs import OPENED
from lenses.ui.text import message, small

if TYPE_CHECKING:
    from lenses.report import Archived


def choose() -> None:
    """The widgets by which a `report.json` out of an earlier run is opened."""
    small("Choose the report.json of a run, or its whole folder: everything is shown as if just computed.")
    left, right = st.columns(2, gap="medium")
    left.file_uploader("report.json", type="json", key="report_file", on_change=_take, args=("report_file",))
    right.file_uploader(
        "… or the folder", type="json", accept_multiple_files="directory", key="report_folder",
        on_change=_take, args=("report_folder",),
    )  # fmt: skip
    data: bytes | str | None = st.session_state.get("report_data")
    if isinstance(data, str):
        message("error", data)
    elif data is not None:
        run = runs.opened(_archived(data), hashlib.sha256(data).hexdigest())
        if getattr(st.session_state.get(OPENED), "key", None) != run.key:
            st.session_state[OPENED] = run


def _take(widget: str) -> None:
    """What was chosen last is shown, by whichever widget."""
    state = st.session_state
    state.pop(OPENED, None)
    files = state[widget] if isinstance(state[widget], list) else [state[widget]]
    found = [f for f in files if f is not None and (widget == "report_file" or _is_report(f.name))]
    if found:
        state["report_data"] = found[0].getvalue()
    elif any(files):
        state["report_data"] = "there is no report.json in this folder: choose that of a finished run"
    else:
        state["report_data"] = None


def _is_report(name: str) -> bool:
    return Path(name).name == "report.json"


@st.cache_resource(show_spinner="opening the report", max_entries=2, ttl=3600)
def _archived(data: bytes) -> Archived:
    from lenses import report

    return report.read(data)
