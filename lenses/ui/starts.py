"""Where the path starts: every baseline of the question, its probability, and the shares that it changes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import streamlit as st

from lenses import depth_tables
from lenses.errors import LensesError
from lenses.headline import percent
from lenses.ui.answers import jobs, quickly
from lenses.ui.text import message, small

if TYPE_CHECKING:
    from lenses.audit import Audit
    from lenses.question import Question
    from lenses.ui.shelf import Held

INTRO = (
    "A ledger has to start somewhere, and there is no neutral place. All baselines below share every step "
    "but the first, from the start to depth 1: what a baseline changes is that one share, and with it how "
    "much there is to explain."
)
HEADS = {
    "baseline": "Baseline", "start": "p at the start", "delta": "Δp (points)", "onset": "Onset (paper's)",
    "first": "First share (points)", "variation": "Shares moved (points)", "rank": "Word's rank there",
    "likeliest": "Likeliest there",
}  # fmt: skip
MEANINGS = (
    "embedding: the state of the prompt's own token at depth 0. mean: the mean of the prompt's states there. "
    "zero: a state of zeros, which gives tokens alike the same rank. token and end-of-text: the state of "
    "another token in its place. corpus: the mean over a text, by default the beginning of two old American "
    "ones. Shares moved: half of all differences from the embedding baseline's shares."
)


def starts(held: Held, asked: Question, key: Hashable) -> None:
    """Draws the section, closed at first; the baselines are read when it is opened."""
    section = st.expander("Where does the path start? Every baseline", key="starts", on_change="rerun")
    if not section.open:
        return
    with section:
        small(INTRO)
        token = _token(held, asked)
        try:
            found = _audit(held, asked, token, key)
        except LensesError as error:
            message("error", str(error))
            return
        small(_verdict(found))
        frame = depth_tables.starts(found).rename(columns=HEADS)
        st.dataframe(frame, hide_index=True, width="stretch", height="content")
        for name, why in found.refusals.items():
            message("info", f"{name}: {why}")
        small(MEANINGS)


def _token(held: Held, asked: Question) -> int | None:
    """The token that the visitor would start from; None for none."""
    from lenses.target import read_as

    typed: str = st.text_input(
        "Another token to start from", key="start_token", placeholder="type a word, such as “ the”",
        persist_state="session",
    )  # fmt: skip
    if not typed:
        return None
    try:
        return read_as(held.decoder.tokenizer, asked.prompt, asked.target.position, typed)[0].id
    except LensesError as error:
        message("error", f"{error}; until then, no such baseline is shown")
        return None


def _audit(held: Held, asked: Question, token: int | None, key: Hashable) -> Audit:
    from lenses.audit import audit

    def make() -> Audit:
        with quickly():
            return audit(held.decoder, asked.trace, asked.target, token=token)

    found: Audit = jobs().results.recall(("audit", key, token), make)
    return found


def _verdict(found: Audit) -> str:
    """Whether the baseline matters here, in a sentence."""
    highest = max(found.starts, key=lambda one: one.probability)
    onsets = sorted({one.onset for one in found.starts if one.onset is not None})
    told = f"Here the highest start is {percent(highest.probability)} ({highest.name})"
    if len(onsets) > 1:
        return f"{told}, and the onset depends on the baseline: depth {onsets[0]} to {onsets[-1]}."
    return f"{told}, and the onset is the same from every baseline."
