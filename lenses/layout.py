"""Where a model keeps its parts: found by identity and by length, never by a table of names."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from torch import nn

from lenses.errors import UnsupportedModel


@dataclass(frozen=True)
class Positions:
    """How many tokens the configuration allows; `table`: a table of positions really ends there.

    `stretches`: what a position means depends on the length of the whole input (dynamic and long rope).
    """

    tokens: int | None
    table: bool
    stretches: bool = False

    def too_long(self, count: int) -> str:
        """What to say of a prompt of `count` tokens that has more than there are places."""
        places = self.tokens or 0
        return (
            f"the prompt has {count} tokens and the model has places for {places}: "
            f"leave out at least {count - places}"
        )


@dataclass(frozen=True)
class Layout:
    """Dotted paths of the block list, the input embedding and the head, and what forward takes."""

    blocks: str
    embedding: str
    head: str | None
    count: int
    keywords: frozenset[str]
    positions: Positions


def text_config(model: Any) -> Any:
    """The configuration of the text decoder (a vision–language model keeps it inside)."""
    config = getattr(model, "config", None)
    if config is None:
        raise UnsupportedModel(
            f"{type(model).__name__} has no configuration, so its blocks can't be counted; "
            "pass a Hugging Face decoder-only model"
        )
    return config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config


def layouts(model: nn.Module) -> list[Layout]:
    """Every place where the blocks can be, outermost first; the readout proof picks one.

    Raises `UnsupportedModel` if no module list is as long as the configuration says.
    """
    count = getattr(text_config(model), "num_hidden_layers", None)
    found = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == count
    ]
    outer = [name for name in found if not any(name.startswith(other + ".") for other in found)]
    if not count or not outer:
        raise UnsupportedModel(
            f"no list of {count} blocks in {type(model).__name__}: the configuration's "
            "num_hidden_layers matches no module list, so depth is not defined for this model"
        )
    shared = dict(
        embedding=_path(model, "get_input_embeddings"),
        head=_path(model, "get_output_embeddings"),
        count=count,
        keywords=_keywords(model),
        positions=_positions(model),
    )
    if shared["embedding"] is None:
        raise UnsupportedModel(f"{type(model).__name__} names no input embedding")
    return [Layout(blocks=name, **shared) for name in sorted(outer, key=lambda n: n.count("."))]


def _path(model: nn.Module, getter: str) -> str | None:
    """The dotted path of the module that the model's own getter returns."""
    try:
        wanted = getattr(model, getter)()
    except (AttributeError, NotImplementedError):
        return None
    return next((name for name, module in model.named_modules() if module is wanted), None)


def _keywords(model: Any) -> frozenset[str]:
    """The keywords of forward (of the inner model where PEFT wraps it)."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    return frozenset(inspect.signature(type(inner).forward).parameters)


def _positions(model: Any) -> Positions:
    """Learned tables (GPT-2, OPT with 2 rows more) and buffers (GPT-J) end; rotary angles do not."""
    config = text_config(model)
    tokens = getattr(config, "max_position_embeddings", None) or getattr(config, "max_seq_len", None)
    if not isinstance(tokens, int):
        return Positions(None, False)
    words = model.get_input_embeddings()
    learned = any(
        isinstance(module, nn.Embedding)
        and module is not words
        and tokens <= module.num_embeddings <= tokens + 8
        for module in model.modules()
    )
    # A two-dimensional table of angles, or a square causal mask.
    fixed = any(
        buffer.ndim >= 2 and tokens in (buffer.shape[0], buffer.shape[-2]) for buffer in model.buffers()
    )
    kinds = " ".join(str(getattr(module, "rope_type", "")) for module in model.modules())
    return Positions(tokens, learned or fixed, "dynamic" in kinds or "longrope" in kinds)
