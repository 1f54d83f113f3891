"""The passes of a model through its twins: `flow` records states, `resume` puts them in.

The model's own code does all the work in every pass; what is proved of it is in `decoder`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import RLock
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lenses import dispatched, handover, shortage
from lenses.errors import UnsupportedModel
from lenses.layout import Layout, Positions, text_config
from lenses.twin import Step, twin


class Passes:
    """What can be run of a model whose parts are where `layout` says.

    `blocks` is L, `width` the size of a residual vector, `vocabulary` the number of logits and
    `dtype` the number format of the states.
    """

    model: Any
    blocks: int
    width: int
    vocabulary: int
    dtype: torch.dtype

    def _learn(self, layout: Layout) -> None:
        """Run one token through, to see what the blocks hand on and how wide everything is."""
        self._layout, self.blocks = layout, layout.count
        self._kinds: dict[int, Any] = {}
        self._joins: bool | None = None
        self._away, self._hooked = dispatched.away(self.model), dispatched.hooked(self.model)
        # Weights that come and go are those of one pass at a time.
        self._turn: AbstractContextManager[Any] = RLock() if self._away else nullcontext()
        dispatched.refuse_nowhere(self.model, self._named)
        with torch.no_grad():
            states, logits = self._tried(torch.zeros(1, 1, dtype=torch.long, device=self.device))
        self.width, self.vocabulary = states[0].shape[-1], logits.shape[-1]
        self.dtype = states[-1].dtype
        self._entering = self.embed(torch.zeros(1, dtype=torch.long, device=self.device)).dtype

    def _tried(self, ids: Tensor) -> tuple[list[Tensor], Tensor]:
        """A first pass; raises `UnsupportedModel` where offloaded weights can't be fetched for it."""
        try:
            return self.flow(ids)
        except RuntimeError as error:
            if not self._away or shortage.ran_out(error):
                raise
            raise UnsupportedModel(
                f"{self._named} can't be run with weights that are offloaded, since its own code reads some "
                f"that are not there ({error}): load it whole, on one device"
            ) from error

    # What the model is

    @property
    def device(self) -> torch.device:
        """Where ids go in and states are kept: the device on which the input embedding runs."""
        found = dispatched.runs_on(self.model.get_input_embeddings()) or dispatched.runs_on(self.model)
        return found or torch.device("cpu")

    @property
    def embeddings(self) -> int:
        """How many token ids the input embedding has rows for."""
        module = self.model.get_input_embeddings()
        return int(getattr(module, "num_embeddings", 0) or text_config(self.model).vocab_size)

    @property
    def positions(self) -> Positions:
        """How many tokens the model was made for, and whether it can take more."""
        return self._layout.positions

    @property
    def _cache_name(self) -> str | None:
        """What transformers calls the keys and values here: it was renamed."""
        names = ("cache", "past_key_values") if "use_cache" in self._layout.keywords else ()
        return next((name for name in names if name in self._layout.keywords), None)

    @property
    def spares_head(self) -> bool:
        """Whether the head can be run at chosen positions alone."""
        return "logits_to_keep" in self._layout.keywords

    # What it does

    def flow(
        self,
        inputs: Int[Tensor, "batch position"] | Float[Tensor, "batch position embedding"],
        positions: Sequence[int] | None = None,
        watch: Sequence[nn.Module] = (),
        recompute: bool = False,
    ) -> tuple[list[Float[Tensor, "batch position width"]], Float[Tensor, "batch kept vocabulary"]]:
        """The states at depths 0…L, each in the graph of the logits, and the logits.

        `inputs` are token ids, or what the embedding module is to return in their place. `watch`
        has one module a depth that each state is led through (for Captum, which hooks modules).
        `recompute` keeps no block's activations for the backward pass: it runs the block again.
        Differentiable; `trace` is this without gradients, checked, for one prompt. The states are all on
        `device`, wherever the blocks are.
        """
        states: list[Tensor] = []
        place = self.device

        def keep(state: Tensor) -> Tensor:
            if state.shape != (*inputs.shape[:2], state.shape[-1]):
                raise UnsupportedModel(
                    f"a state has shape {tuple(state.shape)} for {inputs.shape[0]} × {inputs.shape[1]} "
                    "tokens, where one vector a token is needed: its depths can't be read one by one"
                )
            here = state.to(place)
            states.append(watch[len(states)](here) if watch else here)
            # What gradients are taken for is on the way, also where the way leads to another device.
            going = states[-1] if watch or torch.is_grad_enabled() else state
            return going.to(state.device, copy=True)

        def tap(block: nn.Module, hidden: Tensor, args: Any, kwargs: Any) -> Any:
            # The model always goes on with a clone: Falcon adds into it in place.
            given = keep(hidden) if not states else hidden
            output = self._ran(block, given, args, kwargs, recompute)
            self._kinds.setdefault(len(states) - 1, handover.kind(output))
            return handover.like(output, keep(handover.hidden(output)))

        steps: dict[str, Step] = {self._block(b): tap for b in range(self.blocks)}
        ids = inputs
        if inputs.is_floating_point():
            ids = self._blank(inputs)
            steps[self._layout.embedding] = lambda *_: inputs.to(self._entering)
        logits = self._forward(twin(self.model, steps), ids, positions)
        if len(states) != self.blocks + 1:
            raise UnsupportedModel(
                f"{max(len(states) - 1, 0)} of the {self.blocks} blocks in {self._layout.blocks} ran"
            )
        return states, logits

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

    @torch.no_grad()
    def kept(self, ids: Int[Tensor, " position"]) -> list[tuple[bool, bool]] | None:
        """For each block, whether it keeps a key and a value of each of these tokens, and whether it
        keeps a state (of a recurrence); None for a model that can't be asked."""
        asked = {"use_cache": True} if "use_cache" in self._layout.keywords else {}
        with self._turn:
            output = self.model(input_ids=ids[None], **asked)
        kept = (getattr(output, name, None) for name in ("cache", "past_key_values"))
        layers = layers_of(next((cache for cache in kept if cache is not None), None), len(ids))
        return layers if len(layers) == self.blocks else None

    @torch.no_grad()
    def own_batch(
        self, ids: Int[Tensor, "batch position"], positions: Sequence[int] | None = None
    ) -> Float[Tensor, "batch kept vocabulary"]:
        """The untouched model's own logits for prompts of one length (see `padded`)."""
        return self._forward(self.model, ids, positions)

    @torch.no_grad()
    def embed(self, ids: Int[Tensor, " position"]) -> Float[Tensor, "position embedding"]:
        """What the input embedding returns for these ids."""
        with self._turn:
            found: Tensor = self.model.get_input_embeddings()(ids[None])[0]
        return dispatched.number(found, self._named)

    @torch.no_grad()
    def enter(self, ids: Int[Tensor, " position"]) -> Float[Tensor, "position width"]:
        """The states at depth 0 alone, with no block run."""
        entered: list[Tensor] = []

        def tap(_: nn.Module, hidden: Tensor, args: Any, kwargs: Any) -> Any:
            entered.append(hidden[0].clone())
            return self._passed(0)(_, hidden, args, kwargs)

        steps: dict[str, Step] = {self._block(b): self._passed(b) for b in range(1, self.blocks)}
        self._forward(twin(self.model, {**steps, self._block(0): tap}), ids[None], [len(ids) - 1])
        return entered[0]

    # How

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
            if depth == 0:
                return self._ran(block, state, args, kwargs)
            return handover.like(self._kinds[last], state)

        steps: dict[str, Step] = {self._block(b): self._passed(b) for b in range(last)}
        steps[self._block(last)] = put_in
        if self._away and torch.is_grad_enabled():
            steps |= {self._block(b): self._again for b in range(last + 1, self.blocks)}
        logits = self._forward(twin(self.model, {**steps, **more}), self._blank(given), positions)
        if not reached:
            raise UnsupportedModel(f"block {last} never ran, so no state can be put in at {depth}")
        return logits.reshape(*residual.shape[:-2], *logits.shape[1:])

    def _ran(self, block: nn.Module, hidden: Tensor, args: Any, kwargs: Any, recompute: bool = False) -> Any:
        """The block's output; with `recompute` its activations are made anew in the backward pass.

        So are those of a block whose weights are away: the graph would keep them all in memory.
        """
        if recompute or (self._away and torch.is_grad_enabled() and dispatched.away(block)):
            return checkpoint(
                self._in_turn, block, hidden, *args, use_reentrant=False, preserve_rng_state=False, **kwargs
            )
        return block(hidden, *args, **kwargs)

    def _again(self, block: nn.Module, hidden: Tensor, args: Any, kwargs: Any) -> Any:
        return self._ran(block, hidden, args, kwargs)

    def _in_turn(self, block: nn.Module, *args: Any, **kwargs: Any) -> Any:
        with self._turn:
            return block(*args, **kwargs)

    def _passed(self, block: int) -> Step:
        return lambda _, hidden, args, kwargs: handover.like(self._kinds[block], hidden)

    @property
    def _named(self) -> str:
        return str(getattr(self, "name", "") or type(self.model).__name__)

    def _block(self, block: int) -> str:
        return f"{self._layout.blocks}.{block}"

    def _blank(self, states: Tensor) -> Tensor:
        return torch.zeros(states.shape[:2], dtype=torch.long, device=self.device)

    def _forward(self, model: Any, ids: Tensor, positions: Sequence[int] | None, after: Any = None) -> Tensor:
        """Logits, all of them or at `positions`; the head is spared the rest where it can be."""
        keywords: dict[str, Any] = {}
        if "use_cache" in self._layout.keywords:
            keywords["use_cache"] = after is not None
        if after is not None:
            keywords[str(self._cache_name)] = after
        spared = positions is not None and self.spares_head
        if positions is not None and self.spares_head:
            # The last states may be on another device than the first, and a list is on none.
            kept = list(positions) if self._hooked else torch.tensor(positions, device=ids.device)
            keywords["logits_to_keep"] = kept
        with self._turn:
            output = model(input_ids=ids, **keywords)
        logits = dispatched.number(output.logits if hasattr(output, "logits") else output[0], self._named)
        logits = logits.to(ids.device)
        return logits if spared or positions is None else logits[:, list(positions)]


def layers_of(cache: Any, count: int) -> list[tuple[bool, bool]]:
    """Of each layer of a model's cache: whether it holds keys and values of all tokens, and a state."""

    def whole(part: Any) -> bool:
        return isinstance(part, Tensor) and part.ndim == 4 and part.shape[2] == count

    return [
        (whole(getattr(layer, "keys", None)) and whole(getattr(layer, "values", None)),
         any("state" in name for name in vars(layer)))
        for layer in getattr(cache, "layers", None) or []
    ]  # fmt: skip
