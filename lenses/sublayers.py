"""The two sublayers of a block, attention and MLP, found by what they do and never by their names.

Law: block(h) = h + c·v + c′·u, where v and u are what the two hand back, whatever v and u are put in
their place, and c, c′ two numbers (1, or a residual multiplier as in Granite). So the block with its
MLP silenced is h + c·v with nothing of the MLP in it, and with both silenced it passes h on. Attention
is the one that mixes positions; the MLP sees each position by itself. A block for which this can't be
shown (a norm after the sum, one part or three, a recurrence and no MLP) has no separable parts.

The laws are those of arithmetic, so they are tried on random states, which are quiet: a norm before a
sublayer makes them loud, and whatever else the block adds would stand out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lenses import handover
from lenses.twin import Step, called, twin

Half = Literal["attention", "mlp"]
"""One of the two, by name."""

QUIET = 1 / 32
"""The size of the numbers in a random state."""

ROUNDINGS = 4
"""How many roundings of a sum may lie between the block and the law."""

LEAST = 1e-3
"""The smallest factor with which a sublayer can be said to add to the state at all."""


@dataclass(frozen=True)
class Writer:
    """A module inside a block that adds what it hands back to the state.

    `path` is its place in the block; `onto` the input that it adds itself to (BLOOM's and MPT's take
    the state and hand back the sum), by number or by name, or None; `plain`: it hands back a tensor
    with a row for each of its input, so that it need not run to be silent.
    """

    path: str
    onto: int | str | None
    plain: bool


@dataclass(frozen=True)
class Sublayers:
    """What adds to the state in a block: attention first, then the MLP, or (`parallel`) both at once."""

    attention: Writer
    mlp: Writer
    parallel: bool


@dataclass(frozen=True)
class Call:
    """A block and what it is called with besides its state."""

    block: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def run(
        self, state: Float[Tensor, "batch position width"], steps: Mapping[str, Step]
    ) -> Float[Tensor, "batch position width"]:
        """What the block makes of a state while some of its modules are run by steps; where the state is."""
        block = twin(self.block, steps) if steps else self.block
        made = handover.hidden(block(state.clone(), *self.args, **self.kwargs))  # Falcon adds in place
        return made.to(state.device)


def silent(writer: Writer, width: int) -> Step:
    """The step of a writer that adds nothing."""
    return _saying(writer, width, None)


def find(
    call: Call, like: Float[Tensor, "batch position width"], known: Sequence[Sublayers] = ()
) -> Sublayers | None:
    """The block's sublayers, or None where it can't be shown that it has them.

    `like` is a state of the block, for its shape and number format. The sublayers of other blocks,
    `known`, are tried first, which saves a search and proves the same.
    """
    trial = _Trial(call, like)
    for modules in _layers(call.block):
        writers = trial.writers(modules)
        guesses = [(k.attention, k.mlp) for k in known if {k.attention, k.mlp} <= set(writers)]
        others = [(a, m) for m in writers for a in writers if a.path != m.path]
        for attention, mlp in [*guesses, *others]:
            if trial.adds_up(attention, mlp) and trial.roles(attention, mlp):
                return Sublayers(attention, mlp, trial.parallel(attention, mlp))
    return None


class _Trial:
    """Experiments with one block on random states of a few positions."""

    def __init__(self, call: Call, like: Tensor) -> None:
        self.call, self.rounding = call, torch.finfo(like.dtype).eps
        drawn = QUIET * torch.randn(5, *like.shape, generator=torch.Generator().manual_seed(0))
        self.state, self.other, self.v, self.u, self.w = drawn.to(like)
        self.other[:, -1] = self.state[:, -1]  # the same last position after another past

    def writers(self, modules: Sequence[str]) -> list[Writer]:
        """Each way in which one of the modules could add to the state, in the order in which they run."""
        seen: list[tuple[str, list[Writer]]] = []

        def watching(path: str) -> Step:
            def step(module: nn.Module, hidden: Any, args: Any, kwargs: Any) -> Any:
                output = called(module, hidden, args, kwargs)
                seen.append((path, self._ways(path, output, hidden, args, kwargs)))
                return output

            return step

        self.call.run(self.state, {path: watching(path) for path in modules})
        ran = [path for path, _ in seen]
        return [writer for path, ways in seen if ran.count(path) == 1 for writer in ways]

    def _ways(self, path: str, output: Any, hidden: Any, args: Any, kwargs: Any) -> list[Writer]:
        """A writer for adding by itself, and one for each input that it may add itself to."""
        first = output[0] if isinstance(output, tuple | list) and output else output
        inputs = _inputs(hidden, args, kwargs)
        if not isinstance(first, Tensor) or not inputs or first.numel() != self.state.numel():
            return []
        leading = next(iter(inputs.values())).shape[:-1]
        plain = isinstance(output, Tensor) and first.shape == (*leading, self.state.shape[-1])
        keys = [None, *(key for key, given in inputs.items() if given.shape == first.shape)]
        return [Writer(path, key, plain) for key in keys]

    def adds_up(self, attention: Writer, mlp: Writer) -> bool:
        """Whether the block is h + c·v + c′·u for whatever the two say, and h where they say nothing."""
        nothing = self._run(self.state, {attention: None, mlp: None})
        if self._differ(nothing, self.state, ROUNDINGS * self.rounding):
            return False
        found = self._run(self.state, {attention: self.v, mlp: self.u}).double().cpu()
        state, v, u = (part.double().cpu() for part in (self.state, self.v, self.u))
        said = torch.stack([v.flatten(), u.flatten()], dim=1)
        factors = torch.linalg.lstsq(said, (found - state).reshape(-1, 1)).solution
        expected = state + (said @ factors).reshape(state.shape)
        close = not self._differ(found, expected, ROUNDINGS * self.rounding)
        return close and bool(factors.abs().min() > LEAST)

    def roles(self, attention: Writer, mlp: Writer) -> bool:
        """Whether the first mixes positions, and the second, the first held still, does not."""
        mixed = [self._said(attention, past, {mlp: None})[:, -1] for past in (self.state, self.other)]
        alone = [self._said(mlp, past, {attention: self.v})[:, -1] for past in (self.state, self.other)]
        return self._moves(*mixed) and not self._moves(*alone)

    def parallel(self, attention: Writer, mlp: Writer) -> bool:
        """Whether the MLP does not see what attention said."""
        return not self._moves(*(self._said(mlp, self.state, {attention: said}) for said in (self.v, self.w)))

    def _run(self, state: Tensor, said: Mapping[Writer, Tensor | None], more: Any = ()) -> Tensor:
        steps = {w.path: _saying(w, state.shape[-1], value) for w, value in said.items()}
        return self.call.run(state, {**steps, **dict(more)})

    def _said(self, writer: Writer, state: Tensor, others: Mapping[Writer, Tensor | None]) -> Tensor:
        """What a writer adds by itself, while others say what they are told."""
        seen: list[Tensor] = []

        def tap(module: nn.Module, hidden: Any, args: Any, kwargs: Any) -> Any:
            given = None if writer.onto is None else _inputs(hidden, args, kwargs)[writer.onto].clone()
            output = called(module, hidden, args, kwargs)
            first = handover.hidden(output)
            seen.append((first.clone() if given is None else first - given).reshape(state.shape))
            return output

        self._run(state, others, {writer.path: tap})
        return seen[0]

    def _moves(self, one: Tensor, other: Tensor) -> bool:
        """Whether two are further apart than the kernels of two batches: far more than rounding."""
        return self._differ(one, other, self.rounding**0.5)

    def _differ(self, found: Tensor, expected: Tensor, tolerance: float) -> bool:
        """Whether two are further apart than a part of their size (root mean square)."""
        off = (found.double() - expected.double()).square().mean().sqrt()
        return not bool(off <= tolerance * expected.double().square().mean().sqrt())


def _saying(writer: Writer, width: int, value: Tensor | None) -> Step:
    """The step of a writer that says `value` (or nothing) instead of what it would say."""

    def step(module: nn.Module, hidden: Any, args: Any, kwargs: Any) -> Any:
        inputs = _inputs(hidden, args, kwargs)
        # Another entry of a tuple may be needed, such as a router's choice.
        output = None if writer.plain else called(module, hidden, args, kwargs)
        if writer.onto is not None:
            said = inputs[writer.onto].clone()
        elif output is not None:
            said = torch.zeros_like(handover.hidden(output))
        else:
            first = next(iter(inputs.values()))
            said = first.new_zeros(*first.shape[:-1], width)
        if value is not None:
            said = said + value.to(said.device).reshape(said.shape)
        return said if output is None else handover.like(output, said)

    return step


def _inputs(hidden: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[int | str, Tensor]:
    """The tensors that a module is given, by number or by name."""
    given: list[tuple[int | str, Any]] = [*enumerate((hidden, *args)), *kwargs.items()]
    return {key: value for key, value in given if isinstance(value, Tensor)}


def _layers(block: nn.Module) -> Iterator[list[str]]:
    """The modules that the block runs itself, then those that these run (DBRX wraps its attention)."""
    shallow = dict(_running(block, ""))
    yield list(shallow)
    yield [
        inner
        for path, module in shallow.items()
        for inner in dict(_running(module, f"{path}.")) or {path: module}
    ]


def _running(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    """The nearest modules inside that can be run: a list of modules can't, but what it holds can."""
    for name, child in module.named_children():
        if type(child).forward is nn.Module.forward:
            yield from _running(child, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", child
