"""Half steps: what attention and what the MLP gave of a block's share.

Law: with the middle m[b], what block b makes of h[b] with its MLP silenced, any reading f splits into
f(m[b]) − f(h[b]), attention's half, and f(h[b+1]) − f(m[b]), the MLP's, which telescope to the block's
share. Where the two run in parallel (GPT-J, Phi, Falcon …) neither comes first in the model; that
attention is counted first is our convention. A block without such parts (Mamba, a norm after the sum)
has no halves, and its numbers are NaN: never a guess. Source: the residual stream of Elhage et al., "A
Mathematical Framework for Transformer Circuits" (2021); which parts a block has is shown in `sublayers`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, cast

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from lenses.decoder import Decoder
from lenses.errors import NonFinite
from lenses.proof import remedy
from lenses.trace import Trace

Kind = Literal["sequential", "parallel", "whole"]
"""How a block's attention and MLP run; `whole`: it has no such parts, or they can't be told apart."""

Read = Callable[[list[int]], Float[ndarray, " block"]]
"""A reading of the middles of some blocks."""


@dataclass(frozen=True)
class Middle:
    """The state inside each block after attention and before the MLP; rows of NaN where it is `whole`."""

    states: Float[Tensor, "block position width"]
    kinds: tuple[Kind, ...]

    @property
    def known(self) -> list[int]:
        """The blocks that have a middle."""
        return [block for block, kind in enumerate(self.kinds) if kind != "whole"]


def kinds(decoder: Decoder) -> tuple[Kind, ...]:
    """How each block's parts run; found out once for a decoder, in some ten passes of four tokens."""
    return tuple(
        "whole" if parts is None else "parallel" if parts.parallel else "sequential"
        for parts in decoder.sublayers
    )


def middle(decoder: Decoder, trace: Trace) -> Middle:
    """The middles of a trace, in one pass without MLPs; kept with the trace.

    Raises `NonFinite`, naming the block, where a middle is infinite or not a number.
    """
    memo = trace.memo.setdefault(decoder, {})
    key = ("halves", trace.residual.device, trace.residual._version)
    if key not in memo:
        memo[key] = _finite(decoder, Middle(decoder.middles(trace), kinds(decoder)))
    return cast(Middle, memo[key])


def split(found: Middle, levels: Float[ndarray, " depth"], read: Read) -> Float[ndarray, "block 2"]:
    """What attention (column 0) and MLP (column 1) gave of each block's change of a reading.

    `levels` are the readings of depths 0…L, and `read` reads the middles of some blocks as these were
    read. The two add up to `levels[b + 1] − levels[b]`, to rounding in float64; NaN for a whole block.
    """
    between = np.full(len(found.kinds), np.nan)
    if found.known:
        between[found.known] = read(found.known)
    return np.stack([between - levels[:-1], levels[1:] - between], axis=1)


def between(halves: Float[ndarray, "block 2"], depths: Sequence[int]) -> Float[ndarray, "step 2"]:
    """The halves of steps from each of `depths` to the next: summed over the blocks in between.

    A step over a block without halves has none.
    """
    steps = [halves[first:last].sum(axis=0) for first, last in pairwise(depths)]
    return np.array(steps).reshape(-1, 2)


def added(
    found: Middle, states: Float[Tensor, "depth width"], position: int
) -> Float[Tensor, "block 2 width"]:
    """What attention and MLP really add to the state at a position: with norms, multipliers and all."""
    middles = found.states[:, position]
    return torch.stack([middles - states[:-1], states[1:] - middles], dim=1)


def _finite(decoder: Decoder, found: Middle) -> Middle:
    known = torch.tensor(found.known, dtype=torch.long, device=found.states.device)
    wrong = ~torch.stack([state.isfinite().all() for state in found.states])[known]
    if wrong.any():
        raise NonFinite(
            f"the state between attention and MLP in block {int(known[wrong][0])} of "
            f"{decoder.name or 'the model'} is not finite{remedy(decoder.dtype)}"
        )
    return found
