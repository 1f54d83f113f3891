"""How often and how closely a lens names the blocks that decide, on models where these are known.

Law: scores that are all alike are at chance in every respect, since blocks with one score share their
places fairly. See `lenses.planted` for the models.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import get_args

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from lenses import ablation, planted, readout, registry
from lenses import lens as options
from lenses.block_scores import block_scores
from lenses.errors import BadOption, NonFinite, UnsupportedLens
from lenses.lens import Lens
from lenses.planted import Planted
from lenses.variants import ABLATION, CHANCE, Variant

ALIKE = 1e-5
"""Scores that differ by less are one score: the rounding of float32 names no block."""


METHODS = [name for name in registry.LENSES if name != "ablation"]
"""All registered lenses but the one whose drops stand below them as the reference."""


@dataclass(frozen=True)
class Grade:
    """How well scores name the true blocks; the named block is the one of the largest |score|.

    `hit`: whether the named block is true. `found`: the part of the n true blocks among the n of the
    largest |score|. `distance`: blocks from the named one to the nearest true one. `rank`: the true
    blocks' mean place by |score|, 1 for the largest.
    """

    hit: float
    found: float
    distance: float
    rank: float


MEASURES = tuple(f.name for f in fields(Grade))


def grade(scores: Float[ndarray, " block"], true: Collection[int]) -> Grade:
    """What is to be expected of these scores, were blocks whose scores are alike put in random order.

    Raises `NonFinite` for a score that is no number.
    """
    if not np.isfinite(scores).all():
        raise NonFinite("a block's score is not a number, so that no block can be named")
    sizes, blocks, kept = np.abs(scores), np.arange(len(scores)), np.array(sorted(true))
    named = sizes >= sizes.max() - ALIKE
    away = np.abs(blocks[:, None] - kept).min(axis=1)
    above = (sizes[:, None] > sizes[kept] + ALIKE).sum(axis=0)
    alike = (np.abs(sizes[:, None] - sizes[kept]) <= ALIKE).sum(axis=0)
    return Grade(
        hit=float(np.isin(blocks[named], kept).mean()),
        found=float(np.clip((len(kept) - above) / alike, 0, 1).mean()),
        distance=float(away[named].mean()),
        rank=float((above + (alike + 1) / 2).mean()),
    )


def score(
    lenses: Sequence[str | Lens] | None = None,
    variants: Iterable[Variant] = get_args(Variant),
    seeds: Iterable[int] = range(20),
) -> pd.DataFrame:
    """One row a lens and variant: the means over seeds of `hit`, `found`, `distance` and `rank`.

    By default `METHODS`, each with its own defaults. Below them stand the drops of the target's
    probability where a block is skipped, and what chance would give. `models` counts the models
    that a lens was scored on, `refused` those that it does not allow (a tuned lens that nobody fitted).
    Raises `BadOption` for two lenses of one name and the same options.
    """
    chosen = [registry.get(lens) if isinstance(lens, str) else lens for lens in lenses or METHODS]
    labels = [label(lens) for lens in chosen]
    if len(set(labels)) < len(labels):
        raise BadOption("the same lens is asked for twice with the same options: leave one of them out")
    rows = []
    for one in planted.variants(variants, seeds):
        for name, found in zip([*labels, ABLATION, CHANCE], _all(one, chosen), strict=True):
            grades = {} if found is None else vars(grade(found, one.blocks))
            rows.append({"lens": name, "variant": one.variant, "refused": found is None, **grades})
    frame = pd.DataFrame(rows, columns=["lens", "variant", "refused", *MEASURES])
    groups = frame.groupby(["lens", "variant"], sort=False)
    counted = groups["refused"].agg(models=lambda refused: (~refused).sum(), refused="sum").astype(int)
    return groups[list(MEASURES)].mean().join(counted).reset_index()


def table(scores: pd.DataFrame, measure: str = "hit") -> pd.DataFrame:
    """One row a lens, one column a variant: one of the measures; blank where no model was allowed."""
    wide = scores.pivot(index="lens", columns="variant", values=measure)
    return wide.loc[scores["lens"].unique(), scores["variant"].unique()]


def label(lens: Lens) -> str:
    """A lens's name, and the options that are not its defaults."""
    plain = type(lens)()
    changed = [
        f"{f.name}={getattr(lens, f.name)}"
        for f in options.fields(type(lens))
        if getattr(lens, f.name) != getattr(plain, f.name)
    ]
    return f"{lens.name} ({', '.join(changed)})" if changed else lens.name


def drops(model: Planted) -> Float[ndarray, " block"]:
    """How much of the target's probability is lost where a block is skipped at every position."""
    decoder, target = model.decoder, model.target
    trace = decoder.trace(model.ids)
    own = readout.level(decoder, trace[-1][[target.position]], target.token)[0]
    return own - ablation.skipped(decoder, trace, target)


def _all(model: Planted, lenses: Sequence[Lens]) -> list[Float[ndarray, " block"] | None]:
    """The blocks' scores by each lens (None where it refuses the model), by ablation and by nothing."""
    decoder = model.decoder
    trace = decoder.trace(model.ids)
    found: list[Float[ndarray, " block"] | None] = []
    for lens in lenses:
        try:
            attribution = lens.attribute(decoder, trace, model.target)
        except UnsupportedLens:
            found.append(None)  # counted in `refused`
        else:
            found.append(block_scores(attribution, decoder.blocks, model.target.position))
    return [*found, drops(model), np.zeros(decoder.blocks)]
