"""The one primitive: `trace` records a model's residual states, `resume` puts one back in.

Law: `resume(d, trace(ids)[d])` gives the model's own logits at every depth d, since the model's own
code does all the work; `proof.prove` checks it when a decoder is made and refuses what fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lenses.errors import BadPrompt, NonFinite, UnsupportedModel
from lenses.layout import layouts
from lenses.proof import prove, remedy
from lenses.tail import Tail
from lenses.trace import Trace


class Decoder(Tail):
    """A decoder-only model that can be read and resumed at any depth.

    `model` and `tokenizer` are the Hugging Face objects, never modified; `blocks` is L, `width` the
    size of a residual vector and `vocabulary` the number of logits. Safe to share between threads.
    `dtype` is the number format of the states and `readout_gap` the largest difference of
    probability seen in the readout proof.

    Raises `UnsupportedModel` where the readout can't be proved to be the model's own.
    """

    def __init__(
        self, model: Any, tokenizer: Any, name: str = "", source: str = "", revision: str = ""
    ) -> None:
        if model.training:
            raise UnsupportedModel(
                f"{name or type(model).__name__} is in training mode, where dropout makes every "
                "run differ: call model.eval() first"
            )
        self.model, self.tokenizer = model, tokenizer
        self.name, self.source, self.revision = name, source, revision
        refusals = []
        for layout in layouts(model):
            try:
                self._learn(layout)
                self.readout_gap, self.fast_head = prove(self)
                return
            except UnsupportedModel as refusal:
                refusals.append(f"with {layout.blocks} as its blocks: {refusal}")
        raise UnsupportedModel("; ".join(refusals))

    @torch.no_grad()
    def trace(self, ids: Int[Tensor, " position"] | Sequence[int]) -> Trace:
        """The residual at every depth for one prompt.

        Raises `BadPrompt` for ids that the model has no embedding or no place for, and `NonFinite`
        (naming the depth) where a state is infinite or not a number.
        """
        ids = self.checked(ids)
        try:
            states, _ = self.flow(ids[None], positions=[len(ids) - 1])
        except (IndexError, RuntimeError) as error:
            if self.positions.tokens is None or len(ids) <= self.positions.tokens:
                raise
            # A table that ends without showing it, such as MPT's biases.
            raise BadPrompt(self.positions.too_long(len(ids))) from error
        residual = states[0].new_empty(len(states), *states[0].shape[1:])
        for depth in reversed(range(len(states))):
            residual[depth] = states.pop()[0]  # let go as it is copied: they are never all there twice
        return self.finite(Trace(ids, residual))

    @torch.no_grad()
    def own(
        self,
        ids: Int[Tensor, " position"] | Sequence[int],
        positions: Sequence[int] | None = None,
    ) -> Float[Tensor, "kept vocabulary"]:
        """The untouched model's own logits, after each of `positions` or all."""
        return self.own_batch(self.checked(ids)[None], positions)[0]

    def checked(self, ids: Int[Tensor, " position"] | Sequence[int]) -> Int[Tensor, " position"]:
        """The ids as a tensor on the model's device; raises `BadPrompt` as `trace` does."""
        ids = torch.as_tensor(ids, dtype=torch.long, device=self.device)
        if ids.ndim != 1 or len(ids) == 0:
            raise BadPrompt("there is no token to explain: give a prompt of at least one token")
        if (outside := ids[(ids < 0) | (ids >= self.embeddings)]).numel():
            raise BadPrompt(
                f"token id {int(outside[0])} is outside the embedding, which has {self.embeddings} "
                "rows: the tokenizer does not belong to this model"
            )
        limit = self.positions
        if limit.table and limit.tokens is not None and len(ids) > limit.tokens:
            raise BadPrompt(limit.too_long(len(ids)))
        return ids

    def finite(self, trace: Trace) -> Trace:
        """The trace itself; raises `NonFinite`, naming the depth, where a state is no number."""
        finite = torch.stack([state.isfinite().all() for state in trace.residual])
        if not finite.all():
            depth = int((~finite).nonzero()[0])
            raise NonFinite(
                f"the state at depth {depth} of {self.name or 'the model'} is not finite{remedy(self.dtype)}"
            )
        return trace
