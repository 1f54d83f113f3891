"""IG-Lens: one ledger of the target's probability, from a baseline to the model's own answer.

Law: the shares sum to f(h[L]) − f(baseline), whatever depths are chosen, since neighbouring levels
telescope. Source: D. A. Nguyen, arXiv 2606.29693.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from lenses.attribution import Attribution, Claim
from lenses.errors import BadOption
from lenses.lens import Card, Options, option
from lenses.progress import Progress, finish
from lenses.quadrature import Rule, rule
from lenses.readouts import AGAINST, MEANINGS, UNITS, Readout

if TYPE_CHECKING:
    from torch import Tensor

    from lenses.decoder import Decoder
    from lenses.measure import Measure
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
    token: int = option(0, "the id of the token to start from", when=("baseline", "token"), live=True)
    corpus: str | None = option(
        None, "the text to take the mean of; a short one of ours if empty", when=("baseline", "corpus"),
        live=True,
    )  # fmt: skip
    readout: Readout | Literal["tuned"] = option(
        "probability", "what is read of the target, which the ledger is kept in", live=True, shared=True,
        meanings=MEANINGS,
    )  # fmt: skip
    against: str = option(
        "", "the other word, for difference and log-odds", when=("readout", *AGAINST), live=True, shared=True,
        word=True,
    )  # fmt: skip
    folder: str | None = option(
        None, "a folder with a tuned lens of this model; found by itself if none", when=("readout", "tuned"),
        shared=True, path=True,
    )  # fmt: skip
    depths: tuple[int, ...] | None = option(
        None, "which depths to keep (the last always is); all if none", live=True
    )
    steps: int = option(
        32, "points of the integral in each segment", when=("estimator", "gradient"), least=1, most=1000
    )
    rule: Rule = option("gauss-legendre", "how the points are placed", when=("estimator", "gradient"))
    halves: bool = option(
        False, "also what attention and MLP gave, where a block has them", when=("estimator", "observed")
    )

    @property
    def slow(self) -> bool:
        return self.estimator == "gradient"

    def available(self, decoder: Decoder) -> str:
        from lenses.methods.tuned_lens import TunedLens

        return TunedLens(folder=self.folder).available(decoder) if self.readout == "tuned" else ""

    def attribute(self, decoder: Decoder, trace: Trace, target: Target) -> Attribution:
        return finish(self.attributing(decoder, trace, target))

    def attributing(
        self, decoder: Decoder, trace: Trace, target: Target
    ) -> Generator[Progress, None, Attribution]:
        from lenses import baseline, tuned
        from lenses.measure import measure

        depths = self._depths(trace.blocks)
        yield Progress("reading every depth")
        translators = tuned.find(decoder, self.folder) if self.readout == "tuned" else None
        if self.halves and translators is not None:
            raise BadOption(
                "ig-lens: halves can't be read through a tuned lens, which has no map between attention and "
                "MLP: take another readout, or leave halves"
            )
        f = measure(decoder, trace, target, self.readout, self.against, translators)
        if self.halves:  # all at once, so that chosen depths and those between were read alike
            f.levels(range(trace.blocks + 1))
        found = f.levels([0, *depths])
        starts = [
            baseline.residual(self.baseline, decoder, place.trace, place.position, self.token, self.corpus)
            for place in f.places
        ]
        starts = [f.translated(start[None], [0])[0] for start in starts]
        if self.baseline != "embedding":
            found = found.begun(f.read([start[None] for start in starts]))
        if self.slow:
            values = yield from self._integrated(f, starts, depths)
            return self._made(depths, found.values, values)
        pieces = None if found.pieces is None else np.diff(found.pieces, axis=0)
        made = self._made(depths, found.values, np.diff(found.values), pieces)
        if not self.halves:
            return made
        yield Progress("reading between attention and MLP")
        return replace(made, halves=self._halves(f, depths))

    def _halves(self, f: Measure, depths: Sequence[int]) -> Float[ndarray, "step 2"]:
        """What attention and MLP gave of each value; a path that starts elsewhere has no first halves."""
        from lenses import halves

        middles = [halves.middle(f.decoder, place.trace) for place in f.places]

        def read(blocks: list[int]) -> Float[ndarray, " block"]:
            pairs = zip(middles, f.places, strict=True)
            return f.read([middle.states[blocks, place.position] for middle, place in pairs]).values

        found = halves.split(middles[0], f.levels(range(f.decoder.blocks + 1)).values, read)
        made = halves.between(found, [0, *depths])
        if self.baseline != "embedding":
            made[0] = np.nan
        return made

    def levels(self, blocks: int) -> tuple[int, ...]:
        return (0, *self._depths(blocks))

    def sketch(self, depths: Sequence[int], levels: Float[ndarray, " depth"]) -> Attribution | None:
        if self.slow or (self.baseline, self.readout, self.depths) != ("embedding", "probability", None):
            return None
        return self._made(depths[1:], levels, np.diff(levels))

    def _made(
        self,
        depths: Sequence[int],
        levels: Float[ndarray, " depth"],
        values: Float[ndarray, " block"],
        pieces: Float[ndarray, "block piece"] | None = None,
    ) -> Attribution:
        return Attribution(
            self.name, self.options, UNITS[self.readout], self.claim, np.array(depths), values,
            start=float(levels[0]), end=float(levels[-1]), quadrature=self.slow, pieces=pieces,
        )  # fmt: skip

    def _depths(self, blocks: int) -> tuple[int, ...]:
        """The chosen depths after 0, where the path starts anyway, and always the last."""
        chosen = range(1, blocks + 1) if self.depths is None else self.depths
        if wrong := [depth for depth in chosen if not 0 <= depth <= blocks]:
            raise BadOption(f"ig-lens: depth {wrong[0]} is outside 0…{blocks} of this model")
        return tuple(sorted({*chosen, blocks} - {0}))

    def _integrated(
        self, f: Measure, starts: Sequence[Float[Tensor, " width"]], depths: Sequence[int]
    ) -> Generator[Progress, None, Float[ndarray, " segment"]]:
        """∫ ∇f · dh along each straight segment of the path, by the chosen rule; where a readout is made
        of several places, all of them go along together."""
        import torch

        from lenses import readout
        from lenses.paths import wide

        f.decoder.refuse_cut("IG-Lens with its gradient estimator", tail=True)
        nodes, weights = rule(self.rule, self.steps)
        paths = [
            wide(torch.cat([start[None], f.states(place, depths)]))
            for start, place in zip(starts, f.places, strict=True)
        ]
        segment = torch.arange(len(depths)).repeat_interleave(self.steps)
        along = paths[0].new_tensor(nodes).repeat(len(depths))[:, None]
        slopes: list[Tensor] = []
        # The backward pass keeps the logits and their softmax beside each other.
        size = max(1, readout.chunk_rows(f.decoder) // (4 * len(paths)))
        for part, part_along in zip(segment.split(size), along.split(size), strict=True):
            yield Progress("integrating between depths", sum(map(len, slopes)), len(segment))
            changes = [path[part + 1] - path[part] for path in paths]
            points = [
                (path[part] + part_along * change).requires_grad_()
                for path, change in zip(paths, changes, strict=True)
            ]
            found = torch.autograd.grad(f.differentiable(points).sum(), points)
            pairs = zip(found, changes, strict=True)
            slopes.append(torch.stack([(s.double() * c.double()).sum(dim=-1) for s, c in pairs]).sum(dim=0))
        return torch.cat(slopes).reshape(-1, self.steps).cpu().numpy() @ weights
