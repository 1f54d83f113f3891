"""How well scores rank what they are held against, prompt by prompt.

Everything takes `scores` and `truth`, a row a prompt and a column a block, and gives a number a prompt,
not a number where a row has none: where a value is missing, or all of its scores (or truths) are alike.
Law: the truth itself ranks it perfectly, and no statistic changes when all blocks change places.
Sources: Spearman (1904); Kendall (1945), tau-b; average precision as in information retrieval.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from numpy import ndarray

LEAST = 3
"""Blocks below which no order means anything."""
AT_ONCE, NUMBERS = 50, 2_000_000
"""Draws that are held in memory at once, and numbers of all draws together, at most."""

Numbers = Float[ndarray, "prompt block"]


def usable(scores: Numbers, truth: Numbers) -> Bool[ndarray, " prompt"]:
    """The prompts that can be ranked at all."""
    if scores.shape[1] < LEAST:
        return np.zeros(len(scores), dtype=bool)
    finite = np.isfinite(scores).all(axis=1) & np.isfinite(truth).all(axis=1)
    return finite & (np.ptp(scores, axis=1) > 0) & (np.ptp(truth, axis=1) > 0)


def spearman(scores: Numbers, truth: Numbers) -> Float[ndarray, " prompt"]:
    """Spearman's rank correlation; ties share their ranks."""
    left, right = (pd.DataFrame(values).rank(axis=1).to_numpy() for values in (scores, truth))
    left, right = (ranks - ranks.mean(axis=1, keepdims=True) for ranks in (left, right))
    return _ratio(scores, truth, (left * right).sum(axis=1), _norm(left) * _norm(right))


def kendall(scores: Numbers, truth: Numbers) -> Float[ndarray, " prompt"]:
    """Kendall's tau-b."""
    one, other = np.triu_indices(scores.shape[1], k=1)
    left, right = (np.sign(values[:, one] - values[:, other]) for values in (scores, truth))
    return _ratio(scores, truth, (left * right).sum(axis=1), _norm(left) * _norm(right))


def hits(scores: Numbers, truth: Numbers, most: int) -> Float[ndarray, " prompt"]:
    """1 where the block of the largest truth is among the `most` highest scores, else 0.

    Blocks that tie with it in score share the places that are left, so that it may be a part of 1.
    """
    chosen = np.take_along_axis(scores, _largest(truth)[:, None], axis=1)
    ahead = (scores > chosen).sum(axis=1)
    tied = np.maximum(1, (scores == chosen).sum(axis=1))  # itself included, if it has a score
    return _where(scores, truth, np.clip((most - ahead) / tied, 0.0, 1.0))


def named(scores: Float[ndarray, "*prompts block"]) -> Int[ndarray, "*prompts"]:
    """The block at which each prompt's answer sets in by its scores: where the running sum of |score|
    reaches half of all of it, the IG-Lens paper's onset (arXiv 2606.29693)."""
    running = np.abs(scores).cumsum(axis=-1)
    return (running >= running[..., -1:] / 2).argmax(axis=-1)


def outranked(scores: Numbers, truth: Numbers) -> Float[ndarray, " prompt"]:
    """The paper's test: of the blocks that are scored lower than the `named` one, the part whose truth is
    less than its truth. Not a number where no block is scored lower."""
    return _where(scores, truth, _outranked(np.nan_to_num(scores), truth))


def outranked_by_chance(
    scores: Numbers, truth: Numbers, draws: int, generator: np.random.Generator
) -> Float[ndarray, "draw prompt"]:
    """`outranked` with each prompt's scores dealt out to its blocks anew, `draws` times: what the same
    numbers give when they know nothing of the truth.

    That is not one half: an onset tends to the middle of the blocks, wherever the truths are large.
    """
    known, parts = np.nan_to_num(scores), []
    at_once = max(1, min(AT_ONCE, NUMBERS // max(1, known.size)))
    for start in range(0, draws, at_once):
        every = np.broadcast_to(known, (min(at_once, draws - start), *known.shape))
        parts.append(_outranked(generator.permuted(every, axis=2), truth))
    return np.where(usable(scores, truth), np.concatenate(parts), np.nan)


def _outranked(
    scores: Float[ndarray, "*draws prompt block"], truth: Numbers
) -> Float[ndarray, "*draws prompt"]:
    at = named(scores)[..., None]
    every = np.broadcast_to(truth, scores.shape)
    lower = scores < np.take_along_axis(scores, at, axis=-1)
    less = every < np.take_along_axis(every, at, axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (lower & less).sum(axis=-1) / lower.sum(axis=-1)


def found(scores: Numbers, relevant: Bool[ndarray, "prompt block"]) -> Float[ndarray, "prompt block"]:
    """How many relevant blocks are among the 1, 2, … highest scores; among ties the earlier block goes
    first, which says nothing of the truth."""
    order = np.argsort(-scores, axis=1, kind="stable")
    return np.take_along_axis(relevant, order, axis=1).cumsum(axis=1).astype(float)


def average_precision(scores: Numbers, relevant: Bool[ndarray, "prompt block"]) -> Float[ndarray, " prompt"]:
    """The mean, over the relevant blocks, of the precision at each one's place in the order of scores.
    Not a number where no block is relevant, or all are."""
    got = found(scores, relevant)
    new = np.diff(got, axis=1, prepend=0.0)
    precision = got / np.arange(1, scores.shape[1] + 1)
    return _ratio(scores, relevant.astype(float), (precision * new).sum(axis=1), got[:, -1])


def average_precision_by_chance(relevant: Bool[ndarray, "prompt block"]) -> Float[ndarray, " prompt"]:
    """The mean of `average_precision` over all orders: more than the part of blocks that are relevant, the
    more so the fewer they are."""
    count, total = relevant.sum(axis=1), relevant.shape[1]
    others = (count - 1) / max(1, total - 1)
    even = (1 / np.arange(1, total + 1)).sum() / max(1, total)
    return np.where((count > 0) & (count < total), others + (1 - others) * even, np.nan)


def precision_recall(
    scores: Numbers, relevant: Bool[ndarray, "prompt block"]
) -> tuple[Float[ndarray, " block"], Float[ndarray, " block"]]:
    """Of the k highest-scored blocks, how many are relevant, and how many of all relevant ones they are:
    the mean over the prompts that have some of both, for k = 1, 2, …"""
    some = usable(scores, relevant.astype(float))
    if not some.any():
        return (np.full(scores.shape[1], np.nan),) * 2
    got = found(scores[some], relevant[some])
    ranks = np.arange(1, scores.shape[1] + 1)
    return (got / ranks).mean(axis=0), (got / got[:, -1:]).mean(axis=0)


def _largest(truth: Numbers) -> Int[ndarray, " prompt"]:
    return np.nan_to_num(truth, nan=-np.inf).argmax(axis=1)


def _norm(values: Numbers) -> Float[ndarray, " prompt"]:
    return np.sqrt((values**2).sum(axis=1))


def _ratio(scores: Numbers, truth: Numbers, part: ndarray, whole: ndarray) -> Float[ndarray, " prompt"]:
    with np.errstate(invalid="ignore", divide="ignore"):
        return _where(scores, truth, np.where(whole > 0, part / whole, np.nan))


def _where(scores: Numbers, truth: Numbers, values: ndarray) -> Float[ndarray, " prompt"]:
    return np.where(usable(scores, truth), values, np.nan)
