"""A second device that is not there: its tensors are computed by the CPU, and never mix with the CPU's own.

PyTorch lets a Python program stand in for a device (PrivateUse1). Whatever is done to its tensors is done
to the CPU tensors inside them, so that numbers are real; an operation that is given tensors of both is an
error, as it is between two GPUs. What `python -m tests.pretend FAMILY …` prints, as JSON: how far all
numbers of a model in two places are from those of the model in one. It changes PyTorch for the whole
process, which is why it is one of its own.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from accelerate import dispatch_model
from torch.utils import _pytree as tree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from lenses.decoder import Decoder
from tests import numbers, tiny

NAME = "pretend"
MOVES = ("aten::copy_", "aten::_to_copy")


class There(torch.Tensor):
    """A tensor on the device; `here` is the CPU tensor inside."""

    here: torch.Tensor

    @staticmethod
    def __new__(cls, here: torch.Tensor) -> There:
        return torch.Tensor._make_wrapper_subclass(
            cls, here.size(), strides=here.stride(), storage_offset=here.storage_offset(),
            dtype=here.dtype, device=torch.device(NAME, 0),
        )  # fmt: skip

    def __init__(self, here: torch.Tensor) -> None:
        self.here = here

    def __getitem__(self, index: Any) -> Any:
        # PyTorch makes a tensor of a list by a way that fails for a device that Python stands in for.
        parts = index if isinstance(index, tuple) else (index,)
        return super().__getitem__(tuple(torch.tensor(p) if isinstance(p, list) else p for p in parts))

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return done(operation, *args, **(kwargs or {}))


def done(operation: Any, *args: Any, **kwargs: Any) -> Any:
    """The operation on the CPU tensors inside; what it makes is on the device."""
    name: str = operation.name()
    moves = name.startswith(MOVES)
    # Places may be given by the CPU, as for any device.
    mixes = moves or (name.startswith("aten::index") and isinstance(args[0], There))
    inside = {id(one.here): one for one in tree.tree_leaves((args, kwargs)) if isinstance(one, There)}

    def taken_out(value: Any) -> Any:
        if isinstance(value, There):
            return value.here
        if isinstance(value, torch.Tensor) and value.ndim and not mixes:
            raise RuntimeError(f"{name} is given tensors on two devices")
        if isinstance(value, torch.device) and value.type == NAME:
            return torch.device("cpu")
        return value

    def put_in(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not stays:
            return value
        return inside.get(id(value)) if id(value) in inside else There(value)

    given, named = tree.tree_map(taken_out, (args, kwargs))
    if name.startswith("aten::copy_"):
        given[0].copy_(given[1])
        return args[0]
    to = kwargs.get("device") if moves else None
    stays = to is None or to.type == NAME
    return tree.tree_map(put_in, operation(*given, **named))


def register() -> None:
    """Make the device known to this process; never undone."""
    _setup_privateuseone_for_python_backend(NAME)
    tensor = torch.tensor
    # PyTorch's own fails for a device that Python stands in for.
    torch.tensor = lambda *args, device=None, **more: tensor(*args, **more).to(device)
    library = torch.library.Library("_", "IMPL")
    library.fallback(done, "PrivateUse1")
    register.kept = library  # type: ignore[attr-defined]


def model(family: str) -> Any:
    """The tiny model with attention and experts written out: fused ones ask the device what it can do."""
    made = tiny.model(family)
    made.config._attn_implementation = made.config._experts_implementation = "eager"
    return made


WAYS = {
    "middle": {".1": NAME},
    "end": {".1": NAME, ".2": NAME, "norm": NAME, "ln_f": NAME},
}
"""What is on the other device: the second block, or all from it on but the head."""


def held(family: str, way: str) -> dict[str, float]:
    """How far all numbers of a model in two places are from those of the model in one."""
    whole = Decoder(model(family), tiny.tokenizer(), family)
    apart = dispatch_model(model(family), numbers.spread(family, WAYS[way]), main_device="cpu")
    split = Decoder(apart, tiny.tokenizer(), family)
    devices = {str(parameter.device) for parameter in apart.parameters()}
    assert devices == {"cpu", f"{NAME}:0"}, devices
    expected, found = numbers.exact(whole), numbers.exact(split)
    gaps = {name: float((found[name] - value).abs().max()) for name, value in expected.items()}
    one, other = numbers.everything(whole), numbers.everything(split)
    return gaps | {name: numbers.apart(other[name], value) for name, value in one.items()}


def refuses_to_mix() -> bool:
    """Whether a sum over two devices is an error, as it has to be for the rest to tell anything."""
    try:
        torch.ones(2) + torch.ones(2).to(NAME)
    except RuntimeError as error:
        return "two devices" in str(error)
    return False


if __name__ == "__main__":
    register()
    assert refuses_to_mix()
    print(json.dumps({f"{f} {way}": held(f, way) for f in sys.argv[1:] for way in WAYS}))
