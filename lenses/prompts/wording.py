"""How a message shows what a user wrote: quoted, cut, and on one line."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST = 60
MOST = 12
"""Names that a message lists at most."""


def shown(text: str) -> str:
    """`text` in quotes, cut to about 60 characters; what can't be seen is written out."""
    return repr(text) if len(text) <= LONGEST else repr(text[:LONGEST]) + "…"


def plain(text: str) -> str:
    """`text` without quotes where that is safe to read, as `shown` elsewhere."""
    return text if text.isprintable() and len(text) <= LONGEST else shown(text)


def counted(count: int, thing: str) -> str:
    """“1 row”, “2 rows”."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def listed(names: Sequence[str]) -> str:
    """The names in quotes, the first twelve of them."""
    first = ", ".join(map(shown, names[:MOST]))
    return first if len(names) <= MOST else f"{first} and {len(names) - MOST} more"
