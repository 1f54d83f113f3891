"""Where no gradient goes through although numbers do: modules that were quantised for reading only.

A method that takes gradients would leave out, without a word, all that passes through such a module. Law:
a module is one if what it makes follows its input and yet asks for no gradient; it is found by running
it, never by its name. (The angles of rotary positions ask for none either, and follow no input.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as tree

from lenses import shortage
from lenses.errors import UnsupportedLens
from lenses.inside import Inside
from lenses.twin import Step, called, twin


class Slopes(Inside):
    """What gradients can be taken of."""

    _cut: tuple[str, ...] | None = None

    def refuse_cut(self, what: str, tail: bool = False) -> None:
        """Raise `UnsupportedLens` where gradients don't go through the whole model, or its `tail` alone."""
        inner = f"{self._layout.blocks}."
        found = [path for path in self.cuts if not (tail and path.startswith(inner))]
        if found:
            raise UnsupportedLens(
                f"{what} needs gradients, and none goes through {found[0]} of {self._named}, as in a module "
                "that was quantised for reading only: load the model with plain weights"
            )

    @property
    def cuts(self) -> tuple[str, ...]:
        """The paths of the modules that no gradient goes through; looked for once, with two tokens."""
        if self._cut is None:
            self._cut = tuple(self._looked_for())
        return self._cut

    def _looked_for(self) -> list[str]:
        found: list[str] = []

        def watching(path: str) -> Step:
            def step(module: nn.Module, hidden: Any, args: Any, kwargs: Any) -> Any:
                output = called(module, hidden, args, kwargs)
                asked = any(one.requires_grad for one in _numbers((hidden, args, kwargs)))
                if asked and not _asks(output) and _follows(module, hidden, args, kwargs, output):
                    found.append(path)
                return tree.tree_map(_afresh, output)

            return step

        steps = {path: watching(path) for path, module in self.model.named_modules() if _runs(module)}
        ids = torch.arange(2, device=self.device)[None] % self.embeddings
        try:
            with torch.enable_grad():
                self._forward(twin(self.model, steps), ids[:, : self.positions.tokens or 2], None)
        except RuntimeError as error:
            if not self._away or shortage.ran_out(error):
                raise
            raise UnsupportedLens(
                f"whether gradients go through {self._named} can't be tried with weights that are offloaded "
                f"({error}): load it whole, on one device"
            ) from error
        return found


def _runs(module: nn.Module) -> bool:
    """Whether a module does its work by itself."""
    return not any(True for _ in module.children()) and type(module).forward is not nn.Module.forward


def _numbers(values: Any) -> Iterator[Tensor]:
    return (v for v in tree.tree_leaves(values) if isinstance(v, Tensor) and v.is_floating_point())


def _asks(output: Any) -> bool:
    made = list(_numbers(output))
    return not made or any(one.requires_grad for one in made)


@torch.no_grad()
def _follows(module: nn.Module, hidden: Any, args: Any, kwargs: Any, output: Any) -> bool:
    """Whether the module makes something else of another input."""

    def other(value: Any) -> Any:
        return 2 * value + 1 if isinstance(value, Tensor) and value.is_floating_point() else value

    made = called(module, *tree.tree_map(other, (hidden, args, kwargs)))
    pairs = zip(_numbers(output), _numbers(made), strict=True)
    return any(one.shape != two.shape or not torch.equal(one, two) for one, two in pairs)


def _afresh(value: Any) -> Any:
    """A tensor with no past that asks for a gradient: nothing of the pass is kept for its sake."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().requires_grad_().clone()  # a leaf can't be added to in place
    return value
