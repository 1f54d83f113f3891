"""Which tokens rise and fall on the way: of the whole vocabulary, not of the few that are likeliest.

Law: in each block all gains together are all losses, and a token's best depth is where it is likeliest,
not the last. Distributions are read a few depths at a time, by the model's own tail, so that what is
alive fits `readout.BUDGET`, beside two numbers a token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from lenses.errors import NonFinite
from lenses.tokens import text_of

if TYPE_CHECKING:
    from torch import Tensor

    from lenses.decoder import Decoder
    from lenses.trace import Trace


@dataclass(frozen=True)
class Move:
    """A token's probability before a block and after it."""

    id: int
    text: str
    before: float
    after: float

    @property
    def change(self) -> float:
        return self.after - self.before


@dataclass(frozen=True)
class Moves:
    """The tokens that gained and that lost most in a block, the largest change first, and how much moved
    in all: half the sum of all changes' sizes, so 1 where nothing stayed."""

    block: int
    gained: tuple[Move, ...]
    lost: tuple[Move, ...]
    moved: float


@dataclass(frozen=True)
class Peak:
    """A token, the depth at which it is likeliest, its probability there, and at every depth."""

    id: int
    text: str
    depth: int
    probability: float
    levels: Float[ndarray, " depth"]


def movers(decoder: Decoder, trace: Trace, position: int, count: int = 5) -> tuple[Moves, ...]:
    """For each block the `count` tokens that gained and lost most probability, fewer where fewer did."""
    found = []
    states = (row for chunk in _distributions(decoder, trace, position) for row in chunk)
    for block, (before, after) in enumerate(pairwise(states)):
        change = after - before
        up, down = (part.topk(min(count, len(change))).indices for part in (change, -change))
        gained, lost = (_moves(decoder, ids, before, after) for ids in (up, down))
        found.append(
            Moves(
                block,
                tuple(move for move in gained if move.change > 0),
                tuple(move for move in lost if move.change < 0),
                float(change.abs().sum() / 2),
            )
        )
    return tuple(found)


def peaks(decoder: Decoder, trace: Trace, position: int, count: int = 12) -> tuple[Peak, ...]:
    """The `count` tokens that are likeliest at any depth, the likeliest first, each at its best depth
    (the first of equal ones)."""
    import torch

    best: Tensor | None = None
    where = torch.empty(0)
    depth = 0
    for chunk in _distributions(decoder, trace, position):
        highest, row = chunk.max(dim=0)
        if best is None:
            best, where = highest, row
        else:
            higher = highest > best
            best = torch.where(higher, highest, best)
            where = torch.where(higher, row + depth, where)
        depth += len(chunk)
    assert best is not None
    ids = best.topk(min(count, len(best))).indices
    parts = [chunk[:, ids].double().cpu().numpy() for chunk in _distributions(decoder, trace, position)]
    levels = np.concatenate(parts)
    return tuple(
        Peak(id, text_of(decoder.tokenizer, id), at, float(levels[at, k]), levels[:, k])
        for k, (id, at) in enumerate(zip(ids.tolist(), where[ids].tolist(), strict=True))
    )


def _moves(decoder: Decoder, ids: Tensor, before: Tensor, after: Tensor) -> list[Move]:
    rows = zip(ids.tolist(), before[ids].tolist(), after[ids].tolist(), strict=True)
    return [Move(id, text_of(decoder.tokenizer, id), old, new) for id, old, new in rows]


def _distributions(
    decoder: Decoder, trace: Trace, position: int
) -> Iterator[Float[Tensor, "depth vocabulary"]]:
    """What each depth says of every token, a few depths at a time, from the first to the last."""
    import torch

    from lenses import readout

    # Two chunks are alive at the border between them, and beside them what is made of two rows.
    size = max(1, readout.chunk_rows(decoder) // 4)
    with torch.no_grad():
        for rows in trace.residual[:, position].split(size):
            logits = decoder.readout(rows).float()
            highest = logits.amax(dim=-1, keepdim=True)
            powers = logits.sub_(highest).clamp_(min=readout.LEAST).exp_()
            chunk = powers.div_(powers.sum(dim=-1, keepdim=True))
            if not chunk.isfinite().all():
                raise NonFinite(
                    "a depth of this text reads as no number, so that no token can be ranked there"
                )
            yield chunk
