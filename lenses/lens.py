"""The interface of a lens, documented once.

A lens is a frozen dataclass whose fields are its options. Everything else follows from the class:
controls and `--help` from the fields, the card and the methods page from `card`, the receipt from
`claim`. Heavy imports stay inside `attribute`, so that listing the lenses needs no torch.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, get_args, get_type_hints, runtime_checkable

from jaxtyping import Float
from numpy import ndarray

from lenses.attribution import Attribution, Claim
from lenses.errors import BadOption
from lenses.progress import Progress

if TYPE_CHECKING:
    from lenses.decoder import Decoder
    from lenses.target import Target
    from lenses.trace import Trace


MOST = 1_000_000_000
"""The largest whole number of an option that says nothing else."""


@dataclass(frozen=True)
class Card:
    """What a reader should know of a lens, in plain words; `formula` is LaTeX."""

    measures: str
    formula: str
    adds_up: str
    cost: str
    caveats: str


@runtime_checkable
class Lens(Protocol):
    """One way to say what each depth gave to a target.

    `attribute` is pure: the same decoder, trace and target give the same attribution, the decoder is
    left as it was, and any number of threads may call it at once. It raises `UnsupportedLens` where
    the model has no such reading, and `BadOption` where an option does not fit the model.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    claim: ClassVar[Claim]
    source: ClassVar[str]
    card: ClassVar[Card]

    @property
    def options(self) -> dict[str, Any]:
        """The options that matter to the answer, as the report prints them."""
        ...

    @property
    def slow(self) -> bool:
        """Whether it runs the model forward and back many times, so that a page shows it last."""
        ...

    def levels(self, blocks: int) -> tuple[int, ...]:
        """The depths whose levels it starts from, so that many positions are read at once."""
        ...

    def sketch(self, depths: Sequence[int], levels: Float[ndarray, " depth"]) -> Attribution | None:
        """What it would say of these depths alone (0 and the last among them), from the target's
        probability there: a coarse picture of `attribute`. None where it has none."""
        ...

    def available(self, decoder: Decoder) -> str:
        """Why this model can't have it, as `attribute` would say; empty where it can.

        Asked for lists of lenses that nobody chose: a lens that is asked for is refused loudly.
        """
        ...

    def prepare(self, decoder: Decoder, wanted: Sequence[tuple[Trace, Target]]) -> None:
        """Read at once what `attribute` will need of many targets; it gives the same without.

        Raises what `attribute` raises.
        """
        ...

    def attribute(self, decoder: Decoder, trace: Trace, target: Target) -> Attribution: ...

    def attributing(
        self, decoder: Decoder, trace: Trace, target: Target
    ) -> Generator[Progress, None, Attribution]:
        """`attribute`, with its progress; closing it early leaves nothing behind."""
        ...


def option(
    default: Any,
    help: str,
    when: tuple[Any, ...] | None = None,
    least: int = 0,
    most: int = MOST,
    live: bool = False,
    shared: bool = False,
    meanings: Mapping[str, str] | None = None,
    path: bool = False,
    memory: bool = False,
    word: bool = False,
) -> Any:
    """A dataclass field that is an option: its default, what it does, and when it matters.

    `when` names another field and the values that it may have for this one to count; `least` is the
    smallest whole number allowed and `most` the largest; `live` tells that a change is cheap enough to be
    shown at once; `shared` that it means the same in every lens that has it, so that one control sets
    it for all of them; `meanings` says of each of its choices what it is; `path`
    that it names a place on the machine, and `memory` that it says how much is taken of it, which visitors of
    a hosted page may not; `word` that it is a text which the model reads after the prompt, and which counts
    against a host's limit with it.
    """
    about = {
        "help": help, "when": when, "least": least, "most": most, "live": live, "shared": shared,
        "meanings": meanings or {}, "path": path, "memory": memory, "word": word,
    }  # fmt: skip
    return field(default=default, metadata=about)


class Options:
    """What every lens derives from its fields, and what a lens that is quick need not say."""

    @property
    def slow(self) -> bool:
        return False

    def levels(self, blocks: int) -> tuple[int, ...]:  # noqa: ARG002
        return ()

    def sketch(self, *_: Any) -> Attribution | None:
        return None

    def available(self, decoder: Decoder) -> str:  # noqa: ARG002
        return ""

    def prepare(self, *_: Any) -> None:
        return None

    def attributing(
        self, decoder: Decoder, trace: Trace, target: Target
    ) -> Generator[Progress, None, Attribution]:
        """`attribute` in one go: a lens that is slow does better."""
        yield Progress("reading")
        return self.attribute(decoder, trace, target)  # type: ignore[attr-defined]

    def __post_init__(self) -> None:
        hints = _hints(type(self))
        for f in fields(self):
            allowed = f.metadata.get("least", 0), f.metadata.get("most", MOST)
            problem = _problem(hints[f.name], *allowed, getattr(self, f.name))
            if problem:
                name = getattr(self, "name", type(self).__name__)
                raise BadOption(f"{name}: {f.name} {problem}, not {getattr(self, f.name)!r}")

    @property
    def options(self) -> dict[str, Any]:
        """The options that count, by name; those left to the lens are left out, and those that lenses
        share where they are as usual."""

        def counts(f: dataclasses.Field[Any]) -> bool:
            when, value = f.metadata.get("when"), getattr(self, f.name)
            usual = f.metadata.get("shared") and value == f.default
            told = value is not None and value is not False and not usual
            return told and (when is None or getattr(self, when[0]) in when[1:])

        return {f.name: getattr(self, f.name) for f in fields(self) if counts(f)}


def fields(lens: Any) -> tuple[dataclasses.Field[Any], ...]:
    """The options of a lens or of its class, in the order in which they are shown."""
    return dataclasses.fields(lens)


def choices(kind: Any) -> list[str]:
    """The words that a value of this type can be, also where the type is made of several such lists."""
    return [one for part in get_args(kind) for one in ([part] if isinstance(part, str) else choices(part))]


_hints: Callable[[Any], dict[str, Any]] = functools.cache(get_type_hints)
"""The types of a lens's fields: to find them takes longer than all that is checked by them."""


def _problem(kind: Any, least: int, most: int, value: Any) -> str:
    """What is wrong with a value for a field of this type, or nothing."""
    parts = get_args(kind)
    if kind is bool and not isinstance(value, bool):
        return "must be true or false"
    if (words := choices(kind)) and value not in words:
        return f"must be one of {', '.join(words)}"
    optional = value is None and type(None) in parts
    if (kind is int or int in parts) and not optional and (not isinstance(value, int) or value < least):
        return f"must be a whole number of at least {least}"
    if isinstance(value, int) and value > most:
        return f"must be at most {most}"
    return ""
