"""Passes inside blocks: which have an attention and an MLP, and what they make with the MLP silenced.

Law: a block with both silenced passes its state on (`sublayers`); it is shown for each block of a
model once, before any number is made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lenses import handover
from lenses.sublayers import Call, Half, Sublayers, find, silent
from lenses.trace import Trace
from lenses.twin import Step, twin
from lenses.waves import Waves

PROBE = 4
"""Tokens with which the parts of a block are looked for."""

Visit = Callable[[int, Call, Tensor], Any]
"""What is done at a block: (its number, the block with its inputs, its state) → what it hands on."""


class Inside(Waves):
    """What can be run of a part of a block."""

    _sublayers: tuple[Sublayers | None, ...] | None = None

    @property
    def sublayers(self) -> tuple[Sublayers | None, ...]:
        """The attention and the MLP of each block, None where it can't be shown to have such parts.

        Looked for once. A block that keeps the state of a recurrence (Mamba, and such blocks of Jamba,
        Falcon-H1 and Qwen3-Next) has no attention that the MLP could be told from.
        """
        if self._sublayers is None:
            self._sublayers = self._found()
        return self._sublayers

    def middles(self, trace: Trace) -> Float[Tensor, "block position width"]:
        """What each block makes of its state with its MLP silenced; not a number where it has no parts."""
        given = {block: trace[block] for block, part in enumerate(self.sublayers) if part is not None}
        made = torch.full_like(trace.residual[1:], torch.nan)
        for block, state in self.silenced(trace.ids, given, "mlp").items():
            made[block] = state
        return made

    @torch.no_grad()
    def silenced(
        self, ids: Int[Tensor, " position"], states: Mapping[int, Float[Tensor, "position width"]], half: Half
    ) -> dict[int, Float[Tensor, "position width"]]:
        """What each of these blocks makes of a state of its own with its attention or its MLP silenced.

        One pass, in which the silenced part runs only where it is silenced by what comes after it (a
        norm). Only for blocks that have `sublayers`.
        """
        parts = {block: getattr(self.sublayers[block], half) for block in states}
        made: dict[int, Tensor] = {}

        def visit(number: int, call: Call, hidden: Tensor) -> Any:
            if number in states:
                given = states[number][None].to(hidden.device, self.dtype)
                found = call.run(given, {parts[number].path: silent(parts[number], self.width)})
                made[number] = found[0].to(states[number].device)
            return handover.like(self._kinds[number], hidden)

        if states:
            self._visited(ids, visit)
        return made

    @torch.no_grad()
    def _found(self) -> tuple[Sublayers | None, ...]:
        ids = torch.arange(PROBE, device=self.device) % self.embeddings
        if self.positions.tokens is not None:
            ids = ids[: self.positions.tokens]
        attends = self._attends(ids)
        found: list[Sublayers | None] = []

        def visit(number: int, call: Call, hidden: Tensor) -> Any:
            known = [part for part in dict.fromkeys(found) if part is not None]
            found.append(find(call, hidden, known) if attends[number] else None)
            return call.block(hidden, *call.args, **call.kwargs)

        if any(attends):
            self._visited(ids, visit)
        return tuple(found) or (None,) * self.blocks

    def _attends(self, ids: Tensor) -> list[bool]:
        """Which blocks keep a key and a value of each token, as attention does, and no other state."""
        kept = self.kept(ids[:2])  # no more than the narrowest window
        if kept is None:
            return [False] * self.blocks
        return [keys and not states for keys, states in kept]

    def _visited(self, ids: Tensor, visit: Visit) -> None:
        """A pass in which every block is left to `visit`."""

        def step(number: int) -> Step:
            def run(block: nn.Module, hidden: Tensor, args: Any, kwargs: Any) -> Any:
                named = {name: _forgetful(value) for name, value in kwargs.items()}
                return visit(number, Call(block, tuple(map(_forgetful, args)), named), hidden)

            return run

        steps = {self._block(number): step(number) for number in range(self.blocks)}
        self._forward(twin(self.model, steps), ids[None], [len(ids) - 1])


def _forgetful(value: Any) -> Any:
    """An input of a block, None for a cache: a block that runs twice must not remember the first time.

    Some models (GraniteMoE) make one although their `forward` has no switch for it.
    """
    return None if hasattr(value, "update") and hasattr(value, "get_seq_length") else value
