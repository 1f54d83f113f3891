"""What a visitor can set: the text and the methods behind one Run button, the target at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from lenses.errors import LensesError
from lenses.headline import percent
from lenses.onset import DEFINITIONS, Name
from lenses.registry import LENSES
from lenses.surface import Ranked
from lenses.tokens import visible
from lenses.ui import answers, options
from lenses.ui.text import chips, label, message

if TYPE_CHECKING:
    from lenses.question import Reading
    from lenses.tokens import Prompt
    from lenses.ui.shelf import Held

LAST = -1  # an option of None would be shown as no choice at all
LIKELY = 10
"""How many of the model's next tokens are offered as targets."""


def text_form(whole: bool) -> None:
    """The text, the methods and, on a `whole` form, their dear options; nothing changes before Run."""
    with st.form("text", border=True):
        st.text_area(
            "Prompt", key="prompt", height=70, persist_state="session",
            help="The text whose next word is explained, exactly as typed: a space at its end counts.",
        )  # fmt: skip
        left, right = st.columns([5, 1], vertical_alignment="bottom")
        with left:
            st.pills(
                "Methods", list(LENSES), selection_mode="multi", key="lenses", persist_state="session",
                format_func=lambda name: LENSES[name].title, wrap=True,
            )  # fmt: skip
        with right:
            st.form_submit_button("Run", type="primary", width="stretch")
        if not whole:
            return
        with st.expander("Options"):
            st.toggle(
                "Chat: send the prompt through the model's chat template", key="chat", persist_state="session"
            )
            options.controls(LENSES, live=False)


def place(prompt: Prompt) -> int | None:
    """The position whose next word is explained; None for the last."""
    count = len(prompt.tokens)
    start = st.session_state.pop("start_position", None)
    if start is not None and start >= count:
        problem = f"position {start} is outside the prompt, whose last is {count - 1}"
        st.session_state["problems"].append(problem)
        message("warning", f"{problem}; it is left out")
    elif start is not None:
        st.session_state["position"] = start if start < count - 1 else LAST
    if st.session_state.get("placed_for") != prompt:
        # A browser knows an option by its label, which holds the token: it has to be told the new one.
        before, st.session_state["placed_for"] = st.session_state.get("position"), prompt
        kept = isinstance(before, int) and before < count - 1
        st.session_state["position"] = before if kept else LAST
    texts = {t.position: f"{t.position}: {visible(t.text)}" for t in prompt.tokens}
    position: int = st.selectbox(
        "Explain the word after", [LAST, *range(count - 1)], key="position", persist_state="session",
        format_func=lambda k: "the last token" if k == LAST else texts[k],
    )  # fmt: skip
    return None if position == LAST else position


def rule() -> Name:
    """By which definition the onset is marked."""
    chosen: Name = st.selectbox(
        "Onset", list(DEFINITIONS), key="rule", format_func=lambda name: DEFINITIONS[name].title,
        persist_state="session",
    )  # fmt: skip
    return chosen


def target(held: Held, reading: Reading) -> str | int | None:
    """The token to explain: one of the likeliest, or what was typed; None for the likeliest."""
    from lenses.question import likeliest

    likely = {r.id: r for r in likeliest(held.decoder, reading, LIKELY)}
    first, state = next(iter(likely)), st.session_state
    here = (held.serial, reading.prompt, reading.position)
    if state.get("picked_for") != here:
        state["picked_for"], state["picked"] = here, None  # another text, another word
    _started(state.pop("start_target", None))
    if state.get("picked") is None and not state.get("typed"):
        state["picked"] = first
    elif state.get("picked") is not None and state["picked"] not in likely:
        likely[state["picked"]] = _other(held, reading, state["picked"])
    left, right = st.columns([4, 1])
    with left:
        picked: int | None = st.pills(
            "Which word? The model's likeliest next ones", list(likely), key="picked",
            format_func=lambda id: f"{label(likely[id].text)} {percent(likely[id].probability)}",
            on_change=_untype, persist_state="session", wrap=True,
        )  # fmt: skip
    with right:
        typed: str = st.text_input(
            "… or type one", key="typed", live=True, placeholder="␣Paris is typed as “ Paris”",
            help="A space at the beginning counts: most words begin with one.", persist_state="session",
        )  # fmt: skip
    if typed and _preview(held, reading, typed):
        return typed
    return None if picked == first else picked


def _started(target: str | int | None) -> None:
    """A word that came with a link or a click takes the place of what was chosen before."""
    if target is not None:
        st.session_state["typed"] = target if isinstance(target, str) else ""
        st.session_state["picked"] = target if isinstance(target, int) else None


def _other(held: Held, reading: Reading, id: int) -> Ranked:
    from lenses.tokens import text_of

    if not 0 <= id < len(reading.probabilities):
        return Ranked(id, f"[id {id}]", 0.0)  # which is refused, in a sentence, when it is asked about
    return Ranked(id, text_of(held.decoder.tokenizer, id), float(reading.probabilities[id]))


def _untype() -> None:
    """A picked word takes the place of a typed one."""
    st.session_state["typed"] = ""


def _preview(held: Held, reading: Reading, typed: str) -> bool:
    """How the typed word is read: its tokens; False for one that is none."""
    try:
        pieces = answers.word(held, reading, typed)
    except LensesError as error:
        message("error", f"{error}; until then, the word that was picked above is shown")
        return False
    one, more = "read as one token:", f"{len(pieces)} tokens, each read after those before it:"
    chips(one if len(pieces) == 1 else more, [token.text for token in pieces], here=0)
    return True
