"""The models in memory: at most so many, and the one that was not asked for longest goes first."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from cachetools import LRUCache

if TYPE_CHECKING:
    from lenses.decoder import Decoder

serials = count(1)


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


class Shelf:
    """A place for `most` models, for any number of threads."""

    def __init__(self, most: int) -> None:
        self._held: LRUCache[Choice, Held] = LRUCache(most)
        self._lock = threading.Lock()

    def get(self, choice: Choice) -> Held | None:
        with self._lock:
            return self._held.get(choice)

    def put(self, held: Held) -> None:
        with self._lock:
            self._held[held.choice] = held

    def take(self, choice: Choice) -> Held | None:
        """The model of a choice, which is not on the shelf any more."""
        with self._lock:
            found: Held | None = self._held.pop(choice, None)
            return found

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What is there, the one that goes first first."""
        with self._lock:
            return tuple(self._held)
