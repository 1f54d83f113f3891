"""One card a lens, in a grid with a shared depth axis: its chart, its receipt, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from lenses import charts, tables
from lenses.attribution import Claim, Verdict
from lenses.onset import Rule
from lenses.receipt import receipt
from lenses.registry import LENSES
from lenses.ui.answers import jobs
from lenses.ui.picker import progress, who
from lenses.ui.text import badge, escaped, message, small

if TYPE_CHECKING:
    from lenses.lens import Lens
    from lenses.outcome import Result
    from lenses.ui.answers import Answer

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
    Claim.ACROSS: "Blue adds to the target, orange takes away.",
    Claim.LEVEL: "Each point is a reading of that depth by itself.",
    Claim.WITHIN: "Pale bars: the depth's total. Narrow bars: the target position's part of it. "
    "Dashed: what each total should be.",
}


def grid(answer: Answer, rule: Rule) -> None:
    """Every lens of the answer, the finished ones first where they were asked first."""
    onsets = tables.onsets(answer.comparison, rule)
    shown: list[Result | Lens] = [*answer.comparison.results, *answer.pending, *(f[0] for f in answer.failed)]
    reasons = {lens.name: reason for lens, reason in answer.failed}
    order = list(LENSES)
    shown.sort(key=lambda item: order.index(_name(item)) if _name(item) in order else len(order))
    for start in range(0, len(shown), ACROSS):
        columns = st.columns(ACROSS, gap="small")
        for column, item in zip(columns, shown[start : start + ACROSS], strict=False):
            with column, st.container(border=True, key=f"card-{_name(item)}"):
                if _name(item) in reasons:
                    _refused(item, reasons[_name(item)])
                elif hasattr(item, "attribution"):
                    _card(answer, item, onsets.get(_name(item)))
                else:
                    _pending(answer, item)


def _card(answer: Answer, result: Result, onset: int | None) -> None:
    a, verdict = result.attribution, result.additivity.verdict
    st.html(
        f'<div class="ll-title"><span>{escaped(result.title)}</span>'
        f"{badge(WORDS[verdict], COLOURS[verdict])}</div>"
    )
    st.altair_chart(
        charts.card(answer.comparison, result, surface=answer.surface, onset=onset),
        width="stretch", key=f"chart-{a.lens}",
        alt=f"{result.title}: {receipt(result)}",
    )  # fmt: skip
    st.html(f'<p class="ll-receipt"><b>Receipt</b> {escaped(receipt(result))}.</p>')
    why = LENSES[a.lens].card.adds_up if a.lens in LENSES else ""
    small(f"{LEGENDS[a.claim]} {why}")


def _refused(lens: Result | Lens, reason: str) -> None:
    st.html(f'<div class="ll-title"><span>{escaped(lens.title)}</span></div>')
    message("warning", reason)


def _pending(answer: Answer, lens: Lens) -> None:
    """A lens that is still being computed: how far it is, and a way to do without it."""
    from lenses.ui.answers import state_of

    st.html(f'<div class="ll-title"><span>{escaped(lens.title)}</span></div>')

    @st.fragment(run_every=0.5)
    def watch() -> None:
        jobs().renew(who())
        now = state_of(answer, lens)
        if now is None:
            st.rerun()
        else:
            progress("Computing", now)
            if st.button("Do without it", key=f"cancel-{lens.name}"):
                st.session_state["lenses"] = [n for n in st.session_state["lenses"] if n != lens.name]
                st.rerun()

    watch()


def _name(item: Result | Lens) -> str:
    return item.attribution.lens if hasattr(item, "attribution") else item.name
