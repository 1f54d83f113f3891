"""Layer integrated gradients: at each depth, plain IG of h ↦ f(resume(d, h)), by Captum.

Law: at every depth the attributions sum over positions and units to F(x) − F(baseline), as steps
grow. Source: Sundararajan et al. 2017; Captum's `IntegratedGradients`, which `resume` lets start at a
depth (Captum's own `LayerIntegratedGradients` fails on blocks that return tuples).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from lenses.attribution import Attribution, Claim, Unit
from lenses.lens import Card, Options, option
from lenses.progress import Progress, finish

if TYPE_CHECKING:
    from torch import Tensor

    from lenses.decoder import Decoder
    from lenses.target import Target
    from lenses.trace import Trace


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
        "converged. Depths are not parts of one another: each starts from a baseline of its own.",
        cost="Steps × depths partial runs, forward and back.",
        caveats="The integral often has not converged at 20 steps; the gap is shown. The straight "
        "line passes through states that no prompt produces.",
    )

    baseline: Literal["mean", "zero", "token"] = option(
        "mean", "the prompt at which the path starts: its mean embedding, zeros, or one token repeated"
    )
    token: int = option(0, "the id of the repeated token", when=("baseline", "token"))
    steps: int = option(20, "points of the integral at each depth", least=1, most=1000)
    internal_batch_size: int | None = option(
        None,
        "how many points run at once: changes memory, not the answer; fitted to memory if none",
        least=1,
    )

    @property
    def slow(self) -> bool:
        return True

    def attribute(self, decoder: Decoder, trace: Trace, target: Target) -> Attribution:
        return finish(self.attributing(decoder, trace, target))

    def attributing(
        self, decoder: Decoder, trace: Trace, target: Target
    ) -> Generator[Progress, None, Attribution]:
        import torch
        from captum.attr import IntegratedGradients

        from lenses import paths

        path = paths.input_path(decoder, trace, target, self.baseline, self.token)
        kept = len(path.end)

        def at(depth: int) -> Tensor:
            def f(states: Tensor) -> Tensor:
                return path.f(decoder.resume(depth, states, [target.position]))

            found = IntegratedGradients(f).attribute(
                trace[depth][None, :kept], path.states[depth][None], n_steps=self.steps,
                internal_batch_size=self.internal_batch_size or path.batch,
            )  # fmt: skip
            return found[0].detach().double().sum(dim=-1)

        depths = range(1, decoder.blocks + 1)
        totals = []
        for depth in depths:
            yield Progress("integrating at each depth", depth - 1, decoder.blocks)
            totals.append(at(depth))
        positions = paths.padded(torch.stack(totals), trace.positions).cpu().numpy()
        return Attribution(
            self.name, self.options, Unit.PROBABILITY, self.claim, np.array(depths),
            positions.sum(axis=1), path.f_start, path.f_end, positions=positions, quadrature=True,
        )  # fmt: skip
