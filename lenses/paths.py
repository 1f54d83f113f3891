"""The straight path of input embeddings that Captum's two methods share, from a baseline to the prompt.

f is the probability of the target; of a target of several tokens, the joint probability Π p that they
follow one another. The path then runs up to the last position after which one of them is predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lenses import baseline, readout
from lenses.attribution import Attribution, Unit, check
from lenses.decoder import Decoder
from lenses.lens import Lens
from lenses.target import Target
from lenses.trace import Trace

MEMORY = 1 << 30
"""Bytes that the activations of one batch with gradients may take, by the estimate below."""

VECTORS = 20
"""How many vectors of the model's width a block keeps of a token for the backward pass."""


@dataclass(frozen=True)
class InputPath:
    """Both ends of the path up to the target's last position (later tokens can't matter), and f there.

    In float32 at least, whatever the model's number format: points between them and sums are ours.
    """

    decoder: Decoder
    target: Target
    start: Float[Tensor, "position embedding"]
    end: Float[Tensor, "position embedding"]
    states: Float[Tensor, "depth position width"]
    """The residual under the baseline input."""
    ends: Float[Tensor, "depth position width"]
    """The residual under the prompt."""
    f_start: float
    f_end: float

    @property
    def positions(self) -> list[int]:
        """The positions whose logits f is made of."""
        return list(self.target.positions)

    def f(self, logits: Float[Tensor, "batch token vocabulary"]) -> Float[Tensor, " batch"]:
        """The target's probability, differentiable."""
        return joint(logits.float(), self.target.tokens)

    def observed(self, logits: Float[Tensor, "batch token vocabulary"]) -> Float[Tensor, " batch"]:
        """The same in float64, without a gradient and a row at a time."""
        rows = logits.detach().split(1)
        return torch.cat([joint(row.double(), self.target.tokens) for row in rows])

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
        return kept * vector + 16 * decoder.vocabulary * len(self.target.tokens)


def input_path(decoder: Decoder, trace: Trace, target: Target, name: str, token: int) -> InputPath:
    """The path from the named baseline to the prompt; raises `BadOption` for a bad baseline, and
    `UnsupportedLens` for a model that no gradient goes through."""
    decoder.refuse_cut("a path of input embeddings")
    places = list(target.positions)
    kept = places[-1] + 1
    end = decoder.embed(trace.ids)[:kept]
    start = baseline.embedding(name, decoder, trace.ids, token)[:kept]
    with torch.no_grad():
        states, logits = decoder.flow(start[None], places)
    wanted = torch.tensor(target.tokens, device=trace.residual.device)
    return InputPath(
        decoder, target, wide(start), wide(end), wide(torch.cat(states)), wide(trace.residual[:, :kept]),
        f_start=float(joint(logits.float(), target.tokens)),
        f_end=float(readout.read(decoder, trace[-1][places], wanted).probability.prod()),
    )  # fmt: skip


def wide(values: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """The same in float32 at least."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def joint(logits: Float[Tensor, "row token vocabulary"], tokens: Sequence[int]) -> Float[Tensor, " row"]:
    """The probability that all of `tokens` follow, each predicted by logits of its own; differentiable."""
    logs = [logits[:, k, token] - logits[:, k].logsumexp(dim=-1) for k, token in enumerate(tokens)]
    return torch.stack(logs).sum(dim=0).exp()


def attribution(
    lens: Lens,
    path: InputPath,
    gradient: Float[Tensor, "block kept"],
    observed: Float[Tensor, "block kept"] | None,
    count: int,
) -> Attribution:
    """What a lens found for `count` positions: an integral, or steps that sum to what was observed.

    The latter say too what the integral itself would be off by, as the one judge sees it.
    """

    def made(found: Float[Tensor, "block kept"], quadrature: bool) -> Attribution:
        positions = padded(found, count).cpu().numpy()
        return Attribution(
            lens.name, lens.options, Unit.PROBABILITY, lens.claim, np.arange(1, len(found) + 1),
            positions.sum(axis=1), path.f_start, path.f_end, positions=positions, quadrature=quadrature,
        )  # fmt: skip

    integral = made(gradient, quadrature=True)
    if observed is None:
        return integral
    return replace(made(observed, quadrature=False), plain_gap=check(integral).gap)


def padded(positions: Float[Tensor, "depth kept"], count: int) -> Float[Tensor, "depth position"]:
    """Zeros for the positions after the target's last: they can't have had a part in it."""
    return torch.nn.functional.pad(positions, (0, count - positions.shape[1]))
