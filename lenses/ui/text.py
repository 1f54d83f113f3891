"""What users wrote, verbatim: never Markdown, LaTeX, HTML, emoji codes or icons."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

import streamlit as st

from lenses.tokens import visible

KINDS = {
    "error": ("Error", "#c0392b"),
    "warning": ("Note", "#b9770e"),
    "info": ("Info", "#3b7fc4"),
    "good": ("Done", "#2e8b57"),
}
"""The word and the colour of each kind of message; the word says it to those who see no colour."""

CSS = """<style>
.stMainBlockContainer {padding: 4.2rem clamp(1rem, 3vw, 3rem) 3rem}
.st-key-map {overflow-x: auto}
h1 {font-size: 1.9rem !important; padding: 0 !important}
h3 {font-size: 1.25rem !important}
.ll-line {border-left: 4px solid var(--c); background: color-mix(in srgb, var(--c) 9%, transparent);
  padding: .45rem .8rem; border-radius: .3rem; overflow-wrap: anywhere; font-size: .92rem}
.ll-line b {color: var(--c); margin-right: .45rem}
.ll-headline {font-size: 1.22rem; line-height: 1.5; font-weight: 500; overflow-wrap: anywhere; margin: 0}
.ll-small {font-size: .82rem; opacity: .78; line-height: 1.45; overflow-wrap: anywhere; margin: 0}
.ll-receipt {font-size: .84rem; line-height: 1.45; font-variant-numeric: tabular-nums; margin: 0}
.ll-chips {display: flex; flex-wrap: wrap; gap: .25rem; align-items: center; font-size: .85rem}
.ll-chip {font-family: monospace; padding: .05rem .4rem; border-radius: .3rem; unicode-bidi: isolate;
  background: rgba(128, 132, 149, .16); overflow-wrap: anywhere}
.ll-chip.here {background: #3b7fc4; color: white}
.ll-badge {display: inline-block; font-size: .78rem; font-weight: 600; padding: .08rem .5rem;
  border-radius: .7rem; color: white; background: var(--c); white-space: nowrap}
.ll-meaning {margin: 0; font-size: .84rem; line-height: 1.4; overflow-wrap: anywhere}
.ll-meaning i {color: #c2417f; font-style: normal; font-weight: 600; white-space: nowrap}
.ll-meaning div {margin-bottom: .45rem; opacity: .9}
.ll-meaning span {opacity: .75; font-variant-numeric: tabular-nums}
.ll-told {margin: 0; padding-left: 1.2rem; line-height: 1.6; overflow-wrap: anywhere}
.ll-title {display: flex; justify-content: space-between; gap: .5rem; align-items: center; flex-wrap: wrap;
  font-weight: 600}
</style>"""


def escaped(text: str) -> str:
    """The text inside HTML."""
    return html.escape(text, quote=True)


def label(text: str) -> str:
    """The text inside a widget's label or an option, which Streamlit reads as Markdown."""
    shown = visible(text)
    if not shown:
        return "(empty)"
    if ":material" in shown:  # Streamlit rewrites this name even inside code
        return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", shown)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def message(kind: str, text: str) -> None:
    """One sentence in a coloured line that begins with its kind in words."""
    word, colour = KINDS[kind]
    st.html(f'<div class="ll-line" role="alert" style="--c:{colour}"><b>{word}</b>{escaped(text)}</div>')


def headline(text: str) -> None:
    st.html(f'<p class="ll-headline">{escaped(text)}</p>')


def small(text: str) -> None:
    """A quiet line of explanation."""
    st.html(f'<p class="ll-small">{escaped(text)}</p>')


def badge(word: str, colour: str) -> str:
    """HTML of a badge: its word says what its colour does."""
    return f'<span class="ll-badge" style="--c:{colour}">{escaped(word)}</span>'


def chips(lead: str, texts: Iterable[str], here: int | None = None) -> None:
    """Tokens in a row, each in its own box; `here` is the one that counts."""
    boxes = [
        f'<span class="ll-chip{" here" if k == here else ""}">{escaped(visible(text))}</span>'
        for k, text in enumerate(texts)
    ]
    st.html(f'<div class="ll-chips"><span>{escaped(lead)}</span>{"".join(boxes)}</div>')
