"""A readout of a target, ready to be read anywhere: at the depths of its trace, or of any state.

Law: at the last depth it is what the model's own distribution gives, and a word of several tokens is
read with its own tokens before it (teacher forcing), so that its probability is the product of theirs
at every depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from lenses import readout
from lenses.decoder import Decoder
from lenses.errors import NonFinite
from lenses.readout import Readings
from lenses.readouts import AGAINST, BIT, OWN, UNITS, combined
from lenses.target import Target
from lenses.trace import Trace
from lenses.translators import Translators
from lenses.words import Place, Word, at_place, other, variants


@dataclass(frozen=True)
class Level:
    """Values of a readout, and for a target of several tokens the same of each by itself."""

    values: Float[ndarray, " row"]
    pieces: Float[ndarray, "row piece"] | None

    def begun(self, start: Level) -> Level:
        """The same with another first value."""
        pieces = None
        if self.pieces is not None and start.pieces is not None:
            pieces = np.concatenate([start.pieces, self.pieces[1:]])
        return Level(np.concatenate([start.values, self.values[1:]]), pieces)


@dataclass(frozen=True)
class Measure:
    """`words` are the target, then what it is measured against or together with. `translators` map a state
    before it is read (the tuned lens); that of the last depth they leave as it is."""

    decoder: Decoder
    readout: str
    words: tuple[Word, ...]
    translators: Translators | None = None

    @property
    def places(self) -> tuple[Place, ...]:
        """What has to be read: every token of every word, or the target's first where the whole
        distribution is."""
        if self.readout in ("entropy", "kl"):
            return (Place(self.words[0].trace, self.words[0].target.position, self.words[0].target.token),)
        return tuple(
            Place(word.trace, *pair)
            for word in self.words
            for pair in zip(word.target.positions, word.target.tokens, strict=True)
        )

    def levels(self, depths: Sequence[int]) -> Level:
        """At some depths of the trace; what was read before is not read again."""
        if self.readout == "kl":
            return Level(self._divergence([self.states(place, depths) for place in self.places]), None)
        return self._level([self._known(place, list(depths)) for place in self.places])

    def states(self, place: Place, depths: Sequence[int]) -> Float[Tensor, "depth width"]:
        """The states at some depths, as they are read."""
        return self.translated(place.trace.residual[list(depths), place.position], depths)

    def translated(
        self, rows: Float[Tensor, "depth width"], depths: Sequence[int]
    ) -> Float[Tensor, "depth width"]:
        """States that stand at these depths, as they are read."""
        if self.translators is None:
            return rows
        return self.translators.translate(list(depths), rows[:, None])[:, 0]

    def read(self, rows: Sequence[Float[Tensor, "row width"]]) -> Level:
        """Of any states, as they are: as many rows for each of `places`, put in where these stand."""
        if self.readout == "kl":
            return Level(self._divergence(rows), None)
        return self._level(
            [
                readout.read(self.decoder, some, place.token, detail=self._detail)
                for some, place in zip(rows, self.places, strict=True)
            ]
        )

    @property
    def _detail(self) -> bool:
        return self.readout in ("entropy", "rank")

    def _known(self, place: Place, depths: list[int]) -> Readings:
        known = partial(readout.some, self.decoder, place.trace, place.position, place.token)
        if self.translators is None:
            return known(depths, self._detail)
        remember([self])
        before, last = ([d for d in depths if (d == self.decoder.blocks) is end] for end in (False, True))
        parts = [_memo(self, place)[_key(self, place)].at(before)] if before else []
        if last:
            parts.append(known(last, self._detail))
        columns = zip(*(vars(self._needed(part)).values() for part in parts), strict=True)
        return Readings(*(np.concatenate(column) for column in columns))

    def _needed(self, found: Readings) -> Readings:
        """The same without what this readout is not made of."""
        some = slice(None) if self._detail else slice(0)
        return replace(
            found, top=found.top[:, :0], top_probability=found.top_probability[:, :0],
            rank=found.rank[some], entropy=found.entropy[some],
        )  # fmt: skip

    def differentiable(self, rows: Sequence[Float[Tensor, "row width"]]) -> Float[Tensor, " row"]:
        """The same in the autograd graph of the states, in float32."""
        count = len(rows[0])
        logits = self.decoder.resume(self.decoder.blocks, torch.cat([*rows])[:, None])[:, 0].float()
        log = logits - logits.logsumexp(dim=-1, keepdim=True)
        if self.readout == "entropy":
            return -torch.xlogy(log.exp(), log.exp()).sum(dim=-1) / BIT
        if self.readout == "kl":
            final = self._final().to(log.device)
            return torch.where(final > 0, final * (final.log() - log), 0.0).sum(dim=-1) / BIT
        ids = torch.tensor([place.token for place in self.places], device=log.device)[:, None, None]
        own, raw = (x.unflatten(0, (-1, count)).gather(2, ids.expand(-1, count, 1)) for x in (log, logits))
        made: Tensor = combined(
            self.readout, self._summed([*own[..., 0]]), self._summed([*raw[..., 0]]), torch.exp
        )
        return made

    def _level(self, found: Sequence[Readings]) -> Level:
        if self.readout == "entropy":
            return Level(found[0].entropy / BIT, None)
        if self.readout == "rank":
            ranks = np.stack([one.rank.astype(np.float64) for one in found], axis=1)
            return Level(ranks.max(axis=1), ranks if ranks.shape[1] > 1 else None)
        log, logit = [one.log_probability for one in found], [one.logit for one in found]
        values = combined(self.readout, self._summed(log), self._summed(logit), np.exp)
        if not np.isfinite(values).all():
            raise NonFinite(
                f"the {UNITS[self.readout].value} is not finite at every depth, since the head rules a token "
                "out: read the probability instead"
            )
        pieces = None
        count = len(self.words[0].target.tokens)
        if self.readout in OWN and count > 1:
            each = [combined(self.readout, [a], [b], np.exp) for a, b in zip(log, logit, strict=True)]
            pieces = np.stack(each[:count], axis=1)
        return Level(values, pieces)

    def _summed(self, each: list) -> list:  # type: ignore[type-arg]
        """One sum a word of what stands for each token."""
        whole = iter(each)
        return [sum(next(whole) for _ in word.target.tokens) for word in self.words]

    def _final(self) -> Float[Tensor, " vocabulary"]:
        """The model's final distribution, in float64."""
        (place,) = self.places
        return _softmax(self.decoder.readout(place.trace[-1][[place.position]])).exp()[0]

    def _divergence(self, rows: Sequence[Float[Tensor, "row width"]]) -> Float[ndarray, " row"]:
        """Σ p log₂(p / q), p the final distribution and q what a row reads."""
        final, parts = self._final(), []
        # Two float64 values stand beside each float32 logit.
        for some in rows[0].split(max(1, readout.chunk_rows(self.decoder) // 5)):
            log = _softmax(self.decoder.readout(some))
            parts.append(torch.where(final > 0, final * (final.log() - log), 0.0).sum(dim=-1) / BIT)
        found: Float[ndarray, " row"] = torch.cat(parts).cpu().numpy()
        if not np.isfinite(found).all():
            raise NonFinite("the KL divergence is not finite: a depth rules out what the model says")
        return found


def measure(
    decoder: Decoder,
    trace: Trace,
    target: Target,
    name: str,
    against: str = "",
    translators: Translators | None = None,
) -> Measure:
    """The readout `name` of a target; `against` is the text of the other word where one is needed, and
    `tuned` the probability through `translators`.

    Raises `BadOption` where that is missing, and `BadPrompt` where the vocabulary lacks it.
    """
    words = [Word(trace, target)]
    if name in AGAINST:
        words.append(other(decoder, trace, target, against, name))
    if name == "variants":
        spelled = variants(decoder, trace, target)
        words += [at_place(decoder, trace, target.position, ids) for ids in spelled[1:]]
    return Measure(decoder, "probability" if name == "tuned" else name, tuple(words), translators)


def remember(measures: Sequence[Measure]) -> None:
    """Read at once what many measures through one tuned lens need of all depths but the last; kept with
    their traces."""
    pairs = [(f, place) for f in measures for place in f.places if f.translators is not None]
    unread = {_key(*pair): pair for pair in pairs if _key(*pair) not in _memo(*pair)}
    if not unread:
        return
    (first, _), *_ = unread.values()
    depths = range(first.decoder.blocks)
    rows = torch.stack([f.states(place, depths) for f, place in unread.values()], dim=1)
    tokens = torch.tensor([place.token for _, place in unread.values()]).repeat(len(depths))
    found = readout.read(first.decoder, rows.flatten(0, 1), tokens, detail=first._detail, fast=True)
    for k, (key, pair) in enumerate(unread.items()):
        _memo(*pair)[key] = found.at(slice(k, None, len(unread)))


def _memo(f: Measure, place: Place) -> dict[Any, Any]:
    return place.trace.memo.setdefault(f.decoder, {})


def _key(f: Measure, place: Place) -> tuple[Any, ...]:
    state = id(place.trace), place.trace.residual.device, place.trace.residual._version
    return "tuned", f.translators, place.position, place.token, f._detail, *state


def _softmax(logits: Float[Tensor, "row vocabulary"]) -> Float[Tensor, "row vocabulary"]:
    """Log-probabilities in float64."""
    return logits.double().log_softmax(dim=-1)
