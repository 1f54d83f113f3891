"""What is being asked: a prompt, read once and proved, and the token that is to be explained.

`read` is the dear half (two forward passes); `aim` chooses a target on it and costs one readout, so
that another target, depth or lens needs no second pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from lenses import readout, tokens
from lenses import target as targets
from lenses.decoder import Decoder
from lenses.errors import NonFinite
from lenses.measure import measure
from lenses.proof import agree
from lenses.surface import Ranked
from lenses.target import Target
from lenses.tokens import Prompt
from lenses.trace import Trace
from lenses.words import followed, holds

ROWS = 32
"""How many positions' probabilities are held in float64 at once."""


@dataclass(frozen=True)
class Reading:
    """A prompt, read once: its trace, and the model's own probabilities after `position`."""

    prompt: Prompt
    trace: Trace
    position: int
    probabilities: Float[ndarray, " vocabulary"]
    readout_gap: float
    warnings: tuple[str, ...]
    after: tuple[float, ...] = ()
    """Where the trace goes on with a word of several tokens: the model's own probabilities of those
    after the first."""


@dataclass(frozen=True)
class Question:
    """A reading with its target."""

    reading: Reading
    trace: Trace
    """The prompt's, and for a target of several tokens all of them but the last after `position`."""
    target: Target
    pieces: tuple[Ranked, ...]
    """The target's tokens, each with the model's own probability after those before it."""
    readout_gap: float
    delta: float
    """Δp: the target's probability less what depth 0 reads."""
    warnings: tuple[str, ...]

    @property
    def prompt(self) -> Prompt:
        return self.reading.prompt

    @property
    def target_text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def probability(self) -> float:
        """The target's: for several tokens, that of all of them together."""
        return float(np.prod([piece.probability for piece in self.pieces]))


def ask(
    decoder: Decoder,
    text: str,
    *,
    target: str | int | None = None,
    position: int | None = None,
    chat: bool = False,
) -> Question:
    """Read the prompt, prove the readout on this very prompt, and choose the target."""
    prompt = tokens.encode(decoder.tokenizer, text, chat)
    return aim(decoder, read(decoder, prompt, position), target)


def read(decoder: Decoder, prompt: Prompt, position: int | None = None) -> Reading:
    """The prompt as the model reads it; `position` is the last by default, negative from the end.

    Raises `BadPrompt`, `NonFinite`, and `UnsupportedModel` where the readout is not the model's own.
    """
    place = targets.at(prompt, position)
    trace = decoder.trace(prompt.ids)
    ((own, gap),) = proved(decoder, trace, [place])
    return reading(decoder, prompt, trace, place, own, gap)


def reading(
    decoder: Decoder,
    prompt: Prompt,
    trace: Trace,
    position: int,
    own: Float[ndarray, " vocabulary"],
    gap: float,
    after: tuple[float, ...] = (),
) -> Reading:
    """The reading of a prompt whose parts are there, with all that a reader should be warned of."""
    warnings = (*prompt.warnings, *_long(decoder, prompt))
    return Reading(prompt, trace, position, own, max(gap, decoder.readout_gap), warnings, after)


def proved(
    decoder: Decoder, trace: Trace, positions: list[int]
) -> Iterator[tuple[Float[ndarray, " vocabulary"], float]]:
    """The untouched model's own probabilities after each position, and how far the readout is off.

    Raises `UnsupportedModel` where it is further off than rounding allows.
    """
    size = readout.chunk_rows(decoder)
    for start in range(0, len(positions), size):
        part = positions[start : start + size]
        yield from compared(decoder, part, decoder.own(trace.ids, part), decoder.readout(trace[-1][part]))


def proved_everywhere(
    decoder: Decoder, trace: Trace, place: int
) -> tuple[Float[ndarray, " vocabulary"], float]:
    """The model's own probabilities after `place`, and how far the readout is off at any position.

    One pass of the untouched model. Where its head is given the very numbers that the readout gives
    it, the logits are the same; only where they differ are both logits made and compared.
    """
    passed = decoder.own_before_head(trace.ids, [place])
    if passed is None:
        found = list(proved(decoder, trace, list(range(trace.positions))))
        return found[place][0], max(gap for _, gap in found)
    given, logits = passed
    read = decoder.before_head(trace[-1])
    differ = (given != read).any(dim=-1).nonzero()[:, 0].tolist()
    ((own, gap),) = compared(decoder, [place], logits, decoder.readout(trace[-1][[place]]))
    size = max(1, readout.chunk_rows(decoder) // 2)
    for start in range(0, len(differ), size):
        part = differ[start : start + size]
        pairs = compared(decoder, part, decoder.after_head(given[part]), decoder.after_head(read[part]))
        gap = max(gap, *(found for _, found in pairs))
    return own, gap


def compared(
    decoder: Decoder,
    places: Sequence[int],
    own: Float[Tensor, "place vocabulary"],
    read: Float[Tensor, "place vocabulary"],
) -> Iterator[tuple[Float[ndarray, " vocabulary"], float]]:
    """The same for logits that are there: the model's own and those of the readout."""
    for first in range(0, len(places), ROWS):
        rows = slice(first, first + ROWS)
        theirs, ours = (_softmax(logits[rows].double().cpu().numpy()) for logits in (own, read))
        for place, row, other in zip(places[rows], theirs, ours, strict=True):
            yield row, _gap(decoder, place, row, other)


def aim(decoder: Decoder, reading: Reading, target: str | int | None = None) -> Question:
    """The question for the text of a token, its id, or by default the model's most likely next token.

    Raises `BadPrompt` for a target that the vocabulary does not have.
    """
    return pose(decoder, reading, *choose(decoder, reading, target))


def choose(decoder: Decoder, reading: Reading, target: str | int | None) -> tuple[Target, list[str]]:
    """The target of `aim`, and what to warn of."""
    return targets.choose(
        decoder.tokenizer, reading.prompt, reading.position, reading.probabilities, target
    )  # fmt: skip


def pose(decoder: Decoder, reading: Reading, chosen: Target, warned: Sequence[str]) -> Question:
    """The question about a target that was chosen; reads every depth, unless that was done before.

    A target of several tokens is read with its own tokens before it (two more passes, unless the
    reading holds them already).
    """
    trace, after, gap = reading.trace, reading.after, reading.readout_gap
    if not holds(trace, chosen):
        trace, after = followed(decoder, trace, chosen), ()
    if len(after) < len(chosen.more):
        places = list(chosen.positions[1:])
        found = list(proved(decoder, trace, places))
        after = tuple(float(own[id]) for (own, _), id in zip(found, chosen.more, strict=True))
        gap = max(gap, *(one for _, one in found))
    start = measure(decoder, trace, chosen, "probability").levels([0]).values[0]
    texts = tokens.as_tokens(decoder.tokenizer, list(chosen.tokens))
    own = (float(reading.probabilities[chosen.token]), *after[: len(chosen.more)])
    pieces = tuple(Ranked(t.id, t.text, p) for t, p in zip(texts, own, strict=True))
    delta = float(np.prod(own) - start)
    return Question(reading, trace, chosen, pieces, gap, delta, (*reading.warnings, *warned))


def likeliest(decoder: Decoder, reading: Reading, count: int) -> tuple[Ranked, ...]:
    """The model's most likely next tokens, the likeliest first."""
    best = np.argsort(-reading.probabilities, kind="stable")[:count]
    return tuple(
        Ranked(int(id), tokens.text_of(decoder.tokenizer, int(id)), float(reading.probabilities[id]))
        for id in best
    )


def _gap(
    decoder: Decoder, place: int, own: Float[ndarray, " vocabulary"], read: Float[ndarray, " vocabulary"]
) -> float:
    if not np.isfinite(own).all():
        raise NonFinite(
            f"the model's own probabilities after token {place} are not numbers (its logits hold "
            "infinities or NaN): nothing can be explained there"
        )
    gap = float(np.abs(own - read).max())
    agree(decoder, gap, f"of this prompt, put back in at depth {decoder.blocks}")
    return gap


def _softmax(logits: Float[ndarray, "row vocabulary"]) -> Float[ndarray, "row vocabulary"]:
    with np.errstate(invalid="ignore"):
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)


def _long(decoder: Decoder, prompt: Prompt) -> list[str]:
    limit = decoder.positions.tokens
    if limit is None or len(prompt.tokens) <= limit:
        return []
    return [
        f"the prompt has {len(prompt.tokens)} tokens, more than the {limit} that the model was made for: "
        "its prediction may be poor"
    ]
