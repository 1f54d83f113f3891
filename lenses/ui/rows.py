"""Every prompt of a report in a table, and the chosen one as on the page that compares the methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import streamlit as st

from lenses import aggregates
from lenses.headline import headline
from lenses.registry import LENSES
from lenses.tokens import visible
from lenses.ui import cards
from lenses.ui.answers import Answer, Card
from lenses.ui.text import headline as say
from lenses.ui.text import message, small

if TYPE_CHECKING:
    from lenses.findings import Findings, Outcome


def table(found: Findings, one: Callable[[int], Outcome]) -> None:
    """Every prompt in a table; the chosen one's cards below it."""
    st.subheader("All prompts", anchor=False)
    small("Choose a row to see all methods for its prompt; a click on a column's head sorts.")
    why = st.segmented_control(
        "Show", ["all", *aggregates.notable(found), *(["Failures"] if len(found.failed) else [])],
        default="all", key="report_rows", label_visibility="collapsed",
    )  # fmt: skip
    shown = _chosen(found, why or "all")
    frame = shown[["row", "id", "group", "prompt", "target", "probability", "delta", "onset", "verdict",
                   "failure", "warnings"]].assign(
        prompt=shown["prompt"].map(visible), target=shown["target"].map(visible)
    )  # fmt: skip
    empty = [name for name in ("id", "group", "failure", "warnings") if not (frame[name] != "").any()]
    percents = st.column_config.NumberColumn(format="percent")
    event: Any = st.dataframe(
        frame.drop(columns=empty), hide_index=True, width="stretch", height=380, placeholder="–",
        on_select="rerun", selection_mode="single-row", key=f"rows-{why}",
        column_config={
            "probability": percents,
            "delta": st.column_config.NumberColumn("Δp", format="percent"),
            "prompt": st.column_config.TextColumn(width="large"),
        },
    )  # fmt: skip
    chosen = event.selection.rows if event else []
    if chosen and chosen[0] < len(shown):
        _prompt(one(int(shown["row"].iloc[chosen[0]])))


def _chosen(found: Findings, why: str) -> Any:
    if why == "Failures":
        return found.failed
    notable = aggregates.notable(found)
    if why not in notable:
        return found.rows
    return found.rows.set_index("row", drop=False).loc[notable[why]["row"].tolist()]


def _prompt(outcome: Outcome) -> None:
    """One prompt as on the page that compares the methods."""
    from lenses.ui import parts  # which draws: a first page does without

    if outcome.comparison is None:
        message("error", outcome.failure)
        return
    found = outcome.comparison
    say(headline(found))
    for warning in found.warnings:
        message("warning", warning)
    about = (found.provenance["created"], found.prompt.text, found.target)
    shown = tuple(
        Card(LENSES[r.attribution.lens](), (*about, r.attribution.lens), r)
        for r in found.results
        if r.attribution.lens in LENSES
    )
    answer = Answer(found, None, shown)
    cards.grid(answer, "moves")
    parts.ledger_and_agreement(answer)
