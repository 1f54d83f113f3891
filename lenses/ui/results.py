"""What was computed, by key, within a bound of bytes: the least recently used is given up first.

A trace remembers what was read off it, so it grows after it was put here: `weigh` counts it again.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from cachetools import LRUCache

T = TypeVar("T")
SAMPLE = 8

BOUND = 512 << 20
"""Bytes of traces and results that are kept for all visitors together."""


class Results:
    """A store that any number of threads may use; values are plain, and never say anything else later."""

    def __init__(self, bound: int = BOUND) -> None:
        self._kept: LRUCache[Hashable, Any] = LRUCache(bound, getsizeof=size)
        self._lock = threading.Lock()

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._kept

    def get(self, key: Hashable) -> Any:
        """The value of a key, or None."""
        with self._lock:
            return self._kept.get(key)

    def put(self, key: Hashable, value: Any) -> bool:
        """Keep a value, and say whether it is kept: one that is larger than the bound is not."""
        with self._lock:
            if size(value) > self._kept.maxsize:
                return False
            self._kept[key] = value
            return True

    def weigh(self, key: Hashable) -> None:
        """Count the bytes of a value again; one that has grown larger than the bound is given up."""
        with self._lock:
            value = self._kept.pop(key, None)
            if value is not None and size(value) <= self._kept.maxsize:
                self._kept[key] = value

    def drop(self, key: Hashable) -> None:
        with self._lock:
            self._kept.pop(key, None)

    def recall(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key, made now if it is not kept."""
        found: T | None = self.get(key)
        if found is None:
            found = make()
            self.put(key, found)
        return found


def size(value: Any) -> int:
    """About how many bytes a value takes: its arrays, and something for every object in it."""
    if hasattr(value, "memory_usage"):  # a table: its texts count as well
        return int(value.memory_usage(deep=True).sum()) + 100
    if hasattr(value, "nbytes"):
        return int(value.nbytes) + 100
    if dataclasses.is_dataclass(value):
        return 100 + sum(size(getattr(value, f.name)) for f in dataclasses.fields(value))
    if isinstance(value, tuple | list):
        # What stands in a long row is alike, and counting all of it would take longer than making it.
        some = value[:SAMPLE]
        return 60 + sum(map(size, some)) * len(value) // max(1, len(some))
    if isinstance(value, Mapping):
        # A copy at once, since other threads may read off the same trace.
        return 60 + sum(_named(key) + size(entry) for key, entry in list(value.items()))
    return 60 + (len(value) if isinstance(value, str) else 0)


def _named(key: Any) -> int:
    """The bytes of a key: its texts; all else in it, as in those of a trace's memo, is kept elsewhere."""
    parts = key if isinstance(key, tuple) else (key,)
    return 60 + sum(len(part) for part in parts if isinstance(part, str))
