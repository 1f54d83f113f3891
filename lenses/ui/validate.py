"""The validate page: a list of prompts in, every block skipped, and how far each method found them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from lenses.errors import LensesError
from lenses.progress import Progress
from lenses.prompts.wording import counted
from lenses.registry import LENSES, get, quick
from lenses.ui import lists, picker, planted, runs
from lenses.ui.costs import cost
from lenses.ui.running import follow
from lenses.ui.runs import BATCH, VALIDATED, Run
from lenses.ui.settings import settings
from lenses.ui.text import message, small
from lenses.ui.validated import show

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from lenses.decoder import Decoder
    from lenses.lens import Lens
    from lenses.prompts import PromptList
    from lenses.store import Store
    from lenses.ui.shelf import Held
    from lenses.validating import Validated

INTRO = (
    "Is a block to which a method gives much also one that the model needs? For every prompt of a list each "
    "block is skipped in turn, and what the word loses is held against what each method said of the block."
)


def page(assets: Path) -> None:
    """Draws the page; runs are made in the background."""
    held = picker.current()
    st.title("Do the methods find the blocks that matter?", anchor=False)
    small(INTRO)
    try:
        listed = lists.choose(assets, VALIDATED)
        if listed is not None and held is None:
            message("info", "the list can be run as soon as the model in the sidebar is loaded")
        elif listed is not None and held is not None:
            _ask(held, listed)
    except LensesError as error:
        message("error", str(error))
    if VALIDATED in st.session_state:
        follow(VALIDATED, show, "validation.html")
    planted.show(assets)
    picker.choose()


def _ask(held: Held, listed: PromptList) -> None:
    """Which methods, what it will cost, and the button."""
    names = st.pills(
        "Methods", list(LENSES), selection_mode="multi", default=quick(), key="validate_lenses",
        format_func=lambda name: LENSES[name].title, wrap=True, persist_state="session",
    )  # fmt: skip
    if not listed.good or not names:
        message("info", "choose at least one method" if listed.good else "no row of this list can be run")
        return
    from lenses.validating import along

    lenses = [get(name) for name in LENSES if name in names]
    asked, kept = _run(held, listed, lenses), st.session_state.get(VALIDATED)
    if kept is not None and kept.key == asked.key:
        return
    left, right = st.columns([1, 4], vertical_alignment="center")
    with left:
        label = f"Run {counted(len(listed.good), 'prompt')}"
        pressed = st.button(label, type="primary", width="stretch", key="validate-list")
    with right:
        cost(held, listed, along(lenses))
    if pressed:
        runs.estimates().want(f"{picker.who()}/estimate", {})
        st.session_state[VALIDATED] = asked
        st.rerun()


def _run(held: Held, listed: PromptList, lenses: Sequence[Lens]) -> Run:
    """The validation of a list as a run in a folder of its own."""
    from lenses.validating import along

    def making(decoder: Decoder, folder: Path, files: Path) -> Generator[Progress, None, Validated]:
        from lenses.report import write_validation
        from lenses.validating import validating

        found = yield from validating(
            decoder, listed, lenses, folder, resume=True, batch_size=BATCH,
            longest=settings().max_tokens,
        )  # fmt: skip
        yield Progress("writing the files")
        write_validation(files, found)
        return found

    def closing(store: Store, files: Path) -> Generator[Progress, None, Validated]:
        from lenses.report import write_validation
        from lenses.validating import counted

        yield Progress("counting")
        found = counted(store.settings, store.outcomes(), lenses)
        write_validation(files, found)
        return found

    return runs.begun("validation", held, listed, along(lenses), making, closing)
