"""The first page: one text, one word, all methods side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from lenses import outcome, surface
from lenses.errors import LensesError
from lenses.headline import headline
from lenses.registry import LENSES
from lenses.ui import answers, cards, controls, link, options, parts, picker
from lenses.ui.answers import Answer, Ask, Card
from lenses.ui.text import badge, message, small
from lenses.ui.text import headline as say

if TYPE_CHECKING:
    from lenses.onset import Rule
    from lenses.ui.models import Held

INTRO = (
    "A language model builds its next word block by block. Each card below is one method's answer to: at "
    "which depth was this word decided, and how much did each block give? The receipt under a chart says "
    "what has to add up, and whether it does."
)


def page(assets: Path) -> None:
    """Draws the page: the example until the model is there, then the visitor's own question."""
    held = picker.current()
    st.title("Where was this word decided?", anchor=False)
    small(INTRO)
    link.problems()
    controls.text_form()
    if held is None:
        _example(assets)
        return
    ask = Ask(st.session_state["prompt"], st.session_state["chat"])
    try:
        show(held, ask)
    except LensesError as error:
        message("error", str(error))


def show(held: Held, ask: Ask) -> None:
    """A question's controls and its answer; raises `LensesError` where it can't be asked."""
    st.session_state.setdefault("stopped", frozenset())
    head = st.container()
    with st.container(horizontal=True):
        pass
    text = answers.prompt(held, ask)
    place, rule = _row(text)
    ask = Ask(ask.prompt, ask.chat, place if ask.position is None else ask.position, ask.answer)
    reading = answers.reading(held, ask)
    wanted = controls.target(held, reading)
    asked = answers.question(held, ask, wanted)
    lenses = options.chosen(n for n in LENSES if n in st.session_state["lenses"])
    link.leave(wanted, place)
    if not lenses:
        message("info", "choose at least one method above, and press Run")
        return
    answer = answers.answer(held, ask, asked, lenses, picker.who(), st.session_state["stopped"])
    with head:
        _headline(answer, "")
        for warning in answer.comparison.warnings:
            message("warning", warning)
    draw(answer, rule)


def _row(text: object) -> tuple[int | None, Rule]:
    raise NotImplementedError


def draw(answer: Answer, rule: Rule) -> None:
    """The cards and what stands below them."""
    cards.grid(answer, rule)
    if answer.comparison.results:
        parts.ledger_and_agreement(answer)
        parts.table(answer.comparison)
        parts.take_away(answer, rule)


def _example(assets: Path) -> None:
    """The precomputed comparison, drawn before anything heavy is imported."""
    data = json.loads((assets / "example.json").read_text(encoding="utf-8"))
    found = outcome.read(data["comparison"])
    shown = tuple(Card(LENSES[r.attribution.lens](), r.attribution.lens, r) for r in found.results)
    answer = Answer(found, surface.read(data["surface"]), shown)
    _headline(answer, "precomputed example")
    draw(answer, "moves")


def _headline(answer: Answer, mark: str) -> None:
    if mark:
        st.html(badge(mark, "#6f7480"))
    say(headline(answer.comparison))
