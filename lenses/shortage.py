"""Memory that runs out: told from every other error, and said in one sentence.

Law: whatever library notices it, and under whatever name, it is `NoRoom`; no other error is taken for it.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from lenses.errors import NoRoom

SIGNS = ("out of memory", "can't allocate memory", "ALLOC_FAILED")
"""What a RuntimeError says of it that has no class of its own: of a device's driver, of the allocator of
the CPU, of cuBLAS and its like."""

LESS = "shorten the text, take a smaller model or number format, or a machine with more"
"""What to do about it where a model is there already."""

SMALLER = "choose a smaller number format or model, or device auto (--device auto)"
"""What to do about it where a model is being loaded."""


def no_room(error: BaseException, what: str, ways: str = LESS) -> NoRoom | None:
    """The sentence for memory that ran out over `what`, with `ways` out; None for any other error."""
    if not ran_out(error):
        return None
    asked = re.search(r"allocate ([\d.]+ \w+)", str(error))
    figure = f" ({asked[1]} more were asked for)" if asked else ""
    return NoRoom(f"there is not enough memory for {what}{figure}: {ways}")


@contextmanager
def noticed(what: str, ways: str = LESS) -> Iterator[None]:
    """Raise `NoRoom` where memory runs out over `what`; every other error passes."""
    try:
        yield
    except Exception as error:
        short = no_room(error, what, ways)
        if short is None:
            raise
        raise short from error


def ran_out(error: BaseException) -> bool:
    """Whether an error says that there is no more memory, on whatever device."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    torch = sys.modules.get("torch")  # where nothing has imported it, no error comes from it
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS)
