"""A report on a page: the same sentences, tables and charts as in its files, and each prompt by a click."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from lenses import aggregates
from lenses.ui import cards, rows
from lenses.ui.downloads import downloads
from lenses.ui.drawing import draw
from lenses.ui.text import escaped, small

if TYPE_CHECKING:
    from collections.abc import Hashable

    from lenses.findings import Findings, LensFindings, Outcome
    from lenses.ui.runs import Run
    from lenses.validation import Validation

ADDS_UP = {
    "lens": "method", "prompts": "prompts", "exact": "exact", "converged": "converged",
    "not-converged": "not converged", "not-claimed": "not claimed", "broken": "broken",
    "worst": "worst gap", "median": "median gap", "unit": "unit", "claim": "claim",
}  # fmt: skip
MIME = {
    ".html": "text/html", ".json": "application/json", ".csv": "text/csv",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".parquet": "application/vnd.apache.parquet",
}  # fmt: skip


def of_run(key: Hashable, found: Findings, run: Run) -> None:
    """The findings of a run that is done."""
    show(key, found, run.files, run.one)


def show(key: Hashable, found: Findings, folder: Path, one: Callable[[int], Outcome]) -> None:
    """The findings of a run whose files are in `folder`; `one` gives the outcome of a row."""
    from lenses.report import FILES

    downloads(folder, FILES)
    st.html(
        '<ul class="ll-told">'
        + "".join(f"<li>{escaped(s)}</li>" for s in aggregates.sentences(found))
        + "</ul>"
    )
    if len(found.explained):
        _adds_up(found)
        _charts(key, found)
    rows.table(found, one)


def _adds_up(found: Findings) -> None:
    st.subheader("Does it add up?", anchor=False)
    small("Every method says what it claims adds up, and one judge checks it for every prompt.")
    frame = aggregates.additivity(found)[list(ADDS_UP)].rename(columns=ADDS_UP)
    number = st.column_config.NumberColumn(format="%.1e")
    st.dataframe(
        frame, hide_index=True, width="stretch", placeholder="–", key="adds-up",
        column_config={"worst gap": number, "median gap": number},
    )  # fmt: skip


def _charts(key: Hashable, found: Findings) -> None:
    from lenses import charts

    blocks = found.model["blocks"]
    if found.explained["onset"].notna().any():
        st.subheader("Where do the answers set in?", anchor=False)
        small(
            "The onset is the first depth by which half of all movement of the word's probability has "
            "happened, up or down."
        )
        left, right = st.columns(2 if found.groups else [1, 0.001], gap="medium")
        with left:
            draw(
                ("onsets", key),
                lambda: charts.onsets(aggregates.onsets(found), blocks),
                name="onsets",
                alt="Onset depths of all prompts",
            )  # fmt: skip
        with right:
            if found.groups:
                draw(
                    ("onset-groups", key),
                    lambda: charts.onset_groups(aggregates.onset_groups(found), blocks),
                    name="onset-groups",
                    alt="Onset depths by group",
                )  # fmt: skip
    st.subheader("What does each depth give?", anchor=False)
    small("The mean over all prompts; grey lines and the shaded band span the middle half of the prompts.")
    for start in range(0, len(found.lenses), cards.ACROSS):
        columns = st.columns(cards.ACROSS, gap="small")
        for column, lens in zip(columns, found.lenses[start : start + cards.ACROSS], strict=False):
            with column, st.container(border=True):
                st.html(f'<div class="ll-title"><span>{escaped(lens.title)}</span></div>')
                draw(
                    ("band", key, lens.lens), partial(_band, lens, blocks),
                    name=f"band-{lens.lens}", alt=f"{lens.title}: mean over all prompts",
                )  # fmt: skip
    if len(found.lenses) > 1:
        titles = {lens.lens: lens.title for lens in found.lenses}
        st.subheader("Do the methods agree?", anchor=False)
        small("Spearman's rank correlation over depths, its mean over the prompts.")
        draw(
            ("mean-agreement", key), lambda: charts.square(aggregates.agreement(found), titles),
            name="mean-agreement", alt="Mean rank correlations between the methods",
        )  # fmt: skip
    if found.validation is not None:
        _ranked(key, found.validation)


def _ranked(key: Hashable, result: Validation) -> None:
    """How well the methods rank the blocks, where the list was run with ablation."""
    from lenses import charts, validation_words

    st.subheader("Do the methods find the blocks that matter?", anchor=False)
    small(
        "Spearman's rank correlation of a method's scores and the drops without each block: its mean over "
        "the prompts with its 95 % interval. The Validate page says more."
    )
    rows = result.rows[result.rows["subset"] == "all"]
    if rows["spearman"].notna().any():
        draw(("ranked", key), lambda: charts.forest(rows, "blocks"), name="ranked",
             alt="Mean rank correlations of scores and drops")  # fmt: skip
    told = "".join(f"<li>{escaped(sentence)}</li>" for sentence in validation_words.ranked(result))
    st.html(f'<ul class="ll-told">{told}</ul>')


def _band(lens: LensFindings, blocks: int) -> Any:
    from lenses import charts

    return charts.band(aggregates.band(lens), aggregates.summary_of(lens), blocks)
