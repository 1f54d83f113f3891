"""From what a visitor asks to what the pages show: quick things now, slow ones when they are ready.

Everything is kept by a key that holds the model and all that the answer depends on, so that no visitor
ever sees another's numbers, and what was computed once is shown at once.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import streamlit as st

from lenses import shortage
from lenses.building import BUILDING
from lenses.errors import LensesError
from lenses.ui.jobs import Failed, Jobs, Work
from lenses.ui.results import Results
from lenses.ui.settings import settings

if TYPE_CHECKING:
    from lenses.depth_map import DepthMap
    from lenses.lens import Lens
    from lenses.outcome import Comparison, Result
    from lenses.progress import Progress
    from lenses.question import Question, Reading
    from lenses.surface import Surface
    from lenses.tokens import Prompt, Token
    from lenses.ui.shelf import Held


@dataclass(frozen=True)
class Ask:
    """A text and a place in it; `answer` holds generated tokens that stand after the prompt."""

    prompt: str
    chat: bool = False
    position: int | None = None
    answer: tuple[int, ...] = ()


@dataclass(frozen=True)
class Card:
    """What there is of one lens by now: its result, why there is none, or neither while it is made."""

    lens: Lens
    key: Hashable
    result: Result | None = None
    refusal: str = ""
    stopped: bool = False


@dataclass(frozen=True)
class Answer:
    """What there is to show of a question by now."""

    comparison: Comparison
    surface: Surface | None
    cards: tuple[Card, ...]


@st.cache_resource(show_spinner=False)
def jobs() -> Jobs:
    """The one queue of slow lenses and maps, and with it the store of results, for all visitors."""
    return Jobs(Results(), beside=BUILDING, most=settings().queue)


@contextmanager
def quickly() -> Iterator[None]:
    """While a page does its own quick work, slow work rests between two steps, also that of lists.

    Raises `NoRoom` where memory runs out over it.
    """
    from lenses.ui.runs import queue

    with jobs().quickly(), queue().quickly(), shortage.noticed("this text"):
        yield


def prompt(held: Held, ask: Ask, more: int = 0) -> Prompt:
    """The tokens of the text; raises `BadPrompt`, also where they, and `more` of an answer, are more than
    the host allows."""
    from lenses import limits, tokens

    decoder, most = held.decoder, settings().max_tokens
    limits.refuse_text("the prompt", ask.prompt, most)
    read = tokens.encode(decoder.tokenizer, ask.prompt, ask.chat)
    if ask.answer:
        read = replace(read, tokens=tokens.as_tokens(decoder.tokenizer, [*read.ids, *ask.answer]))
    limits.refuse("prompt and answer have" if more else "the prompt has", len(read.tokens) + more, most)
    return read


def reading(held: Held, ask: Ask) -> Reading:
    """The prompt, read and proved, with its trace in the machine's own memory."""
    from lenses.question import read

    def make() -> Reading:
        with quickly():
            found = read(held.decoder, prompt(held, ask), ask.position)
        return replace(found, trace=found.trace.to("cpu"))

    return jobs().results.recall(_read_of(held, ask), make)


def word(held: Held, reading: Reading, text: str) -> tuple[Token, ...]:
    """How a typed target is read; raises `BadPrompt`, also where it and the prompt are more than the host
    allows."""
    from lenses import limits
    from lenses.target import read_as

    given = held.decoder.tokenizer, reading.prompt, reading.position
    limits.refuse_words(*given, [text], settings().max_tokens)
    return read_as(*given, text)


def question(held: Held, ask: Ask, target: str | int | None) -> Question:
    """The question about a target; raises `BadPrompt` for one that the vocabulary lacks, or that is too
    long."""
    from lenses.question import aim

    found = reading(held, ask)
    if isinstance(target, str):
        word(held, found, target)
    near = replace(found, trace=found.trace.to(held.decoder.device))
    with quickly():
        return aim(held.decoder, near, target)


def answer(
    held: Held,
    ask: Ask,
    asked: Question,
    lenses: tuple[Lens, ...],
    who: str,
    stopped: Container[Hashable] = (),
) -> Answer:
    """All that is there by now; what is slow and missing is wanted in the name of `who`.

    `stopped` holds the keys of cards that the visitor can do without.
    """
    from lenses.comparison import gather
    from lenses.surface import look

    about = (held.serial, ask, asked.target)
    keys = {("result", *about, lens): lens for lens in lenses}
    slow = {key: lens for key, lens in keys.items() if lens.slow and key not in stopped}
    jobs().want(who, {key: _work(held, asked, lens) for key, lens in slow.items()})
    with quickly():
        made = {
            key: jobs().results.get(key) if lens.slow else _quick(held, asked, lens, key)
            for key, lens in keys.items()
        }
        seen = jobs().results.recall(
            ("surface", *about), lambda: look(held.decoder, asked.trace, asked.target)
        )  # fmt: skip
        jobs().results.weigh(_read_of(held, ask))  # its trace remembers the states of other words by now
        cards = tuple(_card(lens, key, made[key], key in stopped) for key, lens in keys.items())
        done = [card.result for card in cards if card.result is not None]
        return Answer(gather(held.decoder, asked, done), seen, cards)


def map_work(held: Held, ask: Ask, lens: Lens, count: int) -> Work:
    """The work of mapping a lens over a text and `count` generated tokens."""

    def work() -> Generator[Progress, None, DepthMap]:
        from lenses.mapping import mapping

        read = prompt(held, ask, more=count)
        _refuse(held, lens, read, len(read.tokens) - 1, count)
        return (yield from mapping(held.decoder, read, lens, answer=count, top=5))

    return work


def _read_of(held: Held, ask: Ask) -> Hashable:
    """The key of a reading."""
    return "reading", held.serial, ask


def _card(lens: Lens, key: Hashable, made: Result | Failed | None, stopped: bool) -> Card:
    if isinstance(made, Failed):
        return Card(lens, key, refusal=made.reason)
    return Card(lens, key, made, stopped=made is None and stopped)


def _quick(held: Held, asked: Question, lens: Lens, key: Hashable) -> Result | Failed:
    from lenses.comparison import explain

    def make() -> Result | Failed:
        try:
            _refuse(held, lens, asked.prompt, asked.target.position)
            with shortage.noticed("this text"):
                return explain(held.decoder, asked, lens)
        except LensesError as refusal:
            return Failed(str(refusal))

    return jobs().results.recall(key, make)


def _work(held: Held, asked: Question, lens: Lens) -> Work:
    def work() -> Generator[Progress, None, Result]:
        from lenses.comparison import explaining

        _refuse(held, lens, asked.prompt, asked.target.position)
        return (yield from explaining(held.decoder, asked, lens))

    return work


def _refuse(held: Held, lens: Lens, prompt: Prompt, position: int, more: int = 0) -> None:
    """Raise `BadPrompt` for a lens whose own texts are more than the host allows."""
    from lenses import limits

    limits.refuse_lens(lens, held.decoder.tokenizer, prompt, position, settings().max_tokens, more)
