"""Models that are in several places: on two devices, or with weights in memory or on disk until they run.

Accelerate does that by a hook on each module, which fetches the module's weights and inputs before it
runs and lets go of them afterwards, and by a `forward` on the instance that calls the hook. Law: a copy
that follows its module's hook gives the module's own numbers and leaves the module as it was, and a
weight that is nowhere (on torch's device `meta`) never becomes a number.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

from lenses.errors import UnsupportedModel


def away(module: nn.Module) -> bool:
    """Whether any weight in it is not in memory, or not on the device that it runs on."""
    return any(parameter.is_meta for parameter in module.parameters())


def hooked(module: nn.Module) -> bool:
    """Whether any part of it is run by a hook of accelerate, which may be on a device of its own."""
    return any("_hf_hook" in part.__dict__ for part in module.modules())


def runs_on(module: nn.Module) -> torch.device | None:
    """The device on which a module runs: its hook's, else that of its weights; None where neither says."""
    hook = getattr(module, "_hf_hook", None)
    named = [getattr(one, "execution_device", None) for one in getattr(hook, "hooks", [hook])]
    told = [device for device in named if device is not None]
    present = [weight.device for weight in module.parameters() if not weight.is_meta]
    return torch.device(told[-1]) if told else next(iter(present), None)


def follow(copy: nn.Module) -> None:
    """Let the copy of a module run the module's hook, if it has one, as the module does.

    What the hook fetches goes into the copy alone, whose dictionaries of weights are its own.
    """
    hook: Any = copy.__dict__.get("_hf_hook")
    if hook is None:
        return
    for name in ("_parameters", "_buffers"):
        copy.__dict__[name] = dict(copy.__dict__[name])

    weak = ref(copy)  # no circle: what a pass leaves behind goes with its last name, not at some collection

    def forward(*args: Any, **kwargs: Any) -> Any:
        own: Any = weak()
        args, kwargs = hook.pre_forward(own, *args, **kwargs)
        with torch.no_grad() if hook.no_grad else nullcontext():
            output = type(own).forward(own, *args, **kwargs)
        return hook.post_forward(own, output)

    copy.__dict__["forward"] = forward


def refuse_nowhere(module: nn.Module, name: str) -> None:
    """Raise `UnsupportedModel` for weights that are nowhere and that no hook fetches."""
    if away(module) and not hooked(module):
        raise UnsupportedModel(_nowhere(name))


def number(made: Tensor, name: str) -> Tensor:
    """The tensor itself; raises `UnsupportedModel` where it was made of weights that are nowhere."""
    if made.is_meta:
        raise UnsupportedModel(_nowhere(name))
    return made


def _nowhere(name: str) -> str:
    return (
        f"some weights of {name} are on the device meta, which holds no numbers, and nothing fetches them "
        "when they are needed: load it with device='auto', or whole"
    )
