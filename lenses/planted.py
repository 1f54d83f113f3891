"""Ground truth that exists by construction: models in which the block that decides is known.

In every variant a table says which word answers which subject. The true blocks are those that hold the
table: they turn the question into the answer. All other blocks write noise of the same size, which the
head can't read, or help: they erase or translate what is there. Law: before the first true block nothing
of the answer is in the state; without the true blocks nothing of it is left in the end. Lenses get such a
model through `Decoder` like any other. `lenses.grading` scores them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
from numpy.random import Generator

from lenses.decoder import Decoder
from lenses.planting import BLOCKS, SUBJECTS, WORDS, Lookup, Route, Spaces, build, spaces
from lenses.target import Target
from lenses.variants import Variant

LENGTH = 5
"""Tokens of a prompt: one subject and fillers."""

ERASED = (0.3, 0.6)
"""How much of the answer is taken away again."""


@dataclass(frozen=True)
class Planted:
    """A model, a prompt and its answer, and the blocks that decide it.

    `helpers` have a part in it, and decide nothing: the eraser, the translator. `source` is the position
    of the subject.
    """

    variant: Variant
    seed: int
    decoder: Decoder
    ids: tuple[int, ...]
    target: Target
    blocks: frozenset[int]
    helpers: frozenset[int]
    source: int
    spaces: Spaces = field(repr=False)

    @property
    def prompt(self) -> str:
        """The prompt as text, for `lenses.compare`."""
        return str(self.decoder.tokenizer.decode(list(self.ids)))


def plant(variant: Variant, seed: int) -> Planted:
    """The model of a variant that belongs to a seed, the same on every machine up to rounding."""
    draw = np.random.default_rng([seed, zlib.crc32(variant.encode())])
    among, table = spaces(draw), draw.permutation(WORDS)[:SUBJECTS].tolist()
    source = int(draw.integers(LENGTH - 1)) if variant == "routed" else LENGTH - 1
    ids = [int(id) for id in SUBJECTS + draw.permutation(WORDS - SUBJECTS)[:LENGTH]]
    ids[source] = int(draw.integers(SUBJECTS))
    jobs, true = _JOBS[variant](draw, among, table)
    decoder = build(draw, among, jobs, ids, f"planted-{variant}-{seed}")
    return Planted(
        variant, seed, decoder, tuple(ids), Target(LENGTH - 1, table[ids[source]]),
        frozenset(true), frozenset(jobs) - frozenset(true), source, among,
    )  # fmt: skip


def variants(
    names: Iterable[Variant] = get_args(Variant), seeds: Iterable[int] = range(20)
) -> Iterator[Planted]:  # fmt: skip
    """Every named variant with every seed, built one at a time."""
    kept = list(seeds)
    for name in names:
        for seed in kept:
            yield plant(name, seed)


_Jobs = tuple[dict[int, Lookup | Route], list[int]]


def _places(draw: Generator, count: int) -> list[int]:
    return sorted(draw.permutation(BLOCKS)[:count].tolist())


def _single(draw: Generator, among: Spaces, table: list[int]) -> _Jobs:
    (block,) = _places(draw, 1)
    return {block: Lookup(among.words[:SUBJECTS], among.heads[table])}, [block]


def _shared(draw: Generator, among: Spaces, table: list[int]) -> _Jobs:
    true = _places(draw, 2)
    return {block: Lookup(among.words[:SUBJECTS], among.heads[table], 0.5) for block in true}, true


def _erased(draw: Generator, among: Spaces, table: list[int]) -> _Jobs:
    writer, eraser = _places(draw, 2)
    part = float(draw.uniform(*ERASED))
    writing = Lookup(among.words[:SUBJECTS], among.heads[table])
    return {writer: writing, eraser: Lookup(among.heads, -among.heads, part)}, [writer]


def _routed(draw: Generator, among: Spaces, table: list[int]) -> _Jobs:
    (block,) = _places(draw, 1)
    return {block: Route(among.heads[table])}, [block]


def _hidden(draw: Generator, among: Spaces, table: list[int]) -> _Jobs:
    writer, translator = _places(draw, 2)
    writing = Lookup(among.words[:SUBJECTS], among.codes[table])
    return {writer: writing, translator: Lookup(among.codes, among.heads)}, [writer]


_JOBS: dict[Variant, Callable[[Generator, Spaces, list[int]], _Jobs]] = {
    "single": _single, "shared": _shared, "erased": _erased, "routed": _routed, "hidden": _hidden,
}  # fmt: skip
