"""A folder in the cache for weights of one model that are neither on a device nor in memory.

It lives as long as the model does. What a killed process left behind is swept when the next one is made:
a folder is in use as long as the lock beside it is held.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

from filelock import FileLock, Timeout

from lenses.convert import cache


class Offload:
    """A folder of its own; `keep_with` ties it to an object, at whose end it goes."""

    def __init__(self) -> None:
        home = cache() / "offload"
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / ".lock"):  # no folder is swept between its making and its locking
            _sweep(home)
            self.folder = Path(tempfile.mkdtemp(dir=home))
            self._lock = _lock(self.folder)
            self._lock.acquire()
        self._end = weakref.finalize(self, _drop, self.folder, self._lock)

    def keep_with(self, owner: object) -> None:
        """Drop the folder when `owner` is gone (or the process ends), not before."""
        self._end.detach()
        weakref.finalize(owner, _drop, self.folder, self._lock)


def _lock(folder: Path) -> FileLock:
    return FileLock(f"{folder}.lock", thread_local=False)


def _drop(folder: Path, lock: FileLock) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    lock.release()
    Path(lock.lock_file).unlink(missing_ok=True)


def _sweep(home: Path) -> None:
    """Drop the folders whose locks nobody holds."""
    for folder in home.iterdir():
        if not folder.is_dir():
            continue
        lock = _lock(folder)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            continue
        _drop(folder, lock)
