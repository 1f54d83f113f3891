"""Words at a place of a text: the tokens of one, and the trace in which each is read after those before it.

Law: a word of several tokens is read by teacher forcing, so a trace that reads it holds all its tokens
but the last after its position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lenses import target, tokens
from lenses.decoder import Decoder
from lenses.errors import BadOption
from lenses.target import Target
from lenses.trace import Trace

KEPT = 16 << 20
"""Bytes of a trace that holds another word, up to which it is remembered with the target's."""
TOGETHER = 32 << 20
"""Bytes of all of these that are remembered with one trace: those of the last words."""


@dataclass(frozen=True)
class Word:
    """Tokens that are read one after another, and the trace that holds all but the last."""

    trace: Trace
    target: Target


@dataclass(frozen=True)
class Place:
    """One token of a word: a position of a trace, and the token that is read there."""

    trace: Trace
    position: int
    token: int


def other(decoder: Decoder, trace: Trace, at: Target, text: str, name: str) -> Word:
    """Another word at the target's place."""
    if not text:
        raise BadOption(
            f"the readout {name} needs another word to measure against: give one, such as ' London'"
        )
    ids, _ = target.pieces(decoder.tokenizer, _before(decoder, trace, at), text)
    if wrong := [id for id in ids if id >= decoder.vocabulary]:
        raise BadOption(f"{text!r} is outside this vocabulary of {decoder.vocabulary} tokens (id {wrong[0]})")
    return at_place(decoder, trace, at.position, tuple(ids))


def variants(decoder: Decoder, trace: Trace, at: Target) -> list[tuple[int, ...]]:
    """The tokens of the target's spellings, its own first (`target.variants`)."""
    return target.variants(decoder.tokenizer, _before(decoder, trace, at), at.tokens)


def _before(decoder: Decoder, trace: Trace, at: Target) -> str:
    return str(decoder.tokenizer.decode(trace.ids[: at.position + 1].tolist(), skip_special_tokens=True))


def at_place(decoder: Decoder, trace: Trace, position: int, ids: tuple[int, ...]) -> Word:
    """A word after a position; its trace is made where the target's does not hold it."""
    word = Target(position, ids[0], ids[1:])
    if holds(trace, word):
        return Word(trace, word)
    memo = trace.memo.setdefault(decoder, {})
    key = "followed", position, ids[:-1], trace.residual.device, trace.residual._version
    made: Trace = memo.pop(key, None) or followed(decoder, trace, word)
    if made.residual.nbytes <= KEPT:
        memo[key] = made
        _forget(memo)
    return Word(made, word)


def _forget(memo: dict[Any, Any]) -> None:
    """Let the traces go that were not asked for longest, where all of them are too many bytes."""
    room = TOGETHER
    for key, kept in reversed(list(memo.items())):  # a copy at once: other threads may use this trace
        if isinstance(kept, Trace):
            room -= kept.residual.nbytes
            if room < 0:
                memo.pop(key, None)


def holds(trace: Trace, word: Target) -> bool:
    """Whether the trace goes on with the word's own tokens, so that each can be read after the others."""
    there = trace.ids[word.position + 1 : word.position + len(word.tokens)].tolist()
    return there == list(word.tokens[:-1])


def followed(decoder: Decoder, trace: Trace, word: Target) -> Trace:
    """The trace of the text up to the word's position, and of all its tokens but the last."""
    return decoder.trace([*trace.ids[: word.position + 1].tolist(), *word.tokens[:-1]])


def spelled(decoder: Decoder, trace: Trace, at: Target) -> tuple[str, ...]:
    """The texts of the target's spellings."""
    return tuple(
        "".join(token.text for token in tokens.as_tokens(decoder.tokenizer, list(ids)))
        for ids in variants(decoder, trace, at)
    )
