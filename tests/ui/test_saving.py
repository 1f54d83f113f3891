"""A file that a visitor asked for is there when the browser comes for it, whatever others do meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from streamlit import runtime
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage

from lenses.ui import saving

RUNS = 20
"""Of other visitors' scripts, at whose ends Streamlit drops what nobody uses."""


@pytest.fixture
def files(monkeypatch) -> Iterator[MediaFileManager]:
    """A server's files."""
    made = MediaFileManager(MemoryMediaFileStorage("/media"))
    monkeypatch.setattr(runtime, "exists", lambda: True)
    monkeypatch.setattr(runtime, "get_instance", lambda: SimpleNamespace(media_file_mgr=made))
    saving.holding.clear()
    yield made
    saving.holding.clear()


def clicked(files: MediaFileManager, make) -> str:
    """The address of a download whose button was clicked, after a while on a busy server."""
    button = files.add_deferred(make, "text/csv", "1.2", "a.csv")
    address = files.execute_deferred(button)
    for _ in range(RUNS):
        files.remove_orphaned_files()
    return address.rsplit("/", 1)[-1].partition(".")[0]


def test_a_file_stays_while_others_use_the_page(files):
    name = clicked(files, lambda: saving.held("a,b\n", "a.csv", "text/csv"))
    assert files.read_file(name).content == b"a,b\n"


def test_without_that_it_would_be_gone(files):
    assert files.read_file(clicked(files, lambda: b"a,b\n")) is None


def stored(files: MediaFileManager) -> int:
    """The bytes of all files that the server has."""
    return sum(len(file.content) for file in files._storage._files_by_id.values())


def ended(files: MediaFileManager) -> None:
    """Some scripts of visitors come to their end."""
    for _ in range(2):
        files.remove_orphaned_files()


def test_no_more_bytes_are_held_than_the_bound_and_the_newest_stay(files):
    holding = saving.Holding(files, bound=1000)
    for k in range(50):
        holding.hold(bytes([k]) * 300, f"{k}.bin", "application/octet-stream")
        # The bound, and one that was given up and goes with the next, though no script of a visitor ends.
        assert (holding.size <= 1000, stored(files) <= 1300) == (True, True)
    ended(files)
    there = {file.filename for file in files._storage._files_by_id.values() if file.content}
    assert there == {"47.bin", "48.bin", "49.bin"}
    # Nor do names pile up.
    assert len(files._files_by_session_and_coord["dontcare"]) <= 5


def test_a_file_larger_than_the_bound_is_there_alone_until_the_next_comes(files):
    holding = saving.Holding(files, bound=1000)
    holding.hold(b"a" * 300, "a.bin", "application/octet-stream")
    holding.hold(b"b" * 5000, "b.bin", "application/octet-stream")
    ended(files)
    assert stored(files) == 5000
    holding.hold(b"c" * 300, "c.bin", "application/octet-stream")
    ended(files)
    assert stored(files) == 300


def test_one_file_that_is_fetched_again_and_again_pushes_no_other_out(files):
    holding = saving.Holding(files, bound=1000)
    holding.hold(b"a" * 300, "a.bin", "application/octet-stream")
    for _ in range(20):
        holding.hold(b"b" * 600, "b.bin", "application/octet-stream")
    assert holding.size == 900


def test_after_a_while_nothing_is_held_and_one_thread_saw_to_it(files):
    holding, before = saving.Holding(files, seconds=0.3), threading.active_count()
    for k in range(20):
        holding.hold(bytes([k]) * 300, f"{k}.bin", "application/octet-stream")
    assert holding.size == 20 * 300
    assert threading.active_count() == before + 1
    late = time.monotonic() + 20
    while holding.size and time.monotonic() < late:
        time.sleep(0.05)
    ended(files)
    assert (holding.size, stored(files)) == (0, 0)
