"""A file that a visitor asked for is there when the browser comes for it, whatever others do meanwhile."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from streamlit import runtime
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage

from lenses.ui import saving

RUNS = 20
"""Of other visitors' scripts, at whose ends Streamlit drops what nobody uses."""


@pytest.fixture
def files(monkeypatch) -> MediaFileManager:
    """A server's files."""
    made = MediaFileManager(MemoryMediaFileStorage("/media"))
    monkeypatch.setattr(runtime, "exists", lambda: True)
    monkeypatch.setattr(runtime, "get_instance", lambda: SimpleNamespace(media_file_mgr=made))
    return made


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


def test_no_more_than_the_newest_are_held(files):
    names = [
        clicked(files, lambda k=k: saving.held(f"{k}", "a.csv", "text/csv")) for k in range(2 * saving.HELD)
    ]
    there = [files.read_file(name) is not None for name in names]
    assert there == [False] * saving.HELD + [True] * saving.HELD
