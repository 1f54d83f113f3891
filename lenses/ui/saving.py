"""Files that are made when a visitor asks for them, and are there until the browser has fetched them.

Streamlit makes a download whose data is a function when its button is clicked, and drops the file after
two runs of anybody's script: with many visitors, before the browser comes for it. So the last files are
held under a name of our own.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from streamlit import runtime

HELD = 16
"""How many files are held for all visitors, the newest."""
_numbers = count()


def offer(
    column: Any, label: str, make: Callable[[], bytes | str], name: str, mime: str, key: str, **options: Any
) -> None:
    """A button in a column that saves what `make` makes as a file of this name."""
    column.download_button(
        label, data=lambda: held(make(), name, mime), file_name=name, mime=mime, key=key, width="stretch",
        on_click="ignore", **options,
    )  # fmt: skip


def held(data: bytes | str, name: str, mime: str) -> bytes:
    """The bytes themselves, which the server keeps until `HELD` others have come."""
    whole = data.encode() if isinstance(data, str) else data
    if runtime.exists():
        runtime.get_instance().media_file_mgr.add(
            whole, mime, f"lenses-download-{next(_numbers) % HELD}", name, is_for_static_download=True
        )
    return whole
