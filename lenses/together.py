"""Many questions asked at once: two passes of the model and one of its head for all of them.

Law: each question is what `question.ask` makes of its prompt alone, up to the rounding of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from lenses import baseline, padded, question, readout
from lenses.decoder import Decoder
from lenses.errors import LensesError, NonFinite
from lenses.question import Question, Reading
from lenses.target import written
from lenses.tokens import Prompt
from lenses.trace import Trace

T = TypeVar("T")
U = TypeVar("U")


@torch.no_grad()
def ask(
    decoder: Decoder, prompts: Sequence[Prompt], targets: Sequence[str | None]
) -> list[Question | LensesError]:
    """The question of each prompt after its last token, or what is wrong with it.

    What is wrong with one prompt stays with it. Raises `PaddingMatters` where this model can't take
    several prompts at once.
    """
    wrong: dict[int, LensesError] = {}

    def begun(k: int, prompt: Prompt) -> Asked:
        word = written(decoder.tokenizer, prompt, len(prompt.tokens) - 1, targets[k])
        return Asked(decoder.checked(prompt.ids), word)

    asked = _each(wrong, dict(enumerate(prompts)), begun)
    asked = _each(wrong, asked, lambda _, one: one.checked(decoder))
    if not asked:
        return [wrong[k] for k in range(len(prompts))]
    ids, places = [one.ids for one in asked.values()], [one.places for one in asked.values()]
    traces = dict(zip(asked, padded.traces(decoder, ids), strict=True))
    own = dict(zip(asked, padded.own(decoder, ids, places), strict=True))
    last = decoder.readout(torch.cat([traces[k][-1][one.places.start :] for k, one in asked.items()]))
    read = dict(zip(asked, last.split([len(some) for some in places]), strict=True))

    def reading(k: int, trace: Trace) -> Reading:
        decoder.finite(trace)
        one = asked[k]
        found = list(question.compared(decoder, one.places, own[k], read[k]))
        after = tuple(float(own[id]) for (own, _), id in zip(found[1:], one.word[1:], strict=True))
        gap = max(gap for _, gap in found)
        return question.reading(decoder, prompts[k], trace, one.places.start, found[0][0], gap, after)

    readings = _each(wrong, traces, reading)
    chosen = _each(wrong, readings, lambda k, found: question.choose(decoder, found, targets[k]))
    wanted = [
        (traces[k], position, token)
        for k, (target, _) in chosen.items()
        for position, token in zip(target.positions, target.tokens, strict=True)
    ]
    with suppress(NonFinite):  # then each is read by itself below, and the one at fault is named
        readout.remember(decoder, wanted)
        baseline.starts(decoder, wanted)
    made = _each(wrong, chosen, lambda k, found: question.pose(decoder, readings[k], *found))
    return [made[k] if k in made else wrong[k] for k in range(len(prompts))]


@dataclass(frozen=True)
class Asked:
    """A prompt's tokens and those of its word, which is read after the prompt's last token."""

    prompt: Int[Tensor, " position"]
    word: tuple[int, ...]

    @property
    def ids(self) -> Int[Tensor, " position"]:
        """What the model is given: the prompt, and the word but for its last token."""
        return torch.cat([self.prompt, self.prompt.new_tensor(self.word[:-1])])

    @property
    def places(self) -> range:
        """Where the word's tokens are predicted."""
        return range(len(self.prompt) - 1, len(self.ids))

    def checked(self, decoder: Decoder) -> Asked:
        """Itself; raises `BadPrompt` where the word leaves no place for its last tokens."""
        decoder.checked(self.ids)
        return self


def _each(
    wrong: dict[int, LensesError], things: Mapping[int, T], make: Callable[[int, T], U]
) -> dict[int, U]:
    """What `make` makes of each thing; the error of one that it refuses goes to `wrong`."""
    made = {}
    for k, thing in things.items():
        try:
            made[k] = make(k, thing)
        except LensesError as error:
            wrong[k] = error.with_traceback(None)  # which would hold all that was there when it was raised
    return made
