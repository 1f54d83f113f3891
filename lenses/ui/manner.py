"""How a prompt list is to be read: what was found out can be overruled."""

from __future__ import annotations

from typing import Any

import streamlit as st

from lenses.prompts import Manner, PromptList
from lenses.ui.text import label, small

ENCODINGS = {
    "found out": None, "UTF-8": "utf-8", "UTF-16": "utf-16", "Windows-1252": "cp1252", "Latin-1": "latin-1",
    "Mac Roman": "mac_roman", "Shift JIS": "shift_jis", "GB 18030": "gb18030", "Big5": "big5",
}  # fmt: skip
DELIMITERS = {
    "found out": None, "comma": ",", "semicolon": ";", "tab": "\t", "bar": "|", "none (one column)": "",
}  # fmt: skip
HEADERS = {"found out": None, "yes": True, "no": False}
FOUND_OUT = "found out"


def current() -> Manner:
    """What the visitor overruled."""
    state = st.session_state
    names = [state.get(f"list_{field}") or FOUND_OUT for field in ("prompt", "target")]
    return Manner(
        ENCODINGS[state.get("list_encoding") or FOUND_OUT],
        DELIMITERS[state.get("list_delimiter") or FOUND_OUT],
        HEADERS[state.get("list_header") or FOUND_OUT],
        *(None if name == FOUND_OUT else name for name in names),
    )


def forget() -> None:
    """Start again with what is found out."""
    for key in ("encoding", "delimiter", "header", "prompt", "target"):
        # Not taken away: a browser would then send its old value once more.
        st.session_state[f"list_{key}"] = FOUND_OUT


def controls(listed: PromptList | None) -> None:
    """The widgets by which a list is read in another way than was found out."""
    small("To read it differently:")
    columns = st.columns(5)
    named = [FOUND_OUT, *(listed.columns if listed else ())]
    with columns[0]:
        _pick("Encoding", list(ENCODINGS), "list_encoding")
    with columns[1]:
        _pick("Delimiter", list(DELIMITERS), "list_delimiter")
    with columns[2]:
        _pick("Header", list(HEADERS), "list_header")
    for column, field in zip(columns[3:], ("prompt", "target"), strict=True):
        with column:
            typed = st.session_state.get(f"list_{field}")
            more = [typed] if typed and typed not in named else []
            _pick(f"Column of the {field}s", [*named, *more], f"list_{field}", new=True)


def _pick(title: str, options: list[str], key: str, new: bool = False) -> None:
    more: dict[str, Any] = {"accept_new_options": True} if new else {}
    st.selectbox(
        title, options, key=key, persist_state="session",
        format_func=lambda name: name if name == FOUND_OUT or not new else label(name), **more,
    )  # fmt: skip
