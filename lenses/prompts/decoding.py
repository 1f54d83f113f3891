"""Bytes → text: the encoding that was chosen, else that of the byte order mark, else UTF-8.

What is neither is read as Windows-1252, which is said; bytes that are no text at all are refused. A byte
order mark never becomes part of the text.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from lenses.errors import BadPromptFile

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_FORMATS = (
    (rb"\x89PNG", "a PNG picture"),
    (rb"\xff\xd8\xff", "a JPEG picture"),
    (rb"GIF8[79]a.{4,6}\0", "a GIF picture"),
    (rb"%PDF-\d\.\d\s", "a PDF document"),
    (rb"\xd0\xcf\x11\xe0.*E\0n\0c\0r\0y\0p\0t\0e\0d\0P\0a\0c\0k\0a\0g\0e", "a workbook with a password"),
    (rb"\xd0\xcf\x11\xe0", "an old Office file (.xls)"),
    (rb"\x1f\x8b", "a gzip archive"),
)
_NO_CHARSETS = {"idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape"}
_CONTROLS = bytes({*range(32), 127} - set(b"\t\n\v\f\r"))
_SAMPLE = 1 << 16


@dataclass(frozen=True)
class Decoded:
    """The text of a file, the codec that gave it, and what a reader should know of that."""

    text: str
    encoding: str
    notes: tuple[str, ...] = ()


def decode(data: bytes, name: str, encoding: str | None = None) -> Decoded:
    """The text of these bytes; raises `BadPromptFile` for what is no text in the encoding, or in any."""
    for pattern, what in _FORMATS:
        if re.match(pattern, data, re.DOTALL):
            raise BadPromptFile(f"{name} is {what}, not a list of prompts: save the list as CSV or .xlsx")
    found = _as_found(data, name) if encoding is None else _as_chosen(data, name, encoding)
    start = found.text[:_SAMPLE]
    if start.count("\0") > max(7, len(start) / 20):
        raise BadPromptFile(
            f"{name} is not text, or not in {found.encoding}: choose its encoding (such as UTF-16) or save "
            "it as UTF-8"
        )
    return Decoded(found.text.lstrip("\ufeff"), found.encoding, found.notes)


def line_of(text: str, position: int | None = None) -> int:
    """The line, from 1, of a position in a text whose lines end in \\n, \\r\\n or \\r."""
    before = text[:position]
    return 1 + before.count("\n") + before.count("\r") - before.count("\r\n")


def _as_chosen(data: bytes, name: str, encoding: str) -> Decoded:
    try:
        codec = codecs.lookup(encoding).name
    except (LookupError, ValueError) as error:
        raise BadPromptFile(f"{encoding!r} is no encoding known here: choose utf-8 or cp1252") from error
    if codec.replace("-", "_") in _NO_CHARSETS:
        raise BadPromptFile(f"{encoding!r} is no encoding of files: choose utf-8 or cp1252")
    if not codec.startswith("utf"):
        data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return Decoded(data.decode(codec), codec)
    except UnicodeDecodeError as error:
        raise BadPromptFile(f"{name} is not in {encoding}: {_place(codec, error)}") from error
    except LookupError as error:
        raise BadPromptFile(f"{encoding!r} is no encoding of text: choose utf-8 or cp1252") from error


def _as_found(data: bytes, name: str) -> Decoded:
    marked = next((codec for mark, codec in _MARKS if data.startswith(mark)), None)
    codec = marked or _wide(data) or "utf-8"
    try:
        text = data.decode(codec)
    except UnicodeDecodeError as error:
        if codec == "utf-8":
            return _windows(data, name, error)
        reason = "starts" if marked else "looks"
        raise BadPromptFile(
            f"{name} {reason} as {codec.upper()} but is not: {_place(codec, error)}"
        ) from error
    if marked or codec == "utf-8":
        return Decoded(text, codec)
    return Decoded(
        text, codec, (f"no byte order mark, but every second byte is NUL: read as {codec.upper()}",)
    )


def _windows(data: bytes, name: str, failed: UnicodeDecodeError) -> Decoded:
    """What is not UTF-8, as the encoding that Excel and Windows used before it."""
    sample = data[:_SAMPLE]
    if len(sample) - len(sample.translate(None, _CONTROLS)) > max(3, len(sample) / 20):
        raise BadPromptFile(f"{name} is a binary file, not a list of prompts: save the list as CSV or .xlsx")
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError as error:
        where = _place("cp1252", error)
        raise BadPromptFile(f"{name} is neither UTF-8 nor Windows-1252: {where}") from error
    byte, line = data[failed.start], line_of(data[: failed.start].decode())
    note = (
        f"not UTF-8 (byte 0x{byte:02X} in line {line}): read as Windows-1252; choose another encoding if "
        "letters look wrong"
    )
    return Decoded(text, "cp1252", (note,))


def _wide(data: bytes) -> str | None:
    """The UTF-16 that a file without a mark is in, told from the NULs between its characters."""
    sample = data[: _SAMPLE & ~1]
    first, second = sample[::2].count(0), sample[1::2].count(0)
    many, few = 0.7 * len(sample) / 2, 0.1 * len(sample) / 2
    if second > many and first <= few:
        return "utf-16-le"
    return "utf-16-be" if first > many and second <= few else None


def _place(codec: str, error: UnicodeDecodeError) -> str:
    # The codec that takes a mark off reports on what it left.
    byte, line = error.object[error.start], line_of(error.object[: error.start].decode(codec, "replace"))
    return f"byte 0x{byte:02X} in line {line} can't be read; choose the encoding of the file"
