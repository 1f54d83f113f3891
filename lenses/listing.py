"""What the commands over a list of prompts share: its file, its folder and its estimate."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lenses import console
from lenses.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lenses.decoder import Decoder
    from lenses.lens import Lens
    from lenses.prompts import Manner, PromptList


def read(file: Path, manner: Manner) -> PromptList:
    """The list in a file; how it was read is said on stderr."""
    from lenses import prompts

    name = os.fsencode(file.name).decode("utf-8", "replace")  # names of files need not be text
    listed = prompts.read(file.read_bytes(), name, manner)
    said = console.console(stderr=True)
    said.print(listed.described(), markup=False, soft_wrap=True)
    for note in (*listed.notes, *(row.problem for row in listed.bad[:5])):
        said.print(f"Note: {note}", markup=False, soft_wrap=True)
    return listed


def estimate(decoder: Decoder, listed: PromptList, lenses: Sequence[Lens]) -> None:
    """Say on stderr how long the slow lenses will take; nothing where there is none."""
    from lenses import report

    if slow := [lens for lens in lenses if lens.slow]:
        seconds = console.watched(report.estimating(decoder, listed.rows, slow))
        names = ", ".join(lens.name for lens in slow)
        console.console(stderr=True).print(f"{names}: about {seconds / 60:.0f} min for this list")


def refuse_no_folder(output: Path) -> None:
    """Say so before minutes of work, not after."""
    if output.exists() and not output.is_dir():
        raise BadOption(f"--output takes the name of a folder, and {output} is a file")


def delimiter(text: str | None) -> str | None:
    """The character that a word or the character itself stands for."""
    words = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|", "none": ""}
    return text if text is None else words.get(text, text)
