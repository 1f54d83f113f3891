"""A prompt list on a page: where it comes from, how it was read, and what it holds."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import streamlit as st

from lenses import prompts
from lenses.errors import BadPromptFile, LensesError
from lenses.prompts import Manner, PromptList
from lenses.tokens import visible
from lenses.ui import manner
from lenses.ui.runs import ACTIVE
from lenses.ui.settings import settings
from lenses.ui.text import message, small

SHOWN = 8
"""Rows in the preview, and problems that are listed at once."""
LIST = "list"
"""Where a session keeps the name and the bytes of its list: an upload is gone on another page."""


def choose(assets: Path, slot: str = ACTIVE) -> PromptList | None:
    """The visitor's list, or None before there is one; what is wrong with it is said. Its preview is folded
    while the run in `slot` is of it."""
    examples = sorted(path.name for path in (assets / "prompts").glob("*.csv"))
    left, right = st.columns([3, 2], gap="medium")
    with left:
        st.file_uploader(
            "Prompt list: CSV, TSV, TXT, JSONL, JSON, XLSX or Parquet, with a column “prompt”",
            key=_uploader(), type=list(prompts.ENDINGS), on_change=_uploaded,
        )  # fmt: skip
    with right:
        st.selectbox(
            "… or one that comes along", examples, index=None, key="list_example",
            placeholder="facts, code, opposites …", format_func=lambda name: name.removesuffix(".csv"),
            on_change=_example, args=(assets,), persist_state="session",
        )  # fmt: skip
        small(
            "Columns: prompt, and if you like target (the word to explain; a space before it counts), id, "
            "group. All others travel along."
        )
    chosen: tuple[str, bytes] | None = st.session_state.get(LIST)
    if chosen is None:
        return None
    return _read(*chosen, slot)


def _read(name: str, data: bytes, slot: str) -> PromptList | None:
    run = st.session_state.get(slot)
    unfold = run is None or run.name != name  # of a list that runs, its report is what counts
    try:
        listed = _parsed(data, name, manner.current())
    except LensesError as error:
        message("error", str(error))
        manner.controls(None)
        return None
    message("good" if not listed.bad else "info", f"{name}: {listed.described()}")
    for note in listed.notes:
        message("warning", note)
    with st.expander("The list", expanded=unfold, key=f"the-list-{unfold}"):
        _preview(listed)
        _problems(listed)
        manner.controls(listed)
    return listed


@st.cache_resource(show_spinner="reading the list", max_entries=8, ttl=3600)
def _parsed(data: bytes, name: str, read_as: Manner) -> PromptList:
    listed, most = prompts.read(data, name, read_as), settings().max_rows
    if most is not None and len(listed.rows) > most:
        raise BadPromptFile(
            f"{name} has {len(listed.rows)} rows and this page takes {most}: leave some out, or run "
            "`lenses report` on a machine of your own"
        )
    return listed


def _preview(listed: PromptList) -> None:
    """The first rows as they will be asked, spaces at the ends to be seen."""
    lines = [
        {
            "row": row.row, "prompt": visible(row.prompt), "target": visible(row.target or ""),
            "id": row.id, "group": row.group, **{f"{name} ": text for name, text in row.extra},
        }
        for row in listed.rows[:SHOWN]
    ]  # fmt: skip
    frame = pd.DataFrame(lines)
    empty = [name for name in ("target", "id", "group") if not (frame[name] != "").any()]
    st.dataframe(frame.drop(columns=empty), hide_index=True, width="stretch", key="preview")
    if len(listed.rows) > SHOWN:
        small(f"The first {SHOWN} of {len(listed.rows)} rows.")


def _problems(listed: PromptList) -> None:
    for row in listed.bad[:SHOWN]:
        message("warning", row.problem)
    if len(listed.bad) > SHOWN:
        small(f"… and {len(listed.bad) - SHOWN} more rows that can't be run; all are in the report.")


def _uploader() -> str:
    """The key of the upload's widget: a new one, which is empty, when an example takes its place."""
    return f"list_file_{st.session_state.get('list_uploads', 0)}"


def _uploaded() -> None:
    file = st.session_state[_uploader()]
    st.session_state["list_example"] = None
    if file is not None:
        _take(file.name, file.getvalue())
    else:
        st.session_state.pop(LIST, None)


def _example(assets: Path) -> None:
    name = st.session_state["list_example"]
    if name is not None:
        st.session_state["list_uploads"] = 1 + st.session_state.get("list_uploads", 0)
        _take(name, (assets / "prompts" / name).read_bytes())


def _take(name: str, data: bytes) -> None:
    """Another list: nothing of how the last one was read holds for it."""
    st.session_state[LIST] = (name, data)
    manner.forget()
