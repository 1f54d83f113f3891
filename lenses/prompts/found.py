"""What the reader of one kind of file hands over: its columns, its rows, and what to say of them."""

from __future__ import annotations

from dataclasses import dataclass

from lenses.prompts.columns import Columns
from lenses.prompts.rows import Manner, Row


@dataclass(frozen=True)
class Found:
    """The rows of a file, the manner in which they were read, and notes for people."""

    kind: str
    manner: Manner
    columns: Columns
    rows: list[Row]
    notes: tuple[str, ...] = ()
    header_line: int | None = None
