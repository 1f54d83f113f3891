"""The straight path of input embeddings that Captum's two methods share, from a baseline to the prompt."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lenses import baseline, readout
from lenses.decoder import Decoder
from lenses.target import Target
from lenses.trace import Trace

MEMORY = 1 << 30
"""Bytes that the activations of one batch with gradients may take, by the estimate below."""

VECTORS = 20
"""How many vectors of the model's width a block keeps of a token for the backward pass."""


@dataclass(frozen=True)
class InputPath:
    """Both ends of the path up to the target's position (later tokens can't matter), and f there."""

    decoder: Decoder
    target: Target
    start: Float[Tensor, "position embedding"]
    end: Float[Tensor, "position embedding"]
    states: Float[Tensor, "depth position width"]
    """The residual under the baseline input."""
    f_start: float
    f_end: float

    def f(self, logits: Float[Tensor, "batch 1 vocabulary"]) -> Float[Tensor, " batch"]:
        """The target's probability, differentiable."""
        return readout.chance(logits[:, 0], self.target.token)

    def fits(self, depth: int = 0, recompute: bool = False) -> int:
        """How many sequences that start at a depth can run at once with gradients within `MEMORY`.

        A block keeps about twenty vectors a token for the backward pass, or two where it is run again.
        """
        return int(MEMORY // self.weighs(depth, recompute))

    def weighs(self, depth: int, recompute: bool = False) -> int:
        """About how many bytes one sequence keeps that starts at a depth."""
        decoder = self.decoder
        vector, blocks = 4 * decoder.width * len(self.end), decoder.blocks - depth
        kept = (2 * blocks + VECTORS) if recompute else VECTORS * max(blocks, 1)
        return kept * vector + 16 * decoder.vocabulary


def input_path(decoder: Decoder, trace: Trace, target: Target, name: str, token: int) -> InputPath:
    """The path from the named baseline to the prompt; raises `BadOption` for a bad baseline."""
    kept = target.position + 1
    end = decoder.embed(trace.ids)[:kept]
    start = baseline.embedding(name, decoder, trace.ids, token)[:kept]
    with torch.no_grad():
        states, logits = decoder.flow(start[None], [target.position])
    return InputPath(
        decoder, target, start, end, torch.cat(states),
        f_start=float(readout.chance(logits[:, 0], target.token)),
        f_end=float(readout.level(decoder, trace[-1][target.position : kept], target.token)[0]),
    )  # fmt: skip


def padded(positions: Float[Tensor, "depth kept"], count: int) -> Float[Tensor, "depth position"]:
    """Zeros for the positions after the target's: they can't have had a part in it."""
    return torch.nn.functional.pad(positions, (0, count - positions.shape[1]))
