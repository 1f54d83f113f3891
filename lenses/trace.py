"""The chain of residual states of one prompt: a value, with no tie to the model that made it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Trace:
    """The residual at each depth: 0 is what enters block 0, d is what block d − 1 handed on."""

    ids: Int[Tensor, " position"]
    residual: Float[Tensor, "depth position width"]
    memo: WeakKeyDictionary[Any, dict[Any, Any]] = field(
        default_factory=WeakKeyDictionary, repr=False, compare=False
    )
    """What a decoder has read off this trace already (`readout.depths`: small; `halves.middle`: about as
    large as the trace, where it was asked for; `words.at_place`: the traces of a few other words, up to a
    bound); never an input."""

    def __getitem__(self, depth: int) -> Float[Tensor, "position width"]:
        return self.residual[depth]

    def to(self, device: torch.device | str) -> Trace:
        """The same trace on another device (itself where it is there already)."""
        if self.residual.device == torch.device(device):
            return self
        return Trace(self.ids.to(device), self.residual.to(device), self.memo)

    @property
    def blocks(self) -> int:
        return self.residual.shape[0] - 1

    @property
    def positions(self) -> int:
        return self.residual.shape[1]
