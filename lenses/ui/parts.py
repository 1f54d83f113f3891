"""What stands below the cards: the ledger, the agreement, the table, and what can be taken away."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from lenses import charts, tables
from lenses.onset import Name
from lenses.receipt import place
from lenses.ui.drawing import draw
from lenses.ui.saving import offer
from lenses.ui.text import small

if TYPE_CHECKING:
    from lenses.outcome import Comparison, Result
    from lenses.ui.answers import Answer

FOLD = 0.01
"""Steps below this part of the largest are put together on demand."""


def ledger_and_agreement(answer: Answer) -> None:
    """The account of the probability, and how alike the methods rank the depths."""
    left, right = st.columns([3, 2], gap="medium")
    books = answer.comparison.accounts
    keys = tuple(card.key for card in answer.cards if card.result is not None)
    with left:
        st.subheader("The ledger", anchor=False)
        if books:
            small(
                f"From what the path's start reads to the model's own {books[0].attribution.unit.value}, "
                "block by block. Blue steps go up, orange ones down; the last bar is where they end."
            )
            fold = st.toggle(
                f"Put small steps together (below {FOLD:.0%} of the largest)", value=True, key="fold"
            )
            draw(
                ("ledger", keys, fold),
                lambda: charts.ledger(books[0], fold=FOLD if fold else 0.0), name="ledger",
                alt="A waterfall of the target's probability, from the start of the path to the end",
            )  # fmt: skip
        else:
            small("Choose IG-Lens to see the probability as one account.")
    with right:
        st.subheader("Agreement", anchor=False)
        if len(answer.comparison.results) > 1:
            small(
                "Do the methods rank the depths alike? Spearman's rank correlation of their values, depth by "
                "depth: 1 is the same order, −1 the reverse. Levels are compared as levels."
            )
            draw(
                ("agreement", keys), lambda: charts.agreement(answer.comparison), name="agreement",
                alt="Rank correlations between the methods",
            )  # fmt: skip
        else:
            small("Choose at least two methods to compare them.")


def table(comparison: Comparison) -> None:
    """Depth by depth, a column a method; sorts by a click on a column's head."""
    st.subheader("Side by side", anchor=False)
    frame = _named(comparison)
    st.dataframe(
        frame, width="stretch", height=280, hide_index=True, placeholder="–",
        column_config={
            name: st.column_config.NumberColumn(format="%.6g") for name in frame.columns if "(" in name
        },
    )  # fmt: skip


def take_away(answer: Answer, rule: Name) -> None:
    """Every chart as a picture, the table and the comparison as files, the page as a link."""
    st.subheader("Take it away", anchor=False)
    pictures = _pictures(answer, rule)
    name = st.selectbox("Chart", list(pictures), key="picture") or next(iter(pictures))
    chart, title = pictures[name], f"{name} — {answer.comparison.model['name']}"
    columns = st.columns(4)
    for column, kind in zip(columns, ("png", "svg"), strict=False):
        mime, picture = {"png": "image/png", "svg": "image/svg+xml"}[kind], _picture(chart, kind, title)
        offer(column, f"Chart as {kind.upper()}", picture, f"{_file(name)}.{kind}", mime, f"save-{kind}")
    found = answer.comparison
    offer(columns[2], "Table as CSV", partial(_csv, found), "lenses.csv", "text/csv", "save-csv")
    offer(
        columns[3], "Comparison as JSON", partial(_json, found), "lenses.json", "application/json",
        "save-json",
    )  # fmt: skip
    small("The address of this page holds the model, the prompt, the word and all options: send it to share.")


def _named(comparison: Comparison) -> Any:
    """The table with the methods' titles and units, and each depth's name."""
    heads = {r.attribution.lens: f"{r.title} ({r.attribution.unit.value})" for r in comparison.results}
    frame = tables.wide(comparison).rename(columns=heads).reset_index()
    frame.insert(1, "which is", frame["depth"].map(place))
    return frame


def _pictures(answer: Answer, rule: Name) -> dict[str, Callable[[], Any]]:
    """Every chart of the page by its name, made when it is asked for."""
    found, onsets = answer.comparison, answer.comparison.onsets(rule)

    def card(result: Result) -> Callable[[], Any]:
        onset = onsets.get(result.attribution.lens)
        return lambda: charts.card(found, result, onset=onset, width=charts.WIDTH)

    pictures = {result.title: card(result) for result in found.results}
    if books := found.accounts:
        pictures["The ledger"] = lambda: charts.ledger(books[0], fold=FOLD, width=charts.WIDTH)
    if (setting_in := found.setting_in) is not None:
        pictures["Where it sets in"] = lambda: charts.setting_in(
            setting_in, found.model["blocks"], width=charts.WIDTH
        )
    pictures["Agreement"] = lambda: charts.agreement(found, width=charts.WIDTH)
    return pictures


def _picture(make: Callable[[], Any], kind: str, title: str) -> Callable[[], bytes]:
    return lambda: charts.save(make(), "png" if kind == "png" else "svg", title)


def _csv(comparison: Comparison) -> bytes:
    """The table, with the mark by which Excel knows UTF-8."""
    table: str = _named(comparison).to_csv(index=False)
    return table.encode("utf-8-sig")


def _json(comparison: Comparison) -> bytes:
    return json.dumps(comparison.to_dict(), ensure_ascii=False, allow_nan=False, indent=1).encode()


def _file(name: str) -> str:
    return name.lower().replace(" ", "-")
