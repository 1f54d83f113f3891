"""What a block hands on: a tensor, or the first entry of a tuple or a list (BLOOM, MPT, openai-gpt …)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lenses.errors import UnsupportedModel


def hidden(output: Any) -> Tensor:
    """The residual in what a block handed back; raises `UnsupportedModel` where there is none."""
    first = output[0] if isinstance(output, tuple | list) else output
    if not isinstance(first, Tensor):
        raise UnsupportedModel(f"a block hands back a {type(first).__name__}, not a tensor")
    return first


def kind(output: Any) -> Any:
    """The shape of a block's answer without its tensors, for blocks that are left out later."""
    return None if isinstance(output, Tensor) else type(output)([None] * len(output))


def like(output: Any, hidden: Tensor) -> Any:
    """`hidden`, handed back in the manner of `output`."""
    return type(output)([hidden, *output[1:]]) if isinstance(output, tuple | list) else hidden
