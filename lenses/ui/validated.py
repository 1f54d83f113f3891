"""What a validation came to, on its page: the same sentences and charts as in its file."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from lenses.ui.downloads import downloads
from lenses.ui.drawing import draw
from lenses.ui.text import escaped, small

if TYPE_CHECKING:
    from collections.abc import Hashable

    from lenses.ui.runs import Run
    from lenses.validating import Validated


def show(key: Hashable, found: Validated, run: Run) -> None:
    """What came of a run: the same sentences and charts as in its page."""
    from lenses import charts, validation_words
    from lenses.report import VALIDATION_FILES
    from lenses.report.ranked import lines
    from lenses.validation import CONTROLS

    result, scores = found.validation, found.validation.scores

    def chart(name: str, make: Any, alt: str) -> None:
        draw((name, key), make, name=name, alt=alt)

    downloads(run.files, VALIDATION_FILES, "validation")
    told = "".join(f"<li>{escaped(sentence)}</li>" for sentence in validation_words.sentences(found))
    st.html(f'<ul class="ll-told">{told}</ul>')
    st.subheader("How well do they rank the blocks?", anchor=False)
    small("Spearman's rank correlation of scores and drops, its mean over prompts with its 95 % interval.")
    left, right = st.columns(2, gap="medium")
    for column, by, kept in ((left, "blocks", "subset"), (right, "subset", "blocks")):
        with column:
            rows = result.rows[result.rows[kept] == "all"]
            chart(f"forest-{by}", partial(charts.forest, rows, by), f"Mean rank correlations by {by}")
    with st.expander("All numbers"):
        st.dataframe(lines(result.rows), hide_index=True, width="stretch", key="validation-rows",
                     column_config={"group": None})  # fmt: skip
    st.subheader("Every block of every prompt", anchor=False)
    small(
        "Point at a dot to see all blocks of its prompt; a click keeps them. Blue helps the word, orange is "
        "in its way."
    )
    named = {lens: title for lens, title in scores.titles.items() if lens not in CONTROLS}
    first = next(iter(named))
    lens = st.segmented_control(
        "Method", list(named), default=first, key="validate_shown", label_visibility="collapsed",
        format_func=lambda name: named[name],
    ) or first  # fmt: skip
    left, right = st.columns(2, gap="medium")
    with left:
        small("Each dot is a block of a prompt: the score across, the drop up.")
        chart(f"scatter-{lens}", partial(charts.scatter, scores, lens), f"Scores of {named[lens]} and drops")
        curves = result.curves[result.curves["blocks"] == "all"]
        small("As more of the highest scores are taken: how many are on blocks that matter, and of how many.")
        chart("recall", partial(charts.recall, curves, scores.titles), "Precision and recall")
    with right:
        small("What skipping each block costs: a row a prompt, a column a block.")
        chart("map-drops", partial(charts.blocks_map, scores), "What skipping each block costs")
        small(f"What {named[lens]} says of them.")
        chart(f"map-{lens}", partial(charts.blocks_map, scores, lens), f"Scores of {named[lens]}")
    with st.expander("Method, and what this cannot say"):
        for text in (*validation_words.METHOD, *validation_words.CAVEATS):
            small(text)
