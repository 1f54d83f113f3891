"""Layer integrated gradients: at each depth, plain IG of h ↦ f(resume(d, h)).

Law: at every depth the attributions sum over positions and units to F(x) − F(baseline), as steps
grow; equals Captum's `IntegratedGradients` from each depth, up to the roundings of float32. With
`estimator="observed"` they sum to that at any number of steps (see `observed`). There the whole line
counts as one step: it is straight, so the nodes' weights belong together and what they miss falls
exponentially where f is smooth, while pieces of it, each closed by itself, would miss 1/steps². Source:
Sundararajan et al. 2017 (Captum's own `LayerIntegratedGradients` fails on blocks that return tuples).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from lenses.attribution import Attribution, Claim
from lenses.lens import Card, Options, option
from lenses.progress import Progress, finish

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from lenses.decoder import Decoder
    from lenses.paths import InputPath
    from lenses.target import Target
    from lenses.trace import Trace

TOKENS = 512
"""Tokens in one product from which on a larger one is hardly faster."""


@dataclass(frozen=True)
class LayerIG(Options):
    """Per depth, what the change of its state along a straight line gave to the target."""

    name: ClassVar[str] = "layer-ig"
    title: ClassVar[str] = "Layer integrated gradients"
    claim: ClassVar[Claim] = Claim.WITHIN
    source: ClassVar[str] = "Sundararajan et al. 2017, arXiv 1703.01365; Captum"
    card: ClassVar[Card] = Card(
        measures="At each depth by itself: which positions of the state carry the change of the "
        "target's probability from the baseline prompt to the real one.",
        formula=r"\mathrm{IG}_d = \sum_{i} (h_d - h'_d)_i \int_0^1 "
        r"\frac{\partial F_d(h'_d + \alpha (h_d - h'_d))}{\partial h_i}\, d\alpha",
        adds_up="Within each depth the positions sum to F(x) − F(baseline), once the integral has "
        "converged. With the observed estimator they add up exactly at any number of steps: what "
        "gradient × change misses is given out in proportion to |gradient × change| of each unit. "
        "Depths are not parts of one another: each starts from a baseline of its own.",
        cost="Steps × depths partial runs, forward and back.",
        caveats="The integral often has not converged at 20 steps; the gap is shown. The observed "
        "estimator closes that gap, and says what it was; how the whole is split among positions still "
        "gets better with more steps. The straight line passes through states that no prompt produces.",
    )

    estimator: Literal["gradient", "observed"] = option(
        "gradient", "Captum's integral of the gradient, or made to sum to the observed change"
    )
    baseline: Literal["mean", "zero", "token"] = option(
        "mean", "the prompt at which the path starts: its mean embedding, zeros, or one token repeated"
    )
    token: int = option(0, "the id of the repeated token", when=("baseline", "token"))
    steps: int = option(20, "points of the integral at each depth", least=1, most=1000)
    engine: Literal["wave", "captum"] = option(
        "wave",
        "all depths in one batch that grows, or Captum's own call at each depth (the reference)",
        when=("estimator", "gradient"),
    )
    internal_batch_size: int | None = option(
        None,
        "how many points of a depth run at once: changes memory, not the answer; fitted to memory if none",
        least=1,
        memory=True,
    )

    @property
    def slow(self) -> bool:
        return True

    def attribute(self, decoder: Decoder, trace: Trace, target: Target) -> Attribution:
        return finish(self.attributing(decoder, trace, target))

    def attributing(
        self, decoder: Decoder, trace: Trace, target: Target
    ) -> Generator[Progress, None, Attribution]:
        from lenses import paths
        from lenses.observed import closed

        path = paths.input_path(decoder, trace, target, self.baseline, self.token)
        if self.engine == "captum" and self.estimator == "gradient":
            given = yield from self._captum(path)
            return paths.attribution(self, path, given, None, trace.positions)
        given, sizes = yield from self._wave(path)
        whole = given.new_full((len(given),), path.f_end - path.f_start)
        exact = closed(given, sizes, whole) if self.estimator == "observed" else None
        return paths.attribution(self, path, given, exact, trace.positions)

    def _wave(
        self, path: InputPath
    ) -> Generator[Progress, None, tuple[Float[Tensor, "block kept"], Float[Tensor, "block kept"]]]:
        """Gradient × change, and its size over all units and points, from the states between both ends
        of each depth, those of many depths in one batch."""
        import torch
        from captum.attr._utils.approximation_methods import approximation_parameters

        decoder, ends = path.decoder, path.ends
        change = ends - path.states
        weigh, place = approximation_parameters("gausslegendre")
        weights, alphas = (ends.new_tensor(rule(self.steps)) for rule in (weigh, place))
        total = ends.new_zeros(ends.shape[:2], dtype=torch.double)
        sizes = torch.zeros_like(total)
        done, recompute = 0, decoder.joins and path.fits() < 1
        for depths, points in self._batches(path, recompute):
            yield Progress("integrating at each depth", done, decoder.blocks * self.steps)
            along = alphas[points, None, None]
            states = {d: (path.states[d] + along * change[d]).requires_grad_() for d in depths}
            logits = decoder.wave(states, path.positions, recompute)
            slopes = torch.autograd.grad(path.f(logits).sum(), [*states.values()])
            for depth, slope in zip(depths, slopes, strict=True):
                summed = torch.einsum("s,spw->pw", weights[points], slope)
                total[depth] += (summed.double() * change[depth]).sum(dim=-1)
                size = torch.einsum("s,spw->pw", weights[points], slope.abs())
                sizes[depth] += (size.double() * change[depth].abs()).sum(dim=-1)
            done += len(depths) * len(along)
        return total[1:], sizes[1:]

    def _batches(self, path: InputPath, recompute: bool) -> Iterator[tuple[list[int], slice]]:
        """Which depths and points run together, within memory: enough points for products of a good
        size from the first block on, and then as many depths as there is room for."""
        from lenses import paths

        def weighs(depths: list[int], points: int) -> int:
            return points * sum(path.weighs(depth, recompute) for depth in depths)

        size = self.internal_batch_size or min(self.steps, -(-TOKENS // len(path.end)))
        groups: list[list[int]] = []
        for depth in range(1, path.decoder.blocks + 1):
            fits = groups and weighs([*groups[-1], depth], size) <= paths.MEMORY
            groups = [*groups[:-1], [*groups[-1], depth]] if fits else [*groups, [depth]]
        for group in groups:
            fitting = max(1, paths.MEMORY // weighs(group, 1))
            points = self.internal_batch_size or min(fitting, self.steps)
            for start in range(0, self.steps, points):
                yield group, slice(start, min(start + points, self.steps))

    def _captum(self, path: InputPath) -> Generator[Progress, None, Float[Tensor, "block kept"]]:
        """Captum, one depth a call."""
        import torch
        from captum.attr import IntegratedGradients

        def at(depth: int) -> Tensor:
            def f(states: Tensor) -> Tensor:
                return path.f(path.decoder.resume(depth, states, path.positions))

            found = IntegratedGradients(f).attribute(
                path.ends[depth][None], path.states[depth][None], n_steps=self.steps,
                internal_batch_size=self.internal_batch_size or max(1, path.fits(depth)),
            )  # fmt: skip
            return found[0].detach().double().sum(dim=-1)

        totals = []
        for depth in range(1, len(path.ends)):
            yield Progress("Captum, depth by depth", depth - 1, path.decoder.blocks)
            totals.append(at(depth))
        return torch.stack(totals)
