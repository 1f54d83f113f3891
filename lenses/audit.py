"""Every baseline of one question side by side: what its path starts at, and what that changes.

Law: two baselines' ledgers differ in the first share alone, since all later ones are between states of
the model itself. So the total variation between a ledger's shares and those of the embedding baseline is
half the difference of the two starts, and only that first share can move an onset.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lenses.errors import BadOption, NonFinite
from lenses.onset import Path, find
from lenses.surface import Ranked
from lenses.tokens import text_of

if TYPE_CHECKING:
    from torch import Tensor

    from lenses.decoder import Decoder
    from lenses.target import Target
    from lenses.trace import Trace


@dataclass(frozen=True)
class Start:
    """One baseline: the target's probability and rank there, Δp, the onset (the paper's), the first share,
    the total variation of its shares from the embedding baseline's, and its likeliest token.

    `variation` is half the sum of the differences' sizes, in probability.
    """

    name: str
    probability: float
    delta: float
    onset: int | None
    first: float
    variation: float
    rank: int
    likeliest: Ranked


@dataclass(frozen=True)
class Audit:
    """The baselines that there are, and a sentence for each that this model or text does not have."""

    starts: tuple[Start, ...]
    refusals: dict[str, str]


def audit(
    decoder: Decoder, trace: Trace, target: Target, *, token: int | None = None, corpus: str | None = None
) -> Audit:
    """All baselines of a target; that of a `token` where one is given, that of `corpus` or our own text.

    Raises `BadOption` for a token or corpus that is given and can't be used.
    """
    from lenses import baseline, onsets

    states: dict[str, list[Tensor]] = {}
    refusals: dict[str, str] = {}
    given = ["token"] if token is not None else []
    for name in (*baseline.PLAIN, *given, "end-of-text", "corpus"):
        try:
            states[name] = [
                baseline.residual(name, decoder, trace, position, token or 0, corpus)
                for position in target.positions
            ]
        except BadOption as refusal:
            if name == "token" or (name == "corpus" and corpus is not None):
                raise
            refusals[name] = str(refusal)
    path = onsets.path(decoder, trace, target)
    starts = []
    for name, state in states.items():
        try:
            starts.append(_start(decoder, trace, path, target, name, state))
        except NonFinite:
            refusals[name] = "the model reads this state as no number, so that no path can start there"
    return Audit(tuple(starts), refusals)


def _start(
    decoder: Decoder, trace: Trace, path: Path, target: Target, name: str, states: list[Tensor]
) -> Start:
    from lenses import readout
    from lenses.measure import measure

    rows = [state[None] for state in states]
    probability, rank = (
        measure(decoder, trace, target, what).read(rows).values[0] for what in ("probability", "rank")
    )
    here = replace(path, start=path.start if name == "embedding" else float(probability))
    first = readout.read(decoder, rows[0], target.token, top=1)
    likeliest = int(first.top[0, 0])
    return Start(
        name, here.start, float(path.levels[-1]) - here.start, find(here, "moves"), float(here.shares[0]),
        float(abs(here.shares - path.shares).sum() / 2), int(rank),
        Ranked(likeliest, text_of(decoder.tokenizer, likeliest), float(first.top_probability[0, 0])),
    )  # fmt: skip
