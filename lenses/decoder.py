"""The one primitive: `trace` records a model's residual states, `resume` puts one back in.

Law: `resume(d, trace(ids)[d])` gives the model's own logits at every depth d, since the model's own
code does all the work; `proof.prove` checks it when a decoder is made and refuses what fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lenses import handover
from lenses.errors import BadPrompt, NonFinite, UnsupportedLens, UnsupportedModel
from lenses.layout import Layout, Positions, layouts
from lenses.proof import prove, remedy
from lenses.trace import Trace
from lenses.twin import Step, twin


class Decoder:
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
                self.readout_gap = prove(self)
                return
            except UnsupportedModel as refusal:
                refusals.append(f"with {layout.blocks} as its blocks: {refusal}")
        raise UnsupportedModel("; ".join(refusals))

    # What the model is

    @property
    def device(self) -> torch.device:
        """Where ids go in: the device of the first weight that is really there."""
        present = (p.device for p in self.model.parameters() if p.device.type != "meta")
        return next(present, torch.device("cpu"))

    @property
    def embeddings(self) -> int:
        """How many token ids the input embedding has rows for."""
        module = self.model.get_input_embeddings()
        return int(getattr(module, "num_embeddings", 0) or module.weight.shape[0])

    @property
    def positions(self) -> Positions:
        """How many tokens the model was made for, and whether it can take more."""
        return self._layout.positions

    @property
    def spares_head(self) -> bool:
        """Whether the head can be run at chosen positions alone."""
        return "logits_to_keep" in self._layout.keywords

    # What it does

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
        return self.finite(Trace(ids, torch.cat(states)))

    def resume(
        self,
        depth: int,
        residual: Float[Tensor, "*batch position width"],
        positions: Sequence[int] | None = None,
    ) -> Float[Tensor, "*batch kept vocabulary"]:
        """The logits that the model ends with when `residual` is its state at `depth`.

        Blocks before `depth` pass their input on, block depth − 1 hands back `residual`, the rest
        of the model runs as it is. `positions` keeps only those positions' logits. Differentiable.
        """
        return self._resume(depth, residual, positions, {})

    def flow(
        self,
        inputs: Int[Tensor, "batch position"] | Float[Tensor, "batch position embedding"],
        positions: Sequence[int] | None = None,
        watch: Sequence[nn.Module] = (),
    ) -> tuple[list[Float[Tensor, "batch position width"]], Float[Tensor, "batch kept vocabulary"]]:
        """The states at depths 0…L, each in the graph of the logits, and the logits.

        `inputs` are token ids, or what the embedding module is to return in their place. `watch`
        has one module a depth that each state is led through (for Captum, which hooks modules).
        Differentiable; `trace` is this without gradients, checked, for one prompt.
        """
        states: list[Tensor] = []

        def keep(state: Tensor) -> Tensor:
            if state.shape != (*inputs.shape[:2], state.shape[-1]):
                raise UnsupportedModel(
                    f"a state has shape {tuple(state.shape)} for {inputs.shape[0]} × {inputs.shape[1]} "
                    "tokens, where one vector a token is needed: its depths can't be read one by one"
                )
            states.append(watch[len(states)](state) if watch else state)
            return states[-1].clone()

        def tap(block: nn.Module, hidden: Tensor, args: Any, kwargs: Any) -> Any:
            # The model always goes on with a clone: Falcon adds into it in place.
            output = block(keep(hidden) if not states else hidden, *args, **kwargs)
            self._kinds.setdefault(len(states) - 1, handover.kind(output))
            return handover.like(output, keep(handover.hidden(output)))

        steps: dict[str, Step] = {self._block(b): tap for b in range(self.blocks)}
        ids = inputs
        if inputs.is_floating_point():
            ids = self._blank(inputs)
            steps[self._layout.embedding] = lambda *_: inputs
        logits = self._forward(twin(self.model, steps), ids, positions)
        if len(states) != self.blocks + 1:
            raise UnsupportedModel(
                f"{max(len(states) - 1, 0)} of the {self.blocks} blocks in {self._layout.blocks} ran"
            )
        return states, logits

    @torch.no_grad()
    def own(
        self,
        ids: Int[Tensor, " position"] | Sequence[int],
        positions: Sequence[int] | None = None,
    ) -> Float[Tensor, "kept vocabulary"]:
        """The untouched model's own logits, after each of `positions` or all."""
        return self.own_batch(self.checked(ids)[None], positions)[0]

    @torch.no_grad()
    def own_batch(
        self, ids: Int[Tensor, "batch position"], positions: Sequence[int] | None = None
    ) -> Float[Tensor, "batch kept vocabulary"]:
        """The same for several prompts of one length (see `padded`)."""
        return self._forward(self.model, ids, positions)

    @torch.no_grad()
    def embed(self, ids: Int[Tensor, " position"]) -> Float[Tensor, "position embedding"]:
        """What the input embedding returns for these ids."""
        return self.model.get_input_embeddings()(ids[None])[0]

    def buffer(self, rows: int) -> Float[Tensor, "row vocabulary"] | None:
        """Memory that `readout` can write logits into, or None where the head is no plain product."""
        head = self._plain_head()
        return None if head is None else head.weight.new_empty(rows, len(head.weight))

    @torch.no_grad()
    def readout(
        self, rows: Float[Tensor, "row width"], out: Float[Tensor, "row vocabulary"] | None = None
    ) -> Float[Tensor, "row vocabulary"]:
        """The logits of final residual vectors; the head's product lands in `out` if given."""

        def product(head: Any, hidden: Tensor, args: Any, kwargs: Any) -> Tensor:
            flat = hidden.reshape(-1, hidden.shape[-1])
            if head.bias is None:
                filled = torch.mm(flat, head.weight.t(), out=out)
            else:
                filled = torch.addmm(head.bias, flat, head.weight.t(), out=out)
            return filled.reshape(*hidden.shape[:-1], -1)

        more: dict[str, Step] = {} if out is None else {str(self._layout.head): product}
        return self._resume(self.blocks, rows[:, None], None, more)[:, 0]

    @torch.no_grad()
    def before_head(self, rows: Float[Tensor, "row width"]) -> Float[Tensor, "row head"]:
        """What the head is given for final residual vectors: after the model's own norm and so on.

        Raises `UnsupportedLens` for a model whose logits do not come from one head module.
        """
        seen: list[Tensor] = []

        def tap(head: nn.Module, hidden: Tensor, args: Any, kwargs: Any) -> Tensor:
            seen.append(hidden.clone())
            return hidden  # nobody reads these logits, so the product is left out

        if self._layout.head is not None:
            self._resume(self.blocks, rows[:, None], None, {self._layout.head: tap})
        if not seen:
            raise UnsupportedLens(f"{type(self.model).__name__} calls no output head of its own")
        return seen[0].reshape(len(rows), -1)

    @torch.no_grad()
    def head(self, rows: Float[Tensor, "row head"], token: int) -> Float[Tensor, " row"]:
        """A token's raw logit, before any scale or softcap: the head module's own output."""
        if (head := self._plain_head()) is not None:
            bias = None if head.bias is None else head.bias[token : token + 1]
            return nn.functional.linear(rows.to(self.dtype), head.weight[token : token + 1], bias)[:, 0]
        return self.model.get_output_embeddings()(rows.to(self.dtype))[:, token]

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
        finite = trace.residual.isfinite().flatten(1).all(dim=1)
        if not finite.all():
            depth = int((~finite).nonzero()[0])
            raise NonFinite(
                f"the state at depth {depth} of {self.name or 'the model'} is not finite{remedy(self.dtype)}"
            )
        return trace

    # How

    def _learn(self, layout: Layout) -> None:
        """Run one token through, to see what the blocks hand on and how wide everything is."""
        self._layout, self.blocks = layout, layout.count
        self._kinds: dict[int, Any] = {}
        with torch.no_grad():
            states, logits = self.flow(torch.zeros(1, 1, dtype=torch.long, device=self.device))
        self.width, self.vocabulary = states[0].shape[-1], logits.shape[-1]
        self.dtype = states[-1].dtype

    def _resume(
        self, depth: int, residual: Tensor, positions: Sequence[int] | None, more: Mapping[str, Step]
    ) -> Tensor:
        if not 0 <= depth <= self.blocks:
            raise ValueError(f"depth {depth} is outside 0…{self.blocks}")
        given = residual.reshape(-1, *residual.shape[-2:])
        last, reached = max(depth - 1, 0), []

        def put_in(block: nn.Module, hidden: Tensor, args: Any, kwargs: Any) -> Any:
            reached.append(depth)
            state = given.to(hidden.device, self.dtype, copy=True)
            return block(state, *args, **kwargs) if depth == 0 else handover.like(self._kinds[last], state)

        steps: dict[str, Step] = {self._block(b): self._passed(b) for b in range(last)}
        steps[self._block(last)] = put_in
        logits = self._forward(twin(self.model, {**steps, **more}), self._blank(given), positions)
        if not reached:
            raise UnsupportedModel(f"block {last} never ran, so no state can be put in at {depth}")
        return logits.reshape(*residual.shape[:-2], *logits.shape[1:])

    def _passed(self, block: int) -> Step:
        return lambda _, hidden, args, kwargs: handover.like(self._kinds[block], hidden)

    def _plain_head(self) -> nn.Linear | None:
        """The head, where it is exactly a matrix product that nothing else listens to."""
        if self._layout.head is None:
            return None
        head = self.model.get_submodule(self._layout.head)
        plain = (
            type(head) is nn.Linear
            and "forward" not in head.__dict__
            and not (head._forward_hooks or head._forward_pre_hooks)
            and head.weight.dtype == torch.float32
            and head.weight.device.type != "meta"
        )
        return head if plain else None

    def _block(self, block: int) -> str:
        return f"{self._layout.blocks}.{block}"

    def _blank(self, states: Tensor) -> Tensor:
        return torch.zeros(states.shape[:2], dtype=torch.long, device=self.device)

    def _forward(self, model: Any, ids: Tensor, positions: Sequence[int] | None) -> Tensor:
        """Logits, all of them or at `positions`; the head is spared the rest where it can be."""
        keywords: dict[str, Any] = {}
        if "use_cache" in self._layout.keywords:
            keywords["use_cache"] = False
        spared = positions is not None and self.spares_head
        if spared:
            keywords["logits_to_keep"] = torch.tensor(positions, device=ids.device)
        output = model(input_ids=ids, **keywords)
        logits = output.logits if hasattr(output, "logits") else output[0]
        return logits if spared or positions is None else logits[:, list(positions)]
