"""What is being explained: a word of one or more tokens, predicted after one position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from lenses.errors import BadPrompt
from lenses.prompts.wording import shown
from lenses.tokens import Prompt, Token, as_tokens, plain_ids, text_of, unknown

LIKELIER = 10.0
"""How many times likelier the spaced form has to be before it is suggested."""


@dataclass(frozen=True)
class Target:
    """The token `token`, predicted AFTER `position`; a word of several tokens goes on with `more`.

    A trace for such a word holds its tokens after `position` (all but the last), so that each is
    predicted after those before it: teacher forcing.
    """

    position: int
    token: int
    more: tuple[int, ...] = ()

    @property
    def tokens(self) -> tuple[int, ...]:
        return (self.token, *self.more)

    @property
    def positions(self) -> tuple[int, ...]:
        """The positions after which its tokens are predicted."""
        return tuple(range(self.position, self.position + len(self.tokens)))


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
    before = _before(tokenizer, prompt, position)
    ids, warnings = pieces(tokenizer, before, target)
    if max(ids) >= len(probabilities):
        raise BadPrompt(
            f"the target {shown(target)} is outside this vocabulary of {len(probabilities)} tokens"
        )
    warnings += _spaced(tokenizer, before, target, ids, probabilities)
    return Target(position, ids[0], tuple(ids[1:])), warnings


def written(tokenizer: Any, prompt: Prompt, position: int, target: str | int | None) -> tuple[int, ...]:
    """The tokens of a typed target, before anything is read: none for an id, or for the likeliest."""
    if not isinstance(target, str):
        return ()
    return tuple(pieces(tokenizer, _before(tokenizer, prompt, position), target)[0])


def variants(tokenizer: Any, before: str, ids: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The tokens of a word in other spellings, itself first: with and without a space before it, in
    small letters and with a capital.

    One that the vocabulary lacks is left out, and one whose tokens are the beginning of another's,
    or go on after them: then one probability is a part of the other.
    """
    text = "".join(token.text for token in as_tokens(tokenizer, list(ids)))
    bare = text.strip()
    found: list[tuple[int, ...]] = [ids]
    for space in ("", " "):
        for form in (bare, bare.lower(), bare[:1].upper() + bare[1:]):
            spelled = tuple(_typed(tokenizer, before, space + form) or ()) if form else ()
            apart = all(spelled[: len(o)] != o and o[: len(spelled)] != spelled for o in found)
            if spelled and apart and not unknown(tokenizer, space + form, list(spelled)):
                found.append(spelled)
    return found


def read_as(tokenizer: Any, prompt: Prompt, position: int, target: str) -> tuple[Token, ...]:
    """The tokens of a target typed after a position of the prompt; raises `BadPrompt` as `choose`."""
    return as_tokens(tokenizer, pieces(tokenizer, _before(tokenizer, prompt, position), target)[0])


def pieces(tokenizer: Any, before: str, target: str) -> tuple[list[int], list[str]]:
    """The tokens of `target` typed after `before`, without special tokens, and warnings."""
    ids = _typed(tokenizer, before, target)
    warnings = []
    if ids is None and target and plain_ids(tokenizer, before):
        warnings.append(
            f"typed after the prompt, {shown(target)} would merge with the token before it; it is scored "
            "as a token of its own"
        )
    # A new line first, since a SentencePiece tokenizer begins a text with a space.
    ids = ids or _typed(tokenizer, "\n", target) or plain_ids(tokenizer, target)
    if not ids:
        raise BadPrompt(f"the target {shown(target)} is empty: type the word that should come next")
    if unknown(tokenizer, target, ids):
        raise BadPrompt(f"the target {shown(target)} is not in this model's vocabulary")
    return ids, warnings


def _typed(tokenizer: Any, before: str, target: str) -> list[int] | None:
    """What `target` adds to the tokens of `before`, or None where it changes them."""
    prefix, joint = plain_ids(tokenizer, before), plain_ids(tokenizer, before + target)
    kept = joint[: len(prefix)] == prefix and len(joint) > len(prefix)
    return joint[len(prefix) :] if kept else None


def _before(tokenizer: Any, prompt: Prompt, position: int) -> str:
    """The text that the target follows: the prompt, or what it says up to `position`."""
    if position == len(prompt.tokens) - 1 and not prompt.chat:
        return prompt.text
    return str(tokenizer.decode(prompt.ids[: position + 1], skip_special_tokens=True))


def _spaced(
    tokenizer: Any, before: str, target: str, ids: list[int], probabilities: Float[ndarray, " vocabulary"]
) -> list[str]:
    """A hint where the same word with a space before it (or without) is far likelier."""
    other = target.removeprefix(" ") if target.startswith(" ") else f" {target}"
    changed = _typed(tokenizer, before, other)
    if not changed or changed[0] == ids[0] or changed[0] >= len(probabilities):
        return []
    typed, likelier = probabilities[ids[0]], probabilities[changed[0]]
    if likelier < LIKELIER * typed:
        return []
    how = "without the space" if target.startswith(" ") else "with a space"
    had = "has" if len(ids) == 1 else f"begins with {text_of(tokenizer, ids[0])!r}, which has"
    return [
        f"{shown(target)} {had} {typed:.2%}; {how} before it, {text_of(tokenizer, changed[0])!r} has "
        f"{likelier:.2%}: give {shown(other)} if that is meant"
    ]
