"""Which tuned lens a model has, and what it reads of a trace.

A lens is found by the model's fingerprint, never by its name: in the folder that is asked for, else in the
user's cache, where `lenses fit-tuned-lens` keeps a copy, else among those that are shipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from lenses import readout
from lenses.convert import cache
from lenses.decoder import Decoder
from lenses.errors import BadOption, UnsupportedLens
from lenses.fingerprint import fingerprint
from lenses.target import Target
from lenses.trace import Trace
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


def levels(
    decoder: Decoder, trace: Trace, target: Target, translators: Translators
) -> Float[ndarray, " depth"]:
    """The target's probability at depths 0…L as the translated states are read; depth L is the model's own.

    For a target of several tokens the product over its tokens, each predicted after those before it.
    """
    return remember(decoder, [(trace, target)], translators)[0]


def remember(
    decoder: Decoder, wanted: Sequence[tuple[Trace, Target]], translators: Translators
) -> list[Float[ndarray, " depth"]]:
    """`levels` of many targets, read in one pool of rows; kept with the traces, so that each is read once."""
    pieces = [
        [(trace, *place) for place in zip(target.positions, target.tokens, strict=True)]
        for trace, target in wanted
    ]
    unread = [
        one for parts in pieces for one in parts if _key(*one, translators) not in _memo(decoder, one[0])
    ]
    if unread:
        depths = list(range(decoder.blocks))
        states = torch.stack([trace.residual[:-1, position] for trace, position, _ in unread], dim=1)
        rows = translators.translate(depths, states).flatten(0, 1)
        tokens = torch.tensor([token for *_, token in unread]).repeat(decoder.blocks)
        found = readout.read(decoder, rows, tokens, fast=True).probability.reshape(decoder.blocks, -1)
        for k, one in enumerate(unread):
            last = readout.levels(decoder, *one, [decoder.blocks])
            _memo(decoder, one[0])[_key(*one, translators)] = np.concatenate([found[:, k], last])
    return [
        np.prod([_memo(decoder, one[0])[_key(*one, translators)] for one in parts], axis=0)
        for parts in pieces
    ]


def _memo(decoder: Decoder, trace: Trace) -> dict[Any, Any]:
    return trace.memo.setdefault(decoder, {})


def _key(trace: Trace, position: int, token: int, translators: Translators) -> tuple[Any, ...]:
    return translators, position, token, trace.residual.device, trace.residual._version
