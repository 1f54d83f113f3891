"""IG-Lens: one ledger of the target's probability, from a baseline to the model's own answer.

Law: the shares sum to f(h[L]) − f(baseline), whatever depths are chosen, since neighbouring levels
telescope. Source: D. A. Nguyen, arXiv 2606.29693.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from lenses.attribution import Attribution, Claim, Unit
from lenses.errors import BadOption
from lenses.lens import Card, Options, option
from lenses.progress import Progress, finish
from lenses.quadrature import Rule, rule

if TYPE_CHECKING:
    from torch import Tensor

    from lenses.decoder import Decoder
    from lenses.target import Target
    from lenses.trace import Trace


@dataclass(frozen=True)
class IGLens(Options):
    """Shares of probability between neighbouring depths, read by the model's own norm and head."""

    name: ClassVar[str] = "ig-lens"
    title: ClassVar[str] = "IG-Lens"
    claim: ClassVar[Claim] = Claim.ACROSS
    source: ClassVar[str] = "D. A. Nguyen, arXiv 2606.29693"
    card: ClassVar[Card] = Card(
        measures="How much of the target's probability each block adds or takes away, as the model's "
        "own norm and head read it.",
        formula=r"s_b = f(h_{b+1}) - f(h_b), \qquad \sum_b s_b = f(h_L) - f(h_0), \qquad "
        r"f(h) = \mathrm{softmax}(\mathrm{head}(\mathrm{norm}(h)))_t",
        adds_up="The shares telescope: whatever depths are chosen, they sum to the change of "
        "probability, to the last bit of float64. With the gradient estimator they are an integral, "
        "and the gap falls as steps grow.",
        cost="One forward pass and one head product a depth (gradient: steps × depths, forward and back).",
        caveats="With the observed estimator this is the first difference of the logit lens's "
        "probability; what it adds is the ledger. More steps change nothing, by construction. It "
        "measures what can be read out at a depth, not what causes the answer.",
    )

    estimator: Literal["observed", "gradient"] = option(
        "observed", "observed differences (exact), or the integral of the gradient between depths"
    )
    baseline: Literal["embedding", "mean", "zero", "token", "end-of-text", "corpus"] = option(
        "embedding",
        "where the path starts: at depth 0 of the token itself, of the prompt's mean, of zeros, of another "
        "token in its place, of the token that ends a text, or of a text's mean",
        live=True,
    )
    token: int = option(0, "the id of the token to start from", when=("baseline", "token"))
    corpus: str | None = option(
        None, "the text to take the mean of; a short one of ours if empty", when=("baseline", "corpus")
    )
    depths: tuple[int, ...] | None = option(
        None, "which depths to keep (the last always is); all if none", live=True
    )
    steps: int = option(
        32, "points of the integral in each segment", when=("estimator", "gradient"), least=1, most=1000
    )
    rule: Rule = option("gauss-legendre", "how the points are placed", when=("estimator", "gradient"))

    @property
    def slow(self) -> bool:
        return self.estimator == "gradient"

    def attribute(self, decoder: Decoder, trace: Trace, target: Target) -> Attribution:
        return finish(self.attributing(decoder, trace, target))

    def attributing(
        self, decoder: Decoder, trace: Trace, target: Target
    ) -> Generator[Progress, None, Attribution]:
        import torch

        from lenses import baseline, readout

        depths = self._depths(trace.blocks)
        yield Progress("reading every depth")
        levels = readout.levels(decoder, trace, target.position, target.token, [0, *depths])
        start = baseline.residual(
            self.baseline, decoder, trace, target.position, self.token, self.corpus
        )  # fmt: skip
        if self.baseline != "embedding":
            levels[0] = readout.level(decoder, start[None], target.token)[0]
        if self.slow:
            path = torch.cat([start[None], trace.residual[list(depths), target.position]])
            values = yield from self._integrated(decoder, path, target.token)
        else:
            values = np.diff(levels)
        return self._made(depths, levels, values)

    def levels(self, blocks: int) -> tuple[int, ...]:
        return (0, *self._depths(blocks))

    def sketch(self, depths: Sequence[int], levels: Float[ndarray, " depth"]) -> Attribution | None:
        if self.slow or self.baseline != "embedding" or self.depths is not None:
            return None
        return self._made(depths[1:], levels, np.diff(levels))

    def _made(
        self, depths: Sequence[int], levels: Float[ndarray, " depth"], values: Float[ndarray, " block"]
    ) -> Attribution:
        return Attribution(
            self.name, self.options, Unit.PROBABILITY, self.claim, np.array(depths), values,
            start=float(levels[0]), end=float(levels[-1]), quadrature=self.slow,
        )  # fmt: skip

    def _depths(self, blocks: int) -> tuple[int, ...]:
        """The chosen depths after 0, where the path starts anyway, and always the last."""
        chosen = range(1, blocks + 1) if self.depths is None else self.depths
        if wrong := [depth for depth in chosen if not 0 <= depth <= blocks]:
            raise BadOption(f"ig-lens: depth {wrong[0]} is outside 0…{blocks} of this model")
        return tuple(sorted({*chosen, blocks} - {0}))

    def _integrated(
        self, decoder: Decoder, path: Float[Tensor, "depth width"], token: int
    ) -> Generator[Progress, None, Float[ndarray, " segment"]]:
        """∫ ∇f · dh along each straight segment of the path, by the chosen rule."""
        import torch

        from lenses import readout

        nodes, weights = rule(self.rule, self.steps)
        segment = torch.arange(len(path) - 1).repeat_interleave(self.steps)
        along = path.new_tensor(nodes).repeat(len(path) - 1)[:, None]
        change = path.diff(dim=0)
        slopes: list[Tensor] = []
        # The backward pass keeps the logits and their softmax beside each other.
        size = max(1, readout.chunk_rows(decoder) // 4)
        for part, part_along in zip(segment.split(size), along.split(size), strict=True):
            yield Progress("integrating between depths", sum(map(len, slopes)), len(segment))
            points = (path[part] + part_along * change[part]).requires_grad_()
            (slope,) = torch.autograd.grad(readout.probability(decoder, points, token).sum(), points)
            slopes.append((slope.double() * change[part].double()).sum(dim=-1))
        return torch.cat(slopes).reshape(-1, self.steps).cpu().numpy() @ weights
