"""Ablation: how far the target's probability falls when a block, or a half of it, is left out.

Law: the drop of the last block is its IG-Lens share, p − f(h[L−1]), and a block that writes nothing has
drop 0. Drops claim no sum: later blocks make up for one that is missing, and need what it wrote.
Sources: Veit et al., "Residual Networks Behave Like Ensembles" (2016); McGrath et al., "The Hydra
Effect" (2023).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from lenses.attribution import Attribution, Claim, Unit
from lenses.errors import UnsupportedLens
from lenses.lens import Card, Options, option
from lenses.progress import Progress, finish

if TYPE_CHECKING:
    from lenses.decoder import Decoder
    from lenses.target import Target
    from lenses.trace import Trace


@dataclass(frozen=True)
class Ablation(Options):
    """Per depth, what the target loses when what led there from the depth before is skipped."""

    name: ClassVar[str] = "ablation"
    title: ClassVar[str] = "Ablation"
    claim: ClassVar[Claim] = Claim.LEVEL
    source: ClassVar[str] = "Veit et al. 2016, arXiv 1605.06431; McGrath et al. 2023, arXiv 2307.15771"
    card: ClassVar[Card] = Card(
        measures="How far the target's probability falls when a block is skipped, its input going on as "
        "its output, and all blocks after it run on what is left.",
        formula=r"\Delta_b = p - p(h_b \to h_{b+1}), \qquad b = 0, \dots, L - 1",
        adds_up="Drops are readings of one model without one part each: nothing has to add up. The last "
        "block's is its share in IG-Lens.",
        cost="About half a forward pass a block, all in one batch that grows; later tokens are left away.",
        caveats="A block may matter and show no drop, because later ones make up for it, and a model "
        "without a block is one that nobody trained: an early block's drop says that the rest can't do "
        "without it, not that it knew the answer. Skipping adds nothing in its place; the library "
        "can put in the mean over a list of prompts, or what another prompt got.",
    )

    kind: Literal["skip", "attention", "mlp"] = option(
        "skip", "what is left out of each block",
        meanings={
            "skip": "the whole block", "attention": "its attention; the MLP runs on what is left",
            "mlp": "its MLP alone",
        },
    )  # fmt: skip
    positions: Literal["all", "last"] = option(
        "all", "where it is left out: at all positions, or only where the target is predicted"
    )
    span: int = option(
        1, "how many blocks are left out together; they stand at the depth after them", least=1
    )

    @property
    def slow(self) -> bool:
        return True

    def attribute(self, decoder: Decoder, trace: Trace, target: Target) -> Attribution:
        return finish(self.attributing(decoder, trace, target))

    def attributing(
        self, decoder: Decoder, trace: Trace, target: Target
    ) -> Generator[Progress, None, Attribution]:
        from lenses import ablation
        from lenses.measure import measure

        half = None if self.kind == "skip" else self.kind
        last = self.positions == "last"
        left = yield from ablation.ablating(decoder, trace, target, half=half, span=self.span, last=last)
        if np.isnan(left).all():
            raise UnsupportedLens(
                f"no {self.span} blocks of {decoder.name or 'the model'} in a row have an attention and an "
                "MLP that can be told apart: leave out whole blocks (kind skip)"
            )
        start, end = measure(decoder, trace, target, "probability", "").levels([0, trace.blocks]).values
        return Attribution(
            self.name, self.options, Unit.DROP, self.claim, np.arange(self.span, trace.blocks + 1),
            end - left, float(start), float(end),
        )  # fmt: skip
