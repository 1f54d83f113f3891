"""What is being explained: one token, predicted after one position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from lenses.errors import BadPrompt
from lenses.tokens import Prompt, text_of

LIKELIER = 10.0
"""How many times likelier the spaced form has to be before it is suggested."""


@dataclass(frozen=True)
class Target:
    """The token `token`, predicted AFTER `position`."""

    position: int
    token: int


def at(prompt: Prompt, position: int | None) -> int:
    """The position whose next token is explained: the last by default, negative from the end."""
    count = len(prompt.tokens)
    if position is None:
        return count - 1
    if not -count <= position < count:
        raise BadPrompt(f"position {position} is outside the prompt, which has tokens 0…{count - 1}")
    return position % count


def choose(
    tokenizer: Any,
    prompt: Prompt,
    position: int,
    probabilities: Float[ndarray, " vocabulary"],
    target: str | int | None,
) -> tuple[Target, list[str]]:
    """The target and what to warn of: by default the model's most likely next token.

    Raises `BadPrompt` for a target that the vocabulary does not have.
    """
    if target is None:
        return Target(position, int(np.argmax(probabilities))), []
    if isinstance(target, int):
        if not 0 <= target < len(probabilities):
            raise BadPrompt(
                f"the target id {target} is outside this vocabulary of {len(probabilities)} tokens"
            )
        return Target(position, target), []
    last = position == len(prompt.tokens) - 1
    ids, warnings = pieces(tokenizer, prompt.text if last else "", target)
    if ids[0] >= len(probabilities):
        raise BadPrompt(f"the target {target!r} is outside this vocabulary of {len(probabilities)} tokens")
    if len(ids) > 1:
        shown = ", ".join(repr(text_of(tokenizer, id)) for id in ids)
        warnings.append(
            f"the target {target!r} is {len(ids)} tokens ({shown}); only the first, "
            f"{text_of(tokenizer, ids[0])!r}, is scored"
        )
    warnings += _spaced(tokenizer, target, ids, probabilities)
    return Target(position, ids[0]), warnings


def pieces(tokenizer: Any, before: str, target: str) -> tuple[list[int], list[str]]:
    """The tokens of `target` typed after `before`, without special tokens, and warnings."""
    alone = list(tokenizer(target, add_special_tokens=False).input_ids)
    if not alone:
        raise BadPrompt("the target is empty: type the word that should come next")
    prefix = list(tokenizer(before, add_special_tokens=False).input_ids)
    joint = list(tokenizer(before + target, add_special_tokens=False).input_ids)
    kept = joint[: len(prefix)] == prefix and len(joint) > len(prefix)
    ids = joint[len(prefix) :] if kept else alone
    unknown = tokenizer.unk_token_id
    if unknown is not None and unknown in ids and str(tokenizer.unk_token) not in target:
        raise BadPrompt(f"the target {target!r} is not in this model's vocabulary")
    warnings = []
    if prefix and not kept:
        warnings.append(
            f"typed after the prompt, {target!r} would merge with the prompt's last token; it is scored "
            "as a token of its own"
        )
    return ids, warnings


def _spaced(
    tokenizer: Any, target: str, ids: list[int], probabilities: Float[ndarray, " vocabulary"]
) -> list[str]:
    """A hint where the same word with a space before it is far likelier."""
    if target.startswith(" "):
        return []
    spaced = list(tokenizer(" " + target, add_special_tokens=False).input_ids)
    if not spaced or spaced[0] == ids[0] or spaced[0] >= len(probabilities):
        return []
    typed, likelier = probabilities[ids[0]], probabilities[spaced[0]]
    if likelier < LIKELIER * typed:
        return []
    return [
        f"{target!r} has {typed:.2%}; with a space before it, {text_of(tokenizer, spaced[0])!r} has "
        f"{likelier:.2%}: give {' ' + target!r} if that is meant"
    ]
