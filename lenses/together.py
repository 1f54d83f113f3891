"""Many questions asked at once: two passes of the model and one of its head for all of them.

Law: each question is what `question.ask` makes of its prompt alone, up to the rounding of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import torch

from lenses import baseline, padded, question, readout
from lenses.decoder import Decoder
from lenses.errors import LensesError, NonFinite
from lenses.question import Question, Reading
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
    ids = _each(wrong, dict(enumerate(prompts)), lambda _, prompt: decoder.checked(prompt.ids))
    if not ids:
        return [wrong[k] for k in range(len(prompts))]
    places = [len(one) - 1 for one in ids.values()]
    traces = dict(zip(ids, padded.traces(decoder, list(ids.values())), strict=True))
    own = dict(zip(ids, padded.own(decoder, list(ids.values()), places), strict=True))
    last = decoder.readout(torch.stack([trace[-1][-1] for trace in traces.values()]))
    read = dict(zip(ids, last, strict=True))

    def reading(k: int, trace: Trace) -> Reading:
        decoder.finite(trace)
        place = trace.positions - 1
        ((mine, gap),) = question.compared(
            decoder, [place], own[k][None], read[k][None]
        )  # fmt: skip
        return question.reading(decoder, prompts[k], trace, place, mine, gap)

    readings = _each(wrong, traces, reading)
    chosen = _each(wrong, readings, lambda k, found: question.choose(decoder, found, targets[k]))
    wanted = [(traces[k], readings[k].position, target.token) for k, (target, _) in chosen.items()]
    with suppress(NonFinite):  # then each is read by itself below, and the one at fault is named
        readout.remember(decoder, wanted)
        baseline.starts(decoder, wanted)
    made = _each(wrong, chosen, lambda k, found: question.pose(decoder, readings[k], *found))
    return [made[k] if k in made else wrong[k] for k in range(len(prompts))]


def _each(
    wrong: dict[int, LensesError], things: Mapping[int, T], make: Callable[[int, T], U]
) -> dict[int, U]:
    """What `make` makes of each thing; the error of one that it refuses goes to `wrong`."""
    made = {}
    for k, thing in things.items():
        try:
            made[k] = make(k, thing)
        except LensesError as error:
            wrong[k] = error
    return made
