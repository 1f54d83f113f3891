"""A shallow twin of a module tree: some modules replaced, everything else shared, nothing mutated.

Only the modules on the paths to the replaced ones are copied (their `__dict__` and `_modules`); all
weights, buffers and other modules are the original's own objects. No hook is set and nothing has to
be undone, so an exception leaves nothing behind and any number of threads can work on one model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from lenses.dispatched import follow

Step = Callable[[nn.Module, Any, tuple[Any, ...], dict[str, Any]], Any]
"""What a wrapped module does instead: (module, first input, other inputs, keywords) → output.

The first input is None where all inputs are named: `called` runs the module as it was called."""


class Wrapped(nn.Module):
    """A module whose forward is decided by a function; it looks like the module in all else."""

    def __init__(self, module: nn.Module, step: Step) -> None:
        super().__init__()
        self.__dict__.update(module=module, step=step, training=module.training)

    def __getattr__(self, name: str) -> Any:
        # Some models read attributes of their blocks (attention_type, layer_idx, weight …).
        return getattr(self.__dict__["module"], name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        hidden, *others = args or (None,)
        return self.__dict__["step"](self.__dict__["module"], hidden, tuple(others), kwargs)


def called(module: nn.Module, hidden: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the module makes of the inputs that a step was given."""
    return module(**kwargs) if hidden is None else module(hidden, *args, **kwargs)


def twin(module: nn.Module, steps: Mapping[str, Step]) -> nn.Module:
    """A copy of `module` in which the submodule at each dotted path is run by its step."""
    if "" in steps:
        return Wrapped(module, steps[""])
    copy: nn.Module = object.__new__(type(module))
    # Accelerate patches `forward` on the instance; carried over, it would run the original module.
    copy.__dict__.update({k: v for k, v in module.__dict__.items() if k != "forward"})
    copy.__dict__["_modules"] = dict(module._modules)
    follow(copy)
    for child, deeper in _by_child(steps).items():
        copy._modules[child] = twin(module.get_submodule(child), deeper)
    return copy


def _by_child(steps: Mapping[str, Step]) -> dict[str, dict[str, Step]]:
    grouped: dict[str, dict[str, Step]] = {}
    for path, step in steps.items():
        child, _, rest = path.partition(".")
        grouped.setdefault(child, {})[rest] = step
    return grouped
