"""The report page: a list of prompts in, a run that can be left and gone on with, a report out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from lenses.errors import LensesError
from lenses.prompts.wording import counted
from lenses.registry import LENSES, having, quick
from lenses.ui import lists, options, picker, runs, saved
from lenses.ui.costs import cost
from lenses.ui.running import follow
from lenses.ui.runs import ACTIVE, OPENED
from lenses.ui.text import message, small

if TYPE_CHECKING:
    from lenses.prompts import PromptList
    from lenses.ui.shelf import Held

INTRO = (
    "Give a list of prompts, and get every method's account of every one: what adds up, where the answers "
    "set in, what stands out, and one HTML file to pass on that opens without Python and without a network."
)
NEW, SAVED = "A new report", "Open a saved one"


def page(assets: Path) -> None:
    """Draws the page; runs and reports are made in the background."""
    held = picker.current()
    st.title("A list of prompts, one report", anchor=False)
    small(INTRO)
    what = st.segmented_control(
        "What to do", [NEW, SAVED], default=NEW, key="report_what", label_visibility="collapsed",
        persist_state="session",
    )  # fmt: skip
    try:
        if what == SAVED:
            saved.choose()
        else:
            _new(held, lists.choose(assets))
    except LensesError as error:
        message("error", str(error))
    slot = OPENED if what == SAVED else ACTIVE
    if slot in st.session_state:
        follow(slot)
    if what == SAVED:
        runs.aside()
    picker.choose()


def _new(held: Held | None, listed: PromptList | None) -> None:
    if listed is None:
        return
    if held is None:
        message("info", "the list can be run as soon as the model in the sidebar is loaded")
    else:
        _ask(held, listed)


def _ask(held: Held, listed: PromptList) -> None:
    """What a run needs beside the list, what it will cost, and its button; then the run itself."""
    names = st.pills(
        "Methods", list(LENSES), selection_mode="multi", key="report_lenses",
        default=having(held.decoder, quick()),
        format_func=lambda name: LENSES[name].title, wrap=True, persist_state="session",
    )  # fmt: skip
    with st.expander("Options of the methods"):
        options.controls(names, live=True)
        options.controls(names, live=False)
    lenses = options.chosen(names)
    if not listed.good:
        message("error", "no row of this list can be run")
        return
    if not lenses:
        message("info", "choose at least one method")
        return
    asked, kept = runs.run(held, listed, lenses), st.session_state.get(ACTIVE)
    if kept is not None and kept.key == asked.key:
        return
    left, right = st.columns([1, 4], vertical_alignment="center")
    with left:
        pressed = st.button(
            f"Run {counted(len(listed.good), 'prompt')}", type="primary", width="stretch", key="run-list"
        )
    with right:
        cost(held, listed, lenses)
        if changed := [f"{lens.title}: {text}" for lens in lenses if (text := options.changed(lens))]:
            small(f"With {'; '.join(changed)}.")
    if pressed:
        runs.estimates().want(f"{picker.who()}/estimate", {})
        st.session_state[ACTIVE] = asked
        st.rerun()
