"""Which tuned lens a model has.

A lens is found by the model's fingerprint, never by its name: in the folder that is asked for, else in the
user's cache, where `lenses fit-tuned-lens` keeps a copy, else among those that are shipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakKeyDictionary

from lenses.convert import cache
from lenses.decoder import Decoder
from lenses.errors import BadOption, UnsupportedLens
from lenses.fingerprint import fingerprint
from lenses.translators import PUBLIC_RECORD, RECORD, Translators, load

SHIPPED = (
    Path(__file__).parent / "shipped" / "tuned",
    Path(__file__).parent.parent / "assets" / "tuned",
)
"""Where shipped lenses are: in an installed wheel, or in the repository."""

_loaded: WeakKeyDictionary[Decoder, dict[tuple[Path, int], Translators]] = WeakKeyDictionary()


def kept(decoder: Decoder) -> Path:
    """Where the user's cache has, or would have, the tuned lens of this model."""
    return cache() / "tuned" / fingerprint(decoder)[:16]


def find(decoder: Decoder, folder: str | None = None) -> Translators:
    """The model's translators, read once: those of `folder` if given, else the first that fit it.

    Raises `UnsupportedLens` where there are none and where weights are not in memory, and `BadOption` for
    a folder of another model or without a lens.
    """
    place = Path(folder).expanduser() if folder else next(_places(decoder), None)
    if place is None:
        raise UnsupportedLens(
            f"there is no tuned lens for {decoder.name or 'this model'} yet: fit one with `lenses "
            f"fit-tuned-lens CORPUS.txt --model {decoder.name or 'MODEL'} --output FOLDER`"
        )
    record = next((path for name in (RECORD, PUBLIC_RECORD) if (path := place / name).is_file()), None)
    if record is None:
        raise BadOption(f"there is no tuned lens in {place}: give the folder that a lens was saved into")
    key = place, record.stat().st_mtime_ns
    known = _loaded.setdefault(decoder, {})
    if key not in known:
        known[key] = load(place, decoder)
    return known[key]


def _places(decoder: Decoder) -> Iterator[Path]:
    """Folders with a lens of this model, the user's own first."""
    if (own := kept(decoder)).joinpath(RECORD).is_file():
        yield own
    for shelf in SHIPPED:
        for record in sorted(shelf.glob(f"*/{RECORD}")):
            if json.loads(record.read_text(encoding="utf-8"))["fingerprint"] == fingerprint(decoder):
                yield record.parent
