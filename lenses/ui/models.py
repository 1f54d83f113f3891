"""The models in memory: at most so many, each loaded once however many visitors ask for it.

Streamlit's resource cache is the shelf; a job of its own loads what is not there. A model that can't
be loaded leaves the shelf, and what visitors use, as it was.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import streamlit as st

from lenses.progress import Progress
from lenses.ui.jobs import Failed, Jobs, State
from lenses.ui.results import Results
from lenses.ui.settings import settings

if TYPE_CHECKING:
    from lenses.decoder import Decoder


@dataclass(frozen=True)
class Choice:
    """A model as a visitor names it; what is None is left to `loading`."""

    name: str
    dtype: str | None = None
    device: str | None = None
    revision: str | None = None


@dataclass(frozen=True)
class Held:
    """A model on the shelf; `serial` tells it from the same model loaded at another time."""

    choice: Choice
    decoder: Decoder
    serial: int


_serials = count(1)
KEPT = int(os.environ.get("LENSES_MODELS_KEPT") or 1)
"""How many models stay in memory."""


class Absent(Exception):
    """The model is not on the shelf."""


@st.cache_resource(show_spinner=False)
def loader() -> Jobs:
    """The one queue in which models are loaded, for all visitors."""
    return Jobs(Results())


def held(choice: Choice) -> Held | None:
    """The model of a choice, if it is on the shelf."""
    try:
        found: Held = _shelf(choice, None)
    except Absent:
        return None
    return found


def want(who: str, choice: Choice) -> None:
    """Have a model loaded, unless it is there or being loaded."""
    if held(choice) is None and isinstance(loader().results.get(choice), Loaded):
        loader().results.drop(choice)  # it was there, and had to go for another
    loader().want(who, {choice: lambda: _load(choice)})


def state(choice: Choice) -> State | Failed | None:
    """How far the loading is, or why it failed."""
    return loader().state(choice) or _failure(choice)


def forgive(choice: Choice) -> None:
    """Let a choice that failed be tried again."""
    loader().results.drop(choice)


@dataclass(frozen=True)
class Loaded:
    """A model was put on the shelf (and may have gone again since)."""


def _failure(choice: Choice) -> Failed | None:
    found = loader().results.get(choice)
    return found if isinstance(found, Failed) else None


def _load(choice: Choice) -> Generator[Progress, None, Loaded]:
    settings().refuse(choice.name)
    yield Progress("importing torch and transformers")
    from lenses.loading import loading

    decoder = yield from loading(
        choice.name, revision=choice.revision, dtype=choice.dtype, device=choice.device
    )
    _shelf(choice, Held(choice, decoder, next(_serials)))
    _release()
    return Loaded()


@st.cache_resource(show_spinner=False, max_entries=KEPT)
def _shelf(choice: Choice, _held: Held | None) -> Held:
    """The shelf itself: `_held` is what to put there, and no part of the key."""
    if _held is None:
        raise Absent
    return _held


def _release() -> None:
    """Give back the memory of a model that has left the shelf."""
    gc.collect()
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def choice_of(name: str, **options: Any) -> Choice:
    """The choice of a name, on the device that the host has fixed, if any."""
    fixed = settings().device
    return Choice(name, **{**options, "device": fixed or options.get("device")})
