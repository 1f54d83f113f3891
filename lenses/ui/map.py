"""The map: one method over every token of a text, and, by a click, all methods at one of them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import streamlit as st

from lenses.errors import LensesError
from lenses.registry import LENSES
from lenses.ui import answers, compare, link, options, picker, preview
from lenses.ui.answers import Ask, jobs
from lenses.ui.drawing import draw
from lenses.ui.jobs import Failed
from lenses.ui.text import message, small

if TYPE_CHECKING:
    from lenses.depth_map import DepthMap
    from lenses.ui.shelf import Held

INTRO = (
    "Every column is a token of the text, every row a depth with the last on top. The colour says what that "
    "depth gave to the token that follows. Click a cell or a token to see all methods there."
)


def page() -> None:
    """Draws the page; the map itself is made in the background."""
    held = picker.current()
    st.title("Every token, every depth", anchor=False)
    small(INTRO)
    link.problems()
    _form()
    if held is None:
        message("info", "the map comes as soon as the model in the sidebar is loaded")
    else:
        try:
            _show(held)
        except LensesError as error:
            message("error", str(error))
    picker.choose()


def _form() -> None:
    with st.form("map", border=True):
        st.text_area("Prompt", key="prompt", height=70, persist_state="session")
        columns = st.columns([2, 2, 2, 1], vertical_alignment="bottom")
        columns[0].selectbox(
            "Method", list(LENSES), key="map_lens", persist_state="session",
            format_func=lambda name: LENSES[name].title,
        )  # fmt: skip
        columns[1].number_input(
            "Tokens the model may add", 0, link.LONGEST, key="answer_tokens", persist_state="session",
            help="Greedy: each is the model's most likely next token.",
        )  # fmt: skip
        columns[2].toggle("Chat template", key="chat", persist_state="session")
        columns[3].form_submit_button("Run", type="primary", width="stretch")


def _show(held: Held) -> None:
    state = st.session_state
    options.controls([state["map_lens"]], live=True)
    (lens,) = options.chosen([state["map_lens"]]) or (None,)
    if lens is None:
        return
    ask, count = Ask(state["prompt"], state["chat"]), state["answer_tokens"]
    answers.prompt(held, ask, more=count)  # refuse at once what can't be read
    key = ("map", held.serial, ask, lens, count)
    if state.get("map_stopped") == key:
        _stopped()
        return
    jobs().want(f"{picker.who()}/map", {key: answers.map_work(held, ask, lens, count)})
    found = jobs().results.get(key)
    if isinstance(found, Failed):
        message("error", found.reason)
        if st.button("Try again", key="retry-map"):
            jobs().results.drop(key)
            st.rerun()
    elif found is None:
        _pending(key)
    else:
        _drawn(held, ask, key, found)


def _pending(key: Hashable) -> None:
    @st.fragment(run_every=0.5)
    def watch() -> None:
        jobs().renew(f"{picker.who()}/map")
        now = jobs().state(key)
        if now is None:
            st.rerun()
        picker.progress("Mapping", now)
        if st.button("Stop", key="stop-map"):
            st.session_state["map_stopped"] = key
            st.rerun()
        if now.progress.preview is not None:
            preview.show(key, now.progress.preview)

    watch()


def _stopped() -> None:
    jobs().want(f"{picker.who()}/map", {})
    message("info", "the map was stopped")
    if st.button("Start again", key="again-map"):
        del st.session_state["map_stopped"]
        st.rerun()


def _drawn(held: Held, ask: Ask, key: Hashable, found: DepthMap) -> None:
    state = st.session_state
    columns = st.columns(3, vertical_alignment="bottom")
    stride = columns[0].select_slider("Every … depth", [1, 2, 3, 4, 6], key="stride", persist_state="session")
    threshold = columns[1].select_slider(
        "Leave blank below", [0.0, 0.001, 0.01, 0.05, 0.1], key="threshold", persist_state="session"
    )
    flipped = columns[2].toggle("Depths across", key="flipped", persist_state="session")
    chosen = state.get("map_position")
    chosen = chosen if chosen is not None and chosen < len(found.columns) else None
    with st.container(key="map"):
        event = draw(
            ("map", key, stride, threshold, flipped, chosen),
            lambda: _chart(found, stride, threshold, flipped, chosen),
            name=f"heat-{hash(key)}", alt=f"{found.title} over the tokens of the text", on_select="rerun",
            width="content",
        )  # fmt: skip
    clicked = _clicked(event)
    if clicked is not None and clicked != chosen:
        state["map_position"], state["start_target"] = clicked, found.columns[clicked].target.id
        st.rerun()
    for warning in found.warnings:
        message("warning", warning)
    if chosen is None:
        message("info", "click a cell or a token to see all methods there")
        return
    added = tuple(found.prompt.ids[found.answer_from :]) if found.answer_from is not None else ()
    compare.show(held, Ask(ask.prompt, ask.chat, chosen, added), without=[state["map_lens"]])


def _chart(found: DepthMap, stride: int, threshold: float, flipped: bool, chosen: int | None) -> Any:
    from lenses import charts

    return charts.heat(found, stride=stride, threshold=threshold, flipped=flipped, chosen=chosen)


def _clicked(event: Any) -> int | None:
    """The position of the cell or token that was clicked, if any."""
    points = event.selection.get("pick", []) if event else []
    return int(points[0]["position"]) if points else None
