"""How long a run of a list will take, on its page before it is started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from lenses.ui import picker, runs
from lenses.ui.jobs import Failed
from lenses.ui.text import message, small

if TYPE_CHECKING:
    from lenses.lens import Lens
    from lenses.prompts import PromptList
    from lenses.ui.shelf import Held


def cost(held: Held, listed: PromptList, lenses: Sequence[Lens]) -> None:
    """How long the run will take, measured on a few of its prompts."""
    key, work = runs.estimate(held, listed, lenses)
    who = f"{picker.who()}/estimate"
    runs.estimates().want(who, {key: work})

    @st.fragment(run_every=0.5)
    def watch() -> None:
        runs.estimates().renew(who)
        if runs.estimates().state(key) is None:
            st.rerun()
        small("Measuring how long this will take …")

    seconds = runs.estimates().results.get(key)
    if isinstance(seconds, Failed):
        message("warning", seconds.reason)
    elif seconds is None:
        watch()
    else:
        small(f"It will take about {_duration(seconds)}. You can stop and go on at any time.")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
