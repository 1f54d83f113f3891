"""All definitions of onset for one question, how far each can be trusted, and when none means much.

Law: every range holds the depth beside it. The table is that of the whole ledger, at every depth from
the embedding on, whatever depths and baseline a lens was asked for; what those would change is what the
ranges show. Plain values, without torch, that go to JSON and back; `look` makes them with a decoder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from lenses.errors import NonFinite
from lenses.onset import DEFINITIONS, Name, Path, find

if TYPE_CHECKING:
    from lenses.decoder import Decoder
    from lenses.target import Target
    from lenses.trace import Trace

STRIDES = (2, 3, 5)
"""Every which depth is kept, to see whether the choice of depths moves an onset."""

UNIFORM, HIGH, SMALL = 0.8, 0.1, 0.05
"""The part of all blocks that count, the p at the start and the |Δp| at which an onset means little."""


@dataclass(frozen=True)
class Onset:
    """One definition's depth (None where it never comes), and the least and the largest that it gives when
    only every second, third or fifth depth is kept, and from the embedding, mean and zero baselines.

    Choices that give none are left out of a range; the baselines' is None for a definition that does not
    depend on them.
    """

    name: Name
    depth: int | None
    depths_low: int | None
    depths_high: int | None
    baseline_low: int | None
    baseline_high: int | None

    @property
    def span(self) -> tuple[int, int] | None:
        """The least and the largest depth that any choice gives; None where none gives one."""
        ends = (self.depths_low, self.depths_high, self.baseline_low, self.baseline_high)
        known = [end for end in ends if end is not None]
        return (min(known), max(known)) if known else None


@dataclass(frozen=True)
class Onsets:
    """The definitions in their order, and a sentence for each reason why they mean little."""

    definitions: tuple[Onset, ...]
    warnings: tuple[str, ...]

    def depth(self, name: Name) -> int | None:
        """The onset by one definition."""
        return {one.name: one.depth for one in self.definitions}.get(name)

    def to_dict(self) -> dict[str, Any]:
        """`{"definitions": [{"name", "depth", "depths_low", …} …], "warnings": […]}`."""
        return {"definitions": [asdict(one) for one in self.definitions], "warnings": list(self.warnings)}


def read(data: dict[str, Any]) -> Onsets:
    """The table of an object that `to_dict` made."""
    return Onsets(tuple(Onset(**one) for one in data["definitions"]), tuple(data["warnings"]))


def look(decoder: Decoder, trace: Trace, target: Target) -> Onsets:
    """The table of a target, from every depth's readout and those of the plain baselines."""
    from lenses import baseline
    from lenses.measure import measure

    if not target.more:
        (starts,) = baseline.starts(decoder, [(trace, target.position, target.token)])
    else:
        f, starts = measure(decoder, trace, target, "probability"), {}
        for name in baseline.PLAIN:
            states = [baseline.residual(name, decoder, trace, place.position) for place in f.places]
            with suppress(NonFinite):  # a model need not be able to read zeros
                starts[name] = float(f.read([state[None] for state in states]).values[0])
    return table(path(decoder, trace, target), starts)


def path(decoder: Decoder, trace: Trace, target: Target) -> Path:
    """The target's level and rank at every depth, from the embedding baseline; those of a word of several
    tokens are the product of its tokens' and the worst of them."""
    from lenses.measure import measure

    depths = range(trace.blocks + 1)
    ranks = measure(decoder, trace, target, "rank").levels(depths).values
    levels = measure(decoder, trace, target, "probability").levels(depths).values
    return Path(np.arange(len(levels)), levels, ranks.astype(np.int64), float(levels[0]))


def table(path: Path, starts: Mapping[str, float]) -> Onsets:
    """The table of a path; `starts` holds where it would start by other baselines."""
    return Onsets(tuple(_onset(path, name, starts) for name in DEFINITIONS), tuple(warnings(path)))


def warnings(path: Path) -> list[str]:
    """Why an onset of this path means little, a sentence each; none where it means something."""
    shares, change, found = path.shares, float(path.levels[-1]) - path.start, []
    count = effective(shares)
    if len(shares) > 1 and count > UNIFORM * len(shares):
        found.append(
            f"the shares are close to uniform ({count:.1f} of {len(shares)} blocks count), so that no depth "
            "stands out and an onset means little"
        )
    if path.start > HIGH:
        found.append(
            f"the path starts at a probability of {path.start:.1%}, so that much of the answer was there "
            "before any block and an onset means little"
        )
    if abs(change) < SMALL:
        found.append(
            f"the probability changes by {100 * change:+.2g} points in all".replace("-", "−")
            + ", so that there is hardly a change to set in and an onset means little"
        )
    return found


def effective(shares: Float[ndarray, " n"]) -> float:
    """How many shares count: exp of the entropy of |share|, n where all are alike and 0 for zeros."""
    sizes = np.abs(shares)
    if not sizes.any():
        return 0.0
    parts = sizes[sizes > 0] / sizes.sum()
    return float(np.exp(-(parts * np.log(parts)).sum()))


def _onset(path: Path, name: Name, starts: Mapping[str, float]) -> Onset:
    depth = find(path, name)
    thinned = [find(path.thinned(stride), name) for stride in STRIDES]
    moved: list[int | None] = []
    if DEFINITIONS[name].baseline:
        moved = [depth, *(find(replace(path, start=start), name) for start in starts.values())]
    return Onset(name, depth, *_range([depth, *thinned]), *_range(moved))


def _range(depths: Iterable[int | None]) -> tuple[int | None, int | None]:
    known = [depth for depth in depths if depth is not None]
    return (min(known), max(known)) if known else (None, None)
