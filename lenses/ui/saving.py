"""Files that are made when a visitor asks for them, and are there until the browser has fetched them.

Streamlit makes a download whose data is a function when its button is clicked, and drops the file after
two runs of anybody's script: with many visitors, before the browser comes for it. So files are held under
names of our own, for some minutes and up to a bound of bytes.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import streamlit as st
from streamlit import runtime

if TYPE_CHECKING:
    from streamlit.runtime.media_file_manager import MediaFileManager

BOUND = 128 << 20
"""Bytes of files that are held for all visitors together; the newest is held whatever its size."""
SECONDS = 300.0
"""How long a file is held at most."""


@dataclass(frozen=True)
class _File:
    place: str
    size: int
    until: float


class Holding:
    """The files that a server holds: the newest up to `bound` bytes, each for some seconds at most."""

    def __init__(self, files: MediaFileManager, bound: int = BOUND, seconds: float = SECONDS) -> None:
        self._files, self._bound, self._seconds = files, bound, seconds
        self._held: dict[str, _File] = {}
        """By what is in them, the oldest first."""
        self._numbers, self._free = count(), list[str]()
        self._lock, self._timer = threading.Lock(), False

    @property
    def size(self) -> int:
        """The bytes that are held."""
        return sum(file.size for file in self._held.values())

    def hold(self, data: bytes, name: str, mime: str) -> None:
        """Keep a file, and give up older ones that are too much beside it."""
        key = hashlib.sha256(f"{name} {mime} ".encode() + data).hexdigest()
        with self._lock:
            known = self._held.pop(key, None)
            place = known.place if known is not None else self._place()
            self._files.add(data, mime, place, name, is_for_static_download=True)
            self._held[key] = _File(place, len(data), time.monotonic() + self._seconds)
            while len(self._held) > 1 and self.size > self._bound:
                self._give_up()
            self._wait()

    def _place(self) -> str:
        return self._free.pop() if self._free else f"lenses-download-{next(self._numbers)}"

    def _give_up(self) -> None:
        """Let the oldest go: nothing takes its place, and Streamlit drops it as it drops any other."""
        oldest = self._held.pop(next(iter(self._held)))
        self._files.add(b"", "text/plain", oldest.place)
        self._files.remove_orphaned_files()
        self._free.append(oldest.place)

    def _wait(self) -> None:
        """See to it that the oldest goes in time; one thread waits for all of them."""
        if self._held and not self._timer:
            self._timer = True
            late = next(iter(self._held.values())).until - time.monotonic()
            timer = threading.Timer(max(0.0, late), self._expire)
            timer.daemon = True
            timer.start()

    def _expire(self) -> None:
        with self._lock:
            self._timer = False
            while self._held and next(iter(self._held.values())).until <= time.monotonic():
                self._give_up()
            self._wait()


@st.cache_resource(show_spinner=False)
def holding() -> Holding:
    """What this server holds, for all visitors."""
    return Holding(runtime.get_instance().media_file_mgr)


def offer(
    column: Any, label: str, make: Callable[[], bytes | str], name: str, mime: str, key: str, **options: Any
) -> None:
    """A button in a column that saves what `make` makes as a file of this name."""
    column.download_button(
        label, data=lambda: held(make(), name, mime), file_name=name, mime=mime, key=key, width="stretch",
        on_click="ignore", **options,
    )  # fmt: skip


def held(data: bytes | str, name: str, mime: str) -> bytes:
    """The bytes themselves, which the server keeps for a while."""
    whole = data.encode() if isinstance(data, str) else data
    if runtime.exists():
        holding().hold(whole, name, mime)
    return whole
