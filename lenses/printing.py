"""What a command that explains one text prints or writes: a table or JSON, on stdout or in a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lenses import console
from lenses.errors import BadOption

if TYPE_CHECKING:
    from lenses.depth_map import DepthMap
    from lenses.outcome import Comparison


def refuse_unwritable(output: Path | None) -> None:
    """Say so before minutes of work, not after."""
    if output is not None and not output.parent.is_dir():
        raise BadOption(f"there is no folder {output.parent} to write {output.name} into: make it first")
    if output is not None and output.is_dir():
        raise BadOption(f"--output takes the name of a file, and {output} is a folder")


def write(found: Comparison | DepthMap, as_table: bool, output: Path | None) -> None:
    """The table or the JSON, on stdout or in a file."""
    if output is None:
        _print(found, as_table, sys.stdout)
        sys.stdout.flush()  # a reader that has gone away is noticed here, not at the interpreter's end
        return
    with open(output, "w", encoding="utf-8") as file:
        _print(found, as_table, file)


def _print(found: Comparison | DepthMap, as_table: bool, file: Any) -> None:
    from lenses import terminal
    from lenses.depth_map import DepthMap

    if as_table:
        if isinstance(found, DepthMap):
            terminal.depth_map(found, console.console(file=file))
        else:
            terminal.show(found, console.console(file=file))
        return
    escaped = not str(file.encoding).lower().startswith("utf")
    json.dump(found.to_dict(), file, ensure_ascii=escaped, allow_nan=False, indent=1)
    file.write("\n")
