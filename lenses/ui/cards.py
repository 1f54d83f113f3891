"""One card a lens, in a grid with a shared depth axis: its chart, its receipt, and why."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from lenses.attribution import Form, Verdict
from lenses.onset import Name
from lenses.receipt import receipt
from lenses.registry import LENSES
from lenses.ui.answers import jobs
from lenses.ui.drawing import draw
from lenses.ui.picker import progress, who
from lenses.ui.text import badge, escaped, message, small

if TYPE_CHECKING:
    from lenses.attribution import Attribution
    from lenses.outcome import Result
    from lenses.ui.answers import Answer, Card

ACROSS = 3
"""Cards beside each other on a wide screen; a narrow one stacks them."""

COLOURS = {
    Verdict.EXACT: "#2e7d4f",
    Verdict.CONVERGED: "#2e7d4f",
    Verdict.NOT_CONVERGED: "#a86400",
    Verdict.NOT_CLAIMED: "#6f7480",
    Verdict.BROKEN: "#b3261e",
}
WORDS = {
    Verdict.EXACT: "adds up exactly",
    Verdict.CONVERGED: "adds up within 1 %",
    Verdict.NOT_CONVERGED: "not converged",
    Verdict.NOT_CLAIMED: "no claim to check",
    Verdict.BROKEN: "BROKEN: does not add up",
}
LEGENDS = {
    Form.SHARE: "Blue adds to the target, orange takes away.",
    Form.LEVEL: "Each point is a reading of that depth by itself.",
    Form.TOTAL: "Pale bars: the depth's total. Narrow bars: the target position's part of it. "
    "Dashed: what each total should be.",
    Form.DROP: "Blue: the target loses without it; orange: it gains. Blank: a block that has no such part.",
}

HALVES = (
    "Pale bars: the block's share. Narrow bars: what attention (green, left) and the MLP (purple, right) "
    "gave of it; where a block runs both at once, that attention is counted first is a convention."
)
NO_HALVES = "This model's blocks have no attention and MLP that can be told apart: their shares stay whole."


def grid(answer: Answer, rule: Name) -> None:
    """Every lens of the answer, in the order of the registry; what is not ready fills in later."""
    onsets = answer.comparison.onsets(rule)
    for start in range(0, len(answer.cards), ACROSS):
        columns = st.columns(ACROSS, gap="small")
        for column, card in zip(columns, answer.cards[start : start + ACROSS], strict=False):
            with column, st.container(border=True, key=f"card-{card.lens.name}"):
                if card.result is not None:
                    _ready(answer, card.key, card.result, onsets.get(card.lens.name))
                else:
                    _missing(card)


def _ready(answer: Answer, key: Hashable, result: Result, onset: int | None) -> None:
    a, verdict = result.attribution, result.additivity.verdict
    st.html(
        f'<div class="ll-title"><span>{escaped(result.title)}</span>'
        f"{badge(WORDS[verdict], COLOURS[verdict])}</div>"
    )
    draw(
        ("card", key, onset),
        lambda: _chart(answer, result, onset),
        name=f"chart-{a.lens}", alt=f"{result.title}: {receipt(result)}",
    )  # fmt: skip
    st.html(f'<p class="ll-receipt"><b>Receipt</b> {escaped(receipt(result))}.</p>')
    why = LENSES[a.lens].card.adds_up if a.lens in LENSES else ""
    small(" ".join([LEGENDS[a.form], *_halves(a), why]))


def _halves(a: Attribution) -> list[str]:
    """What to say of attention and MLP, where they were asked for."""
    if a.halves is None:
        return []
    return [HALVES if np.isfinite(a.halves).any() else NO_HALVES]


def _chart(answer: Answer, result: Result, onset: int | None) -> Any:
    from lenses import charts

    return charts.card(answer.comparison, result, surface=answer.surface, onset=onset)


def _missing(card: Card) -> None:
    st.html(f'<div class="ll-title"><span>{escaped(card.lens.title)}</span></div>')
    if card.refusal:
        message("warning", card.refusal)
        if st.button("Try again", key=f"retry-{card.lens.name}"):
            jobs().results.drop(card.key)
            st.rerun()
    elif card.stopped:
        small("You chose to do without this one.")
        if st.button("Compute it after all", key=f"again-{card.lens.name}"):
            st.session_state["stopped"] -= {card.key}
            st.rerun()
    else:
        _pending(card)


def _pending(card: Card) -> None:
    """A lens that is still being computed: how far it is, and a way to do without it."""

    @st.fragment(run_every=0.5)
    def watch() -> None:
        jobs().renew(who())
        now = jobs().state(card.key)
        if now is None:
            st.rerun()
        else:
            progress("Computing", now)
            if st.button("Do without it", key=f"stop-{card.lens.name}"):
                st.session_state["stopped"] |= {card.key}
                st.rerun()

    watch()
