"""The model in the sidebar: which one is in use, which one is coming, and how to choose another."""

from __future__ import annotations

import uuid

import streamlit as st

from lenses.catalog import MODELS
from lenses.errors import LensesError
from lenses.memory import parameters
from lenses.ui import models
from lenses.ui.jobs import Failed, State
from lenses.ui.models import choice_of
from lenses.ui.settings import settings
from lenses.ui.shelf import Choice, Held
from lenses.ui.text import label, message, small

DTYPES = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}
BEST = "the best there is"
EVERY, FIRST = 0.5, 2.5
"""Seconds between two looks at a loading model; the first look waits until the page is drawn."""
PAINTED = "painted"
"""Set in a session whose first page is out: importing torch before that would hold it up by seconds."""


def who() -> str:
    """A name for this session, by which it wants things."""
    st.session_state.setdefault("who", uuid.uuid4().hex)
    name: str = st.session_state["who"]
    return name


def current() -> Held | None:
    """The model in use; tells of it in the sidebar, and sees to it that the chosen one is loaded."""
    state, wanted = st.session_state, st.session_state["model"]
    with st.sidebar:
        found = models.held(wanted)
        if found is None:
            _coming(wanted)
            used: Choice | None = state.get("model_used")
            found = models.held(used) if used else None
        else:
            state["model_used"] = wanted
        _in_use(found)
    return found


def _coming(wanted: Choice) -> None:
    """The chosen model's progress, looked at again and again, or why it can't be had."""

    drawn = st.session_state.get(PAINTED, False)

    @st.fragment(run_every=EVERY if drawn else FIRST)
    def watch() -> None:
        if not st.session_state.get(PAINTED):
            small(f"Loading {wanted.name} as soon as this page is drawn")
            return
        models.want(who(), wanted)
        now = models.state(wanted)
        if drawn and isinstance(now, State):
            progress("Loading " + wanted.name, now)
            used = st.session_state.get("model_used")
            if used is not None and st.button(f"Stay with {label(used.name)}", key="stay"):
                st.session_state["model"] = used
                st.rerun()
        else:
            st.rerun()

    now = models.state(wanted)
    if isinstance(now, Failed):
        message("error", now.reason)
        if st.button("Try again", key="retry-model"):
            models.forgive(wanted)
            st.rerun()
    else:
        watch()


def progress(what: str, now: State) -> None:
    """What is going on, how far it is, and how long it will still take."""
    left = now.left
    more = f", about {left:.0f} s left" if left is not None and left >= 1 else ""
    place = f" in line, {now.ahead} before it" if now.ahead else ""
    small(f"{what}: {now.progress.text}{place}{more}")
    st.progress(now.progress.part or 0.0)


def _in_use(found: Held | None) -> None:
    if found is None:
        return
    decoder = found.decoder
    message("good", f"{decoder.name} is loaded")
    small(
        f"{decoder.blocks} blocks, width {decoder.width}, {decoder.vocabulary} tokens; "
        f"{str(decoder.dtype).removeprefix('torch.')} on {decoder.device}. Readout proved to be the model's "
        f"own: largest gap {decoder.readout_gap:.1e}."
    )


def choose() -> None:
    """The widgets by which another model is chosen; nothing is loaded before the button is pressed."""
    fixed, now = settings(), st.session_state["model"]
    with st.sidebar, st.expander("Choose another model"):
        offered = list(fixed.offered)
        for typed in (now.name, st.session_state.get("model_name")):
            if typed and typed not in offered and not fixed.models:
                offered.insert(0, typed)
        name = st.selectbox(
            "Model", offered, index=offered.index(now.name) if now.name in offered else 0,
            accept_new_options=not fixed.models, key="model_name", persist_state="session",
            help="A name of the list, or type a Hub id (owner/model), a folder or a .gguf file.",
        )  # fmt: skip
        dtype = st.selectbox("Number format", list(DTYPES), key="model_dtype", persist_state="session")
        devices = [fixed.device] if fixed.device else [BEST, "auto", "cpu", "cuda"]
        device = st.selectbox(
            "Device", devices, key="model_device", persist_state="session",
            help="auto: for a model bigger than a device, over all devices, then memory, then the disk.",
        )  # fmt: skip
        revision = st.text_input(
            "Revision", key="model_revision", placeholder="the newest", persist_state="session",
            help="A branch, tag or commit of a Hub model.",
        )  # fmt: skip
        if name:
            _memory(name, dtype, revision or None)
        if st.button("Load", type="primary", width="stretch", disabled=not name) and name:
            _take(name, dtype, None if device == BEST else device, revision)


def _take(name: str, dtype: str, device: str | None, revision: str) -> None:
    """Make a model the wanted one, also one that failed before."""
    wanted = choice_of(
        name, dtype=None if dtype == "float32" else dtype, device=device, revision=revision or None
    )
    models.forgive(wanted)
    st.session_state["model"] = wanted
    st.rerun()


def _memory(name: str, dtype: str, revision: str | None) -> None:
    """What the weights will take, before anything is loaded."""
    try:
        settings().refuse(name)
        known = parameters(name)
    except LensesError as error:
        message("error", str(error))
        return
    with st.spinner("asking the Hugging Face Hub for the configuration"):
        count = _asked(name, revision) if known is None else known
    if isinstance(count, Failed):
        message("error", count.reason)
        return
    note = next((m.note for m in MODELS if m.name == name), "")
    small(f"Memory: about {count * DTYPES[dtype] / 1e9:.1f} GB for {count / 1e6:.0f} M weights. {note}")


@st.cache_data(show_spinner=False, max_entries=100, ttl=600)
def _asked(hub: str, revision: str | None) -> int | Failed:
    from lenses.loading import weights

    try:
        return weights(hub, revision)
    except LensesError as error:
        return Failed(str(error))
