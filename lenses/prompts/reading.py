"""A file's bytes and name → its list of prompts: which kind it is, and which reader takes it."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from lenses.errors import BadPromptFile
from lenses.prompts.decoding import decode, line_of
from lenses.prompts.delimited import names_columns, read_table
from lenses.prompts.found import Found
from lenses.prompts.json_lists import read_json
from lenses.prompts.lines import read_lines
from lenses.prompts.rows import AS_FOUND, Manner, PromptList, Row
from lenses.prompts.wording import counted, plain

MOST_BYTES = 50_000_000
MOST_LINES = 5_000_000
_ARCHIVES = (b"PK\x03\x04", b"PK\x05\x06")
PARQUET = b"PAR1"
ENDINGS = ("csv", "tsv", "txt", "json", "jsonl", "ndjson", "xlsx", "parquet")
"""What the names of lists end in, where one has to choose among the files of a folder."""


def read(data: bytes, name: str, manner: Manner = AS_FOUND) -> PromptList:
    """The list that a file holds; what `manner` leaves open is found out, and told.

    Raises `BadPromptFile`, with the line, for a file that can't be read at all. A row that can't be read
    is a row with a problem, and the others are read.
    """
    said, notes = plain(name), tuple[str, ...]()
    _fits(data, said, manner)
    if data.startswith(_ARCHIVES):
        from lenses.prompts.sheet import read_sheet

        found = read_sheet(data, said, manner)
    elif data.startswith(PARQUET):
        from lenses.prompts.parquet_table import read_parquet

        found = read_parquet(data, said, manner)
    else:
        decoded = decode(data, said, manner.encoding)
        notes = decoded.notes
        found = _of_text(decoded.text, name, said, replace(manner, encoding=decoded.encoding))
    names, rows = found.columns.without_empty(found.rows)
    notes = (*notes, *found.notes, *_of_carriage_returns(rows))
    digest = hashlib.sha256(data).hexdigest()
    return PromptList(name, digest, found.kind, found.manner, names, tuple(rows), notes, found.header_line)


def _fits(data: bytes, name: str, manner: Manner) -> None:
    """Raises `BadPromptFile` for a file without bytes or with too many, and for an odd delimiter."""
    if not data:
        raise BadPromptFile(f"{name} is empty: write a line for each prompt")
    if len(data) > MOST_BYTES:
        size, most = -(-len(data) // 1_000_000), MOST_BYTES // 1_000_000
        raise BadPromptFile(f"{name} has {size} MB; lists of at most {most} MB are read: split it")
    if manner.delimiter is not None and (
        len(manner.delimiter) > 1 or manner.delimiter in {'"', "\r", "\n", "\0"}
    ):
        raise BadPromptFile(f"{manner.delimiter!r} can't be the delimiter: choose one character, or none")


def _of_text(text: str, name: str, said: str, manner: Manner) -> Found:
    """The list in a text, of the kind that its name and its first line tell."""
    if not text.strip():
        raise BadPromptFile(f"{said} holds nothing but blank lines: write a line for each prompt")
    if line_of(text) > MOST_LINES:
        raise BadPromptFile(f"{said} has more than {MOST_LINES:,} lines: split it")
    ending = name.rpartition(".")[2].casefold()
    if ending in ("json", "jsonl", "ndjson"):
        return read_json(text, said, manner, by_line=ending != "json")
    if ending != "txt":
        return read_table(text, said, manner)
    chosen = manner.header or manner.delimiter or manner.prompt is not None or manner.target is not None
    if chosen:
        return read_table(text, said, manner)
    if manner.header is False or manner.delimiter == "" or not names_columns(text):
        return read_lines(text, said, manner)
    found = read_table(text, said, manner)
    note = f"line {found.header_line} names columns, so that this was read as a table, not as a prompt a line"
    return replace(found, notes=(note, *found.notes))


def _of_carriage_returns(rows: list[Row]) -> tuple[str, ...]:
    """A note where prompts hold what most editors write at the end of a line and nobody sees."""
    count = sum("\r" in row.prompt for row in rows if not row.problem)
    if not count:
        return ()
    return (
        f"{counted(count, 'prompt')} with a carriage return inside, which a model reads: write plain line "
        "ends within quotes if it is not meant",
    )
