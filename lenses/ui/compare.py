"""The first page: one text, one word, all methods side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from lenses import outcome
from lenses.errors import LensesError
from lenses.headline import headline
from lenses.registry import LENSES
from lenses.ui import answers, cards, controls, drawing, link, options, picker
from lenses.ui.answers import Answer, Ask, Card
from lenses.ui.picker import PAINTED
from lenses.ui.text import badge, message, small
from lenses.ui.text import headline as say

if TYPE_CHECKING:
    from lenses.onset import Name
    from lenses.question import Question
    from lenses.tokens import Prompt
    from lenses.ui.shelf import Held

INTRO = (
    "A language model builds its next word block by block. Each card below is one method's answer to: at "
    "which depth was this word decided, and how much did each block give? The receipt under a chart says "
    "what has to add up, and whether it does."
)


def page(assets: Path) -> None:
    """Draws the page: the example until the model is there, then the visitor's own question."""
    held = picker.current()
    answers.jobs().want(f"{picker.who()}/map", {})
    st.title("Where was this word decided?", anchor=False)
    small(INTRO)
    form = st.container()
    if held is None:
        _example(assets)  # before the form, so that a browser draws charts while it still loads widgets
    # Nothing can be run on a first page without a model, and a browser takes a second to draw it all.
    whole = held is not None or st.session_state.get(PAINTED, False)
    with form:
        link.problems()
        controls.text_form(whole)
    if held is not None:
        try:
            show(held, Ask(st.session_state["prompt"], st.session_state["chat"]))
        except LensesError as error:
            message("error", str(error))
    if whole:
        picker.choose()


def show(held: Held, ask: Ask, without: Sequence[str] = ()) -> None:
    """A question's controls and its answer; raises `LensesError` where it can't be asked.

    The options of lenses `without` are set elsewhere on the page.
    """
    st.session_state.setdefault("stopped", frozenset())
    head, words, row = st.container(), st.container(), st.container()
    prompt = answers.prompt(held, ask)
    names = [name for name in LENSES if name in st.session_state["lenses"]]
    with row:
        place, rule = _details(prompt, names, ask.position, without)
    ask = replace(ask, position=place)
    with words:
        wanted = controls.target(held, answers.reading(held, ask))
    link.leave(held.choice, wanted, place)
    asked = answers.question(held, ask, wanted)
    lenses = options.chosen(names)
    if not lenses:
        message("info", "choose at least one method above, and press Run")
        return
    answer = answers.answer(held, ask, asked, lenses, picker.who(), st.session_state["stopped"])
    with head:
        say(headline(answer.comparison))
        for warning in answer.comparison.warnings:
            message("warning", warning)
    draw(held, ask, asked, answer, rule)


def _details(
    prompt: Prompt, names: list[str], fixed: int | None, without: Sequence[str]
) -> tuple[int | None, Name]:
    """What is cheap to change: the position unless it is fixed, the onset's rule, and the live options."""
    columns = st.columns(4 if fixed is None else 3)
    with columns[0]:
        position = controls.place(prompt) if fixed is None else fixed
    with columns[-3]:
        rule = controls.rule()
    options.controls(names, live=True, columns=columns[-2:], without=without)
    return position, rule


def draw(held: Held, ask: Ask, asked: Question, answer: Answer, rule: Name) -> None:
    """The cards and what stands below them."""
    from lenses.ui import onsets, parts, pieces, starts, surfacing

    cards.grid(answer, rule)
    if answer.comparison.results:
        pieces.show(answer)
        parts.ledger_and_agreement(answer)
        about = (held.serial, ask, asked.target)
        found = answer.comparison.setting_in
        if found is not None:
            onsets.setting_in(found, held.decoder.blocks, about)
        starts.starts(held, asked, about)
        step = None if found is None else found.depth("largest")
        surfacing.surfacing(held, asked, step, about)
        parts.table(answer.comparison)
        parts.take_away(answer, rule)


def _example(assets: Path) -> None:
    """The precomputed comparison, drawn before anything heavy is imported."""
    data = json.loads((assets / "example.json").read_text(encoding="utf-8"))
    found = outcome.read(data["comparison"])
    shown = tuple(Card(LENSES[r.attribution.lens](), r.attribution.lens, r) for r in found.results)
    for card in shown:
        onset = found.onsets().get(card.lens.name)
        drawing.keep(("card", card.key, onset), data["charts"][card.lens.name])
    st.html(badge("precomputed example", "#6f7480"))
    say(headline(found))
    cards.grid(Answer(found, None, shown), "moves")
