"""What blocks may add to the state in place of their own updates: a mean over prompts, or another's.

Law: the update of block b is h[b+1] − h[b] at each position; attention's part of it is m[b] − h[b] and
the MLP's h[b+1] − m[b], with the middle m of `halves`. A prompt whose updates are replaced by its own
is left as it was. Sources: mean and resample ablation as in Wang et al., "Interpretability in the Wild"
(2022), and Chan et al., "Causal Scrubbing" (2022).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lenses import halves
from lenses.decoder import Decoder
from lenses.errors import BadPrompt
from lenses.sublayers import Half
from lenses.target import Target
from lenses.trace import Trace


class Replacement(Protocol):
    """What each block adds instead, as a whole or as one `half`; rows of NaN where it has no halves."""

    @property
    def half(self) -> Half | None: ...

    def at(self, count: int, last: bool) -> Float[Tensor, "block some width"]:
        """For the last `count` positions of a prompt, which are the target's alone if `last`; for fewer
        of them where there is nothing to put in, which keep their own updates."""
        ...


@dataclass(frozen=True)
class Mean:
    """The mean update over a list of prompts.

    The first position has a mean of its own, since its states are outliers, often a hundred times as
    large as all others; those after it share one, and what replaces the target's position `alone` is
    the mean over the positions after which the list's targets are predicted.
    """

    half: Half | None
    first: Float[Tensor, "block width"]
    others: Float[Tensor, "block width"]
    alone: Float[Tensor, "block width"]

    def at(self, count: int, last: bool) -> Float[Tensor, "block some width"]:
        if last:
            return self.alone[:, None].expand(-1, count, -1)
        return torch.stack([self.first, *[self.others] * (count - 1)], dim=1)


@dataclass(frozen=True)
class Other:
    """The updates of another prompt, both aligned at the last position after which a target is predicted.

    Where the other one is shorter, the first positions keep their own updates.
    """

    half: Half | None
    updates: Float[Tensor, "block position width"]

    def at(self, count: int, last: bool) -> Float[Tensor, "block some width"]:  # noqa: ARG002
        return self.updates[:, -count:]


@torch.no_grad()
def own(decoder: Decoder, trace: Trace, half: Half | None = None) -> Float[Tensor, "block position width"]:
    """What each block, or one half of it, adds to the state; NaN for a block that has no halves."""
    if half is None:
        return trace.residual[1:] - trace.residual[:-1]
    middles = halves.middle(decoder, trace).states
    return middles - trace.residual[:-1] if half == "attention" else trace.residual[1:] - middles


def other(decoder: Decoder, trace: Trace, target: Target, half: Half | None = None) -> Other:
    """Another prompt's updates, up to the last position after which its target is predicted."""
    return Other(half, own(decoder, trace, half)[:, : target.positions[-1] + 1])


def mean(decoder: Decoder, asked: Iterable[tuple[Trace, Target]], half: Half | None = None) -> Mean:
    """The mean updates over a list of prompts, taken one by one, up to each one's target; in float64.

    Raises `BadPrompt` for fewer than two prompts, and where none has a second position.
    """
    prompts, sums, counts = 0, [torch.zeros(())] * 3, [0] * 3
    for trace, target in asked:
        updates = own(decoder, trace, half)[:, : target.positions[-1] + 1].double()
        parts = updates[:, :1], updates[:, 1:], updates[:, target.position :]
        sums = [known.to(part) + part.sum(dim=1) for known, part in zip(sums, parts, strict=True)]
        counts = [known + part.shape[1] for known, part in zip(counts, parts, strict=True)]
        prompts += 1
    if prompts < 2:
        raise BadPrompt(f"a mean over prompts needs at least two of them, not {prompts}")
    if not counts[1]:
        raise BadPrompt("a mean over positions needs a prompt of at least two tokens: all have one")
    return Mean(half, *(known / count for known, count in zip(sums, counts, strict=True)))


def partners(count: int, seed: int = 0) -> list[int]:
    """For each of `count` prompts the number of another one, drawn at random, the same for a seed.

    Raises `BadPrompt` for fewer than two prompts.
    """
    if count < 2:
        raise BadPrompt(f"to take updates from another prompt needs at least two of them, not {count}")
    drawn = np.random.default_rng(seed).integers(count - 1, size=count)
    return [int(one) + (one >= k) for k, one in enumerate(drawn)]
