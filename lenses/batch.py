"""Many prompts, one after another in batches: each row's comparison, or why it has none.

Law: a row's numbers are those of `comparison.compare` for its prompt alone, within 1e-5 of
probability, whatever the batch; a bad row fails alone; memory does not grow with the list.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import TypeAlias

from lenses import comparison, limits, padded, question, registry, shortage, together, tokens
from lenses import target as targets
from lenses.decoder import Decoder
from lenses.errors import BadOption, LensesError, UnsupportedModel
from lenses.findings import Outcome
from lenses.lens import Lens
from lenses.progress import Progress
from lenses.prompts import Row
from lenses.question import Question
from lenses.tokens import Prompt

BATCH = 32
"""Rows in one pass of the model, at most; `padded.fits` bounds it further."""

WINDOW = 1024
"""Rows of the list that are sorted by length together: the list itself may be of any length."""


Outcomes: TypeAlias = tuple[Outcome, ...]
Ready: TypeAlias = tuple[Row, Prompt, range]
"""A row, its prompt, and the positions after which its word's tokens are read."""


def run(
    decoder: Decoder,
    rows: Sequence[Row],
    lenses: Sequence[str | Lens] | None = None,
    *,
    batch_size: int = BATCH,
) -> Iterator[Outcome]:
    """The outcome of each row, in no fixed order; by default with the lenses of `registry.quick`
    that the model can have.

    The target of a row is its own or the model's most likely next token, after the prompt's last
    token. Raises `UnknownLens` and `BadOption` for what is wrong with the lenses, not with a row.
    """
    chosen = [
        registry.get(lens) if isinstance(lens, str) else lens
        for lens in lenses or registry.having(decoder, registry.quick())
    ]
    for step in running(decoder, rows, chosen, batch_size=batch_size):
        if isinstance(step, tuple):
            yield from step


def running(
    decoder: Decoder,
    rows: Sequence[Row],
    lenses: Sequence[Lens],
    *,
    batch_size: int = BATCH,
    longest: int | None = None,
    known: frozenset[int] = frozenset(),
) -> Iterator[Progress | Outcomes]:
    """The outcomes of one batch after another, and before and between them how far the work is.

    All rows of a batch are of one `window`; a prompt of more than `longest` tokens, or with more of them
    together with a word that is read after it, is a failure. Rows that
    are `known` are left out, and the others go in the batches that they would be in without that: a run
    that goes on makes the very roundings of one that was never stopped.
    """
    _refuse_twins(lenses)
    done, total = sum(row.row in known for row in rows), len(rows)
    for _, group in groupby(rows, key=lambda row: window(row.row)):
        ready, failed, members = [], [], list(group)
        if all(row.row in known for row in members):
            continue
        for row in members:
            yield Progress("reading the prompts", done, total)
            try:
                ready.append(_encoded(decoder, row, lenses, longest))
            except LensesError as error:
                failed += [Outcome(row, failure=str(error))] if row.row not in known else []
        if failed:
            done += len(failed)
            yield tuple(failed)
        for planned in _batches(decoder, ready, batch_size):
            batch = [one for one in planned if one[0].row not in known]
            if not batch:
                continue
            step = Progress("explaining", done, total)
            yield step
            outcomes = yield from _answers(decoder, batch, lenses, step)
            done += len(outcomes)
            yield outcomes
    yield Progress("explaining", done, total)


def window(row: int) -> int:
    """Which window of the list a row is in."""
    return (row - 1) // WINDOW


def _encoded(decoder: Decoder, row: Row, lenses: Sequence[Lens], longest: int | None) -> Ready:
    if row.problem:
        raise LensesError(row.problem)
    limits.refuse_text("the prompt", row.prompt, longest)
    prompt = tokens.encode(decoder.tokenizer, row.prompt)
    limits.refuse("the prompt has", len(prompt.tokens), longest)
    last = len(prompt.tokens) - 1
    given = decoder.tokenizer, prompt, last
    limits.refuse_words(*given, [row.target] if row.target else [], longest)
    for lens in lenses:
        limits.refuse_lens(lens, *given, longest)
    word = targets.written(*given, row.target)
    return row, prompt, range(last, last + max(1, len(word)))


def _batches(decoder: Decoder, ready: list[Ready], size: int) -> Iterator[list[Ready]]:
    """Prompts of like lengths, the longest first: the most memory is taken at once or never.

    Of the same length for a model whose positions depend on the length of the whole input.
    """
    batch: list[Ready] = []
    places: list[range] = []
    for one in sorted(ready, key=lambda one: -one[2].stop):
        apart = decoder.positions.stretches and any(other.stop != one[2].stop for other in places)
        if batch and (apart or len(batch) == size or not padded.fits(decoder, [*places, one[2]])):
            yield batch
            batch, places = [], []
        batch.append(one)
        places.append(one[2])
    if batch:
        yield batch


def _answers(
    decoder: Decoder, batch: list[Ready], lenses: Sequence[Lens], step: Progress
) -> Generator[Progress, None, Outcomes]:
    """The outcomes of a batch; what goes wrong with all of it is tried again in halves, then alone."""
    size = 0
    try:
        asked = _posed(decoder, batch, lenses)
    except padded.PaddingMatters:
        size = 1
    except Exception as error:
        # Too much memory, or a defect: alone, a row says what is wrong with it and holds up no other.
        logging.getLogger(__name__).exception("a batch of %d rows failed", len(batch))
        if len(batch) == 1:
            return (_defect(batch[0][0], error),)
        size = (len(batch) + 1) // 2
    if size:  # only here, where the error is gone, and with it the states and logits of what failed
        return (yield from _parts(decoder, batch, size, lenses, step))
    outcomes = []
    for (row, *_), one in zip(batch, asked, strict=True):
        outcomes.append((yield from _answer(decoder, row, one, lenses, step)))
    return tuple(outcomes)


def _parts(
    decoder: Decoder, batch: list[Ready], size: int, lenses: Sequence[Lens], step: Progress
) -> Generator[Progress, None, Outcomes]:
    """The outcomes of a batch, so many rows at a time."""
    made: Outcomes = ()
    for k in range(0, len(batch), size):
        made += yield from _answers(decoder, batch[k : k + size], lenses, step)
        yield Progress(step.text, step.done + len(made), step.total)
    return made


def _posed(decoder: Decoder, batch: list[Ready], lenses: Sequence[Lens]) -> list[Question | LensesError]:
    """The question of each row, or what is wrong with it; lenses do what they can for all at once."""
    asked = _asked(decoder, batch)
    for k, one in enumerate(asked):
        if isinstance(one, UnsupportedModel) and len(batch) > 1:
            # Perhaps the batch's roundings alone: prove it by itself.
            (asked[k],) = _asked(decoder, [batch[k]])
    wanted = [(one.trace, one.target) for one in asked if isinstance(one, Question)]
    for lens in lenses if len(wanted) > 1 else ():
        with suppress(LensesError):  # each row is explained by itself afterwards, and says so
            lens.prepare(decoder, wanted)
    return asked


def _asked(decoder: Decoder, batch: list[Ready]) -> list[Question | LensesError]:
    if len(batch) > 1:
        return together.ask(decoder, [one[1] for one in batch], [one[0].target for one in batch])
    ((row, prompt, _),) = batch
    try:
        return [question.aim(decoder, question.read(decoder, prompt), row.target)]
    except LensesError as error:
        return [error.with_traceback(None)]


def _answer(
    decoder: Decoder, row: Row, asked: Question | LensesError, lenses: Sequence[Lens], step: Progress
) -> Generator[Progress, None, Outcome]:
    if isinstance(asked, LensesError):
        return Outcome(row, failure=str(asked))
    work = comparison.comparing(decoder, asked, lenses)
    try:
        while True:
            try:
                next(work)
            except StopIteration as end:
                return Outcome(row, end.value)
            yield step
    except BadOption:
        raise  # the lens does not fit the model: no row can be explained by it
    except LensesError as error:
        return Outcome(row, failure=str(error))
    except Exception as error:
        # A defect must not end the list, nor go unseen.
        logging.getLogger(__name__).exception("a row failed")
        return _defect(row, error)


def _defect(row: Row, error: Exception) -> Outcome:
    """What is said of a row where nothing is known to be wrong with it."""
    short = shortage.no_room(error, "this prompt")
    defect = f"this is a defect of LensLedger, and its log says more: {error!r}"
    return Outcome(row, failure=str(short or defect), passing=True)


def _refuse_twins(lenses: Sequence[Lens]) -> None:
    names = [lens.name for lens in lenses]
    if twins := {name for name in names if names.count(name) > 1}:
        raise BadOption(f"{min(twins)} is asked for twice: a report holds each method once")
