"""Room for a model that has none beside those in memory: they go, if that is enough and nobody is at them.

Law: a model leaves the shelf only where the new one fits without it, and is back on the shelf where work
that goes on still holds it, so that its memory would not be free.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lenses.errors import NoRoom
from lenses.progress import Progress
from lenses.ui.shelf import Choice, Held, Shelf

if TYPE_CHECKING:
    from lenses.decoder import Decoder

PATIENCE = 15.0
"""Seconds that pages may take to be done with a model that is to go."""


@dataclass(frozen=True)
class _Leaving:
    """A model that is on no shelf, and in memory only as long as somebody works with it."""

    choice: Choice
    serial: int
    decoder: weakref.ref[Decoder]

    def back(self) -> Held | None:
        """The model itself, where it is still there."""
        found = self.decoder()
        return None if found is None else Held(self.choice, found, self.serial)


def make_room(shelf: Shelf, refusal: NoRoom, release: Callable[[], None]) -> Generator[Progress, None, None]:
    """Let models go until the one that was refused fits; `release` gives their memory back.

    Raises `refusal` where it would not fit even so, which leaves the shelf as it was, and `NoRoom` with the
    names of those that can't go now.
    """
    leaving = [_leave(shelf, choice) for choice in _enough(shelf, refusal)]
    names = ", ".join(one.choice.name for one in leaving if one is not None)
    late = time.monotonic() + PATIENCE
    while True:
        release()
        there = [one for one in leaving if one is not None and one.decoder() is not None]
        if not there:
            return
        if time.monotonic() > late:
            break
        yield Progress(f"waiting for {names} to make room")
        time.sleep(0.2)
    kept = [held for one in there if (held := one.back()) is not None]
    for held in kept:
        shelf.put(held)
    if kept:
        who = ", ".join(held.choice.name for held in kept)
        raise NoRoom(
            f"{refusal}; or try again in a while: {who} stays in memory until the work with it is done",
            refusal.device, refusal.lacking,
        )  # fmt: skip


def _enough(shelf: Shelf, refusal: NoRoom) -> list[Choice]:
    """The models, those that go first first, whose weights are what is lacking; raises `refusal`."""
    import torch

    from lenses import watermark

    device, found, lacking = torch.device(refusal.device), [], refusal.lacking
    for choice in shelf.choices:
        held = shelf.get(choice)
        if held is not None and lacking > 0:
            lacking -= watermark.taken(held.decoder.model, device)
            found.append(choice)
    if lacking > 0:
        raise refusal
    return found


def _leave(shelf: Shelf, choice: Choice) -> _Leaving | None:
    held = shelf.take(choice)
    return None if held is None else _Leaving(choice, held.serial, weakref.ref(held.decoder))
