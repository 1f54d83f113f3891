"""`resume` from many depths at once: at each depth its states join one batch that grows on its way.

Law: `wave` gives what `resume` gives depth by depth, which is tried once for a model before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lenses import handover
from lenses.passes import Passes, layers_of
from lenses.twin import Step, twin


class Waves(Passes):
    """A model whose blocks are run on one growing batch, where they can be."""

    def wave(
        self,
        joining: Mapping[int, Float[Tensor, "_ position width"]],
        positions: Sequence[int] | None = None,
        recompute: bool = False,
        after: Any = None,
    ) -> Float[Tensor, "sequence kept vocabulary"]:
        """`resume` from many depths in one pass: at each depth, its states join those on their way.

        The logits stand in the order of depth. Each block sees one batch, which grows, so that 30
        small runs become one large one; a model whose blocks can't do that (`joins`) runs depth by
        depth. `recompute` is as in `flow`; `after` is what the model keeps of the tokens before these
        (`remembered`), and is used up: both are for models that join. Differentiable.
        """
        if self.joins:
            return self._wave(joining, positions, recompute, after)
        return torch.cat([self.resume(depth, joining[depth], positions) for depth in sorted(joining)])

    def _wave(
        self,
        joining: Mapping[int, Tensor],
        positions: Sequence[int] | None = None,
        recompute: bool = False,
        after: Any = None,
    ) -> Tensor:
        first = min(joining)
        if not 0 <= first <= max(joining) <= self.blocks:
            raise ValueError(f"depths {sorted(joining)} are not all within 0…{self.blocks}")

        def step(block: int) -> Step:
            def run(module: nn.Module, hidden: Tensor, args: Any, kwargs: Any) -> Any:
                if block == 0 and first == 0:
                    hidden = joining[0].to(hidden.device, self.dtype, copy=True)
                if block < first:
                    going = []
                else:
                    if after is not None:
                        layer = after.layers[block]
                        layer.keys = layer.keys.expand(len(hidden), -1, -1, -1)
                        layer.values = layer.values.expand(len(hidden), -1, -1, -1)
                    output = self._ran(module, hidden, args, kwargs, recompute)
                    going = [handover.hidden(output)]
                if block + 1 in joining:
                    place = going[0].device if going else hidden.device
                    going.append(joining[block + 1].to(place, self.dtype, copy=True))
                return handover.like(self._kinds[block], torch.cat(going) if going else hidden)

            return run

        steps = {self._block(b): step(b) for b in range(self.blocks)}
        # One blank sequence: masks and angles are made for a batch of one, and fit every batch.
        blank = self._blank(joining[first][:1])
        return self._forward(twin(self.model, steps), blank, positions, after)

    @property
    @torch.no_grad()
    def joins(self) -> bool:
        """Whether `wave` gives what `resume` gives: some blocks can't do with a mask for a batch of one.

        Tried once, with sequences of different states joining at three depths.
        """
        if self._joins is None:
            ids = torch.arange(4, device=self.device)[None].expand(2, -1) % self.embeddings
            ids = (ids * torch.tensor([[1], [3]], device=self.device)) % self.embeddings
            states, _ = self.flow(ids)
            depths = sorted({0, self.blocks // 2, self.blocks})
            expected = torch.cat([self.resume(depth, states[depth]) for depth in depths])
            try:
                found = self._wave({depth: states[depth] for depth in depths})
            except (RuntimeError, ValueError, IndexError, TypeError):
                self._joins = False  # a shape did not fit, which is the answer
            else:
                close = found.shape == expected.shape and torch.allclose(found, expected, 1e-4, 1e-4)
                self._joins = bool(close)
        return self._joins

    @torch.no_grad()
    def remembered(self, ids: Int[Tensor, " position"]) -> Any | None:
        """The keys and values that the model keeps of these tokens, for `wave` to go on after them.

        None for a model that keeps anything else (the state of a recurrence) or can't be asked.
        """
        name = self._cache_name
        if name is None or not self.joins:
            return None
        with self._turn:
            found = getattr(self.model(input_ids=ids[None], use_cache=True), name, None)
        layers = layers_of(found, len(ids))
        plain = all(keys and not more for keys, more in layers)
        return found if plain and len(layers) == self.blocks else None
