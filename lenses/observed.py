"""The steps of an integral, each made to sum to the change of f that was observed over it.

Law: the parts of a step sum to its observed change, so that the parts of a path sum to f(end) −
f(start) at any number of steps. With c = gradient × change of every unit, a position's part is

    Σ c + (observed − Σ all c) · Σ|c| / Σ all |c|,

the inner sums over its units. Source: the principle of IDGI (Yang et al. 2023, arXiv 2303.14242),
which gives out all of the observed change in proportion to the squared gradient, so that every part
of a step has one sign. We give out only what the parts miss, which vanishes as steps grow, and per unit,
so that it does not matter how units are summed. Scaling by observed ÷ Σ c is no alternative: the sum
can be next to nothing where its parts are not.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lenses.errors import NonFinite


def closed(
    parts: Float[Tensor, "step position"],
    sizes: Float[Tensor, "step position"],
    observed: Float[Tensor, " step"],
) -> Float[Tensor, "step position"]:
    """The parts of each step, what they miss of `observed` given out in proportion to `sizes`.

    `sizes` is the sum of |c| over a position's units; where all of it is 0 (nothing changed, or no
    gradient is left of it in float32) the positions get equal parts. Raises `NonFinite`.
    """
    missing = observed - parts.sum(dim=-1)
    if not missing.isfinite().all():
        raise NonFinite(
            "a gradient on the path is not finite, so that its step can't be closed: choose another "
            "baseline, or load the model in float32"
        )
    whole = sizes.sum(dim=-1, keepdim=True)
    even = torch.full_like(sizes, 1 / sizes.shape[-1])
    return parts + missing[:, None] * torch.where(whole > 0, sizes / whole, even)


class Closing:
    """What flowed through every depth of a path, taken chunk by chunk, with each step closed.

    `starts` and `ends` are the states at both ends of the path, where f is known but no gradient is
    taken. Chunks overlap by one point, so that they leave out no step.
    """

    def __init__(
        self,
        starts: Float[Tensor, "depth position width"],
        ends: Float[Tensor, "depth position width"],
        f_start: float,
        f_end: float,
    ) -> None:
        self.total = starts.new_zeros(starts.shape[:2], dtype=torch.double)
        self._starts, self._ends = starts, ends
        self._f_end, self._level = f_end, self.total.new_tensor([f_start])
        self._begun = False

    def take(
        self,
        slopes: Sequence[Float[Tensor, "point position width"]],
        states: Sequence[Float[Tensor, "point position width"]],
        levels: Float[Tensor, " point"],
        last: bool,
    ) -> None:
        """Add the steps between these points; the first chunk comes from `starts`, the `last` goes to `ends`.

        The level of the point that two chunks share is that of the earlier, so that all of them telescope.
        """
        levels = torch.cat([self._level, levels[1:] if self._begun else levels])
        steps = torch.cat([levels, levels.new_tensor([self._f_end])] if last else [levels]).diff()
        for depth, (slope, state) in enumerate(zip(slopes, states, strict=True)):
            start = None if self._begun else self._starts[depth]
            self.total[depth] += _flowed(slope, state, steps, start, self._ends[depth] if last else None)
        self._begun, self._level = True, levels[-1:]


def _flowed(
    slopes: Float[Tensor, "point position width"],
    states: Float[Tensor, "point position width"],
    observed: Float[Tensor, " step"],
    start: Float[Tensor, "position width"] | None,
    end: Float[Tensor, "position width"] | None,
) -> Float[Tensor, " position"]:
    """What flowed at one depth: a step takes the mean of the gradients at its ends, or the one it has."""
    first, last = [] if start is None else [start[None]], [] if end is None else [end[None]]
    means = (slopes[1:] + slopes[:-1]) / 2
    means = torch.cat([slopes[: len(first)], means, slopes[len(slopes) - len(last) :]])
    found = means * torch.cat([*first, states, *last]).diff(dim=0)
    parts, sizes = found.sum(dim=-1, dtype=torch.double), found.abs().sum(dim=-1, dtype=torch.double)
    return closed(parts, sizes, observed).sum(dim=0)
