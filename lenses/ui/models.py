"""The models in memory: at most so many, each loaded once however many visitors ask for it.

A job of its own loads what is not on the shelf. A model that can't be loaded leaves the shelf, and what
visitors use, as it was; one that fits only where another goes takes its place (`room`).
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st

from lenses.errors import NoRoom
from lenses.progress import Progress
from lenses.ui.jobs import Failed, Jobs, State
from lenses.ui.results import Results
from lenses.ui.room import make_room
from lenses.ui.settings import settings
from lenses.ui.shelf import Choice, Held, Shelf, serials

if TYPE_CHECKING:
    from lenses.decoder import Decoder


@st.cache_resource(show_spinner=False)
def shelf() -> Shelf:
    """The one shelf, for all visitors."""
    return Shelf(settings().kept)


@st.cache_resource(show_spinner=False)
def loader() -> Jobs:
    """The one queue in which models are loaded, for all visitors."""
    return Jobs(Results())


def held(choice: Choice) -> Held | None:
    """The model of a choice, if it is on the shelf."""
    return shelf().get(choice)


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
    try:
        decoder = yield from _decoder(choice)
    except NoRoom as refusal:
        yield from make_room(shelf(), refusal, _release)
        decoder = yield from _decoder(choice)
    shelf().put(Held(choice, decoder, next(serials)))
    _release()
    return Loaded()


def _decoder(choice: Choice) -> Generator[Progress, None, Decoder]:
    from lenses.loading import loading

    return (
        yield from loading(
            choice.name, revision=choice.revision, dtype=choice.dtype, device=choice.device
        )
    )  # fmt: skip


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
