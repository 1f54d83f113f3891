"""Layer conductance at every depth from one sweep along the path of the input embeddings.

Law: equals Captum's `LayerConductance` depth by depth, on Captum's own quadrature (left points on the
Gauss–Legendre nodes of n_steps + 1), and sums within each depth to F(x) − F(baseline) as steps grow.
With `estimator="observed"` it sums to that at any number of steps (see `observed`): the steps between
the same nodes take the mean of the gradients at both ends, and the two that Captum leaves out, from
the baseline to the first node and from the last to the prompt, the gradient at that node.
Source: Dhamdhere et al. 2018, arXiv 1805.12233. One backward pass over one batch of interpolated
prompts yields the gradients at all depths at once, where Captum's call yields one.
"""

from __future__ import annotations

from collections.abc import Generator
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


@dataclass(frozen=True)
class Conductance(Options):
    """Per depth, what flowed through its units while the input went from the baseline to the prompt."""

    name: ClassVar[str] = "conductance"
    title: ClassVar[str] = "Layer conductance"
    claim: ClassVar[Claim] = Claim.WITHIN
    source: ClassVar[str] = "Dhamdhere et al. 2018, arXiv 1805.12233; Captum"
    card: ClassVar[Card] = Card(
        measures="How much of the change of the target's probability flows through each depth's state "
        "while the input embeddings go from a baseline to the prompt.",
        formula=r"\mathrm{Cond}_d = \sum_i \int_0^1 \frac{\partial F}{\partial h_{d,i}} "
        r"\frac{\partial h_{d,i}}{\partial \alpha}\, d\alpha",
        adds_up="All of the flow passes every depth, so within each depth the positions sum to "
        "F(x) − F(baseline), once the integral has converged. With the observed estimator each step is "
        "made to sum to the change of F that was seen over it: what gradient × change misses is given "
        "out in proportion to |gradient × change| of each unit. Every depth then adds up exactly, at "
        "any number of steps.",
        cost="Steps + 1 full runs, forward and back, for all depths together.",
        caveats="Captum's quadrature (left points) is off by up to a fifth at 20 steps; the gap is "
        "shown. The observed estimator closes that gap, and says what it was; how the flow is split "
        "among positions still gets better with more steps. Depths are not parts of one another.",
    )

    estimator: Literal["gradient", "observed"] = option(
        "gradient", "Captum's integral of the gradient, or each step made to sum to its observed change"
    )
    baseline: Literal["mean", "zero", "token"] = option(
        "mean", "the prompt at which the path starts: its mean embedding, zeros, or one token repeated"
    )
    token: int = option(0, "the id of the repeated token", when=("baseline", "token"))
    steps: int = option(20, "points of the integral", least=1, most=1000)
    engine: Literal["sweep", "captum"] = option(
        "sweep",
        "one sweep for all depths, or Captum's own call at each depth (the reference)",
        when=("estimator", "gradient"),
    )
    internal_batch_size: int | None = option(
        None,
        "how many points run at once: changes memory, not the answer; fitted to memory if none",
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

        path = paths.input_path(decoder, trace, target, self.baseline, self.token)
        if self.engine == "captum" and self.estimator == "gradient":
            flowed = yield from self._captum(path)
            return paths.attribution(self, path, flowed, None, trace.positions)
        flowed, closed = yield from self._sweep(path)
        return paths.attribution(self, path, flowed, closed, trace.positions)

    def _sweep(
        self, path: InputPath
    ) -> Generator[Progress, None, tuple[Float[Tensor, "depth kept"], Float[Tensor, "depth kept"] | None]]:
        """What flowed by Captum's quadrature, and by steps that sum to what was observed if wanted."""
        import torch
        from captum.attr._utils.approximation_methods import approximation_parameters

        from lenses.observed import Closing
        from lenses.paths import wide

        alphas = approximation_parameters("gausslegendre")[1](self.steps + 1)
        # A step needs the states at both its ends; where these two don't fit, blocks are run again.
        recompute = path.fits() < 2
        size = self.internal_batch_size or max(1, path.fits(0, recompute) - 1)
        total = path.states.new_zeros(path.states[1:].shape[:2], dtype=torch.double)
        closing = Closing(path.states[1:], path.ends[1:], path.f_start, path.f_end)
        for first in range(0, self.steps, size):
            yield Progress("sweeping along the path", first, self.steps)
            # Chunks overlap by one point.
            points = alphas[first : first + size + 1]
            inputs = torch.stack([path.start + a * (path.end - path.start) for a in points])
            states, logits = path.decoder.flow(
                inputs.requires_grad_(), path.positions, recompute=recompute
            )  # fmt: skip
            found = torch.autograd.grad(path.f(logits).sum(), states[1:])
            slopes = [wide(slope) for slope in found]
            states = [wide(state.detach()) for state in states[1:]]
            for depth, (slope, state) in enumerate(zip(slopes, states, strict=True)):
                flow = slope[:-1] * state.diff(dim=0)
                total[depth] += flow.sum(dim=0).double().sum(dim=-1)
            if self.estimator == "observed":
                closing.take(slopes, states, path.observed(logits), last=first + size >= self.steps)
        return total, closing.total if self.estimator == "observed" else None

    def _captum(self, path: InputPath) -> Generator[Progress, None, Float[Tensor, "depth kept"]]:
        """Captum, one depth a call; it hooks modules that only this call knows of."""
        import torch
        from captum.attr import LayerConductance
        from torch import nn

        taps = [nn.Identity() for _ in path.states]

        def f(inputs: Tensor) -> Tensor:
            return path.f(path.decoder.flow(inputs, path.positions, taps)[1])

        def at(depth: int) -> Tensor:
            found = LayerConductance(f, taps[depth]).attribute(
                path.end[None], path.start[None], n_steps=self.steps,
                internal_batch_size=self.internal_batch_size or max(2, path.fits()),  # a step has two ends
            )  # fmt: skip
            return found[0].detach().double().sum(dim=-1)

        totals = []
        for depth in range(1, len(taps)):
            yield Progress("Captum, depth by depth", depth - 1, len(taps) - 1)
            totals.append(at(depth))
        return torch.stack(totals)
