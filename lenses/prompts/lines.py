"""TXT: one prompt a line, with nothing to quote and nothing to escape; blank lines are skipped."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace

from lenses.prompts.columns import Columns, counted_rows
from lenses.prompts.found import Found
from lenses.prompts.rows import Manner

_ONE = Columns(("prompt",), {"prompt": 0})


def read_lines(text: str, name: str, manner: Manner) -> Found:
    """One row a line; what looks as if it were meant otherwise is noted."""
    rows = [_ONE.row(number, line, [prompt]) for number, (line, prompt) in counted_rows(_prompts(text), name)]
    used = replace(manner, delimiter="", header=False, prompt=None, target=None)
    notes = []
    if rows[0].prompt.strip().casefold() == "prompt":
        notes.append(
            f"line {rows[0].line} was read as a prompt; if it names the column, say that there is a header"
        )
    if rows[0].prompt.lstrip().startswith(('{"', "[")):
        notes.append(
            "the first line looks like JSON and was read as a prompt; if it is JSON, name the file .jsonl"
        )
    return Found("TXT", used, Columns((), {}), rows, tuple(notes))


def _prompts(text: str) -> Iterator[tuple[int, str]]:
    for line, ended in enumerate(io.StringIO(text, newline=""), start=1):
        prompt = ended.removesuffix("\n").removesuffix("\r")
        if prompt.strip():
            yield line, prompt
