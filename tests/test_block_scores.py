"""A score a block out of any lens's attribution, by hand and on models."""

from __future__ import annotations

import numpy as np
import pytest

import lenses
from lenses.attribution import Attribution, Claim, Unit
from lenses.block_scores import block_scores
from lenses.errors import UnsupportedLens
from tests import tiny


def made(claim: Claim, depths, values, positions=None) -> Attribution:
    return Attribution(
        "x", {}, Unit.PROBABILITY, claim, np.array(depths), np.array(values, dtype=float), 0.0, 1.0,
        positions=positions,
    )  # fmt: skip


def test_shares_are_the_blocks_own_and_the_embeddings_part_is_no_blocks():
    assert block_scores(made(Claim.ACROSS, [1, 2, 3], [5, 6, 7]), 3).tolist() == [5, 6, 7]
    assert block_scores(made(Claim.ACROSS, [0, 1, 2, 3], [9, 5, 6, 7]), 3).tolist() == [5, 6, 7]


def test_levels_score_a_block_by_their_step_across_it():
    assert block_scores(made(Claim.LEVEL, [0, 1, 2], [0.25, 1.0, 0.5]), 2).tolist() == [0.75, -0.5]


def test_within_each_depth_a_block_scores_by_the_growth_of_the_targets_own_part():
    positions = np.array([[9.0, 1.0, 7.0], [9.0, 4.0, 7.0], [9.0, 2.0, 8.0]])
    found = made(Claim.WITHIN, [1, 2, 3], [0, 0, 0], positions)
    assert block_scores(found, 3, 1).tolist() == [1, 3, -2]
    assert block_scores(found, 3).tolist() == [7, 0, 1]


@pytest.mark.parametrize("claim", [Claim.ACROSS, Claim.WITHIN])
def test_depths_that_leave_out_a_block_are_refused(claim):
    with pytest.raises(UnsupportedLens, match=r"x gives no score to each block.*leave out 2 of 1…3"):
        block_scores(made(claim, [1, 3], [1, 2], np.ones((2, 4))), 3)


def test_levels_without_depth_0_are_refused():
    with pytest.raises(UnsupportedLens, match=r"leave out 0 of 0…2"):
        block_scores(made(Claim.LEVEL, [1, 2], [1, 2]), 2)


@pytest.mark.parametrize("family", ["gpt2", "llama", "mamba"])
def test_every_lens_scores_every_block_and_the_logit_lens_as_ig_lens_does(family):
    decoder = tiny.decoder(family)
    found = lenses.compare(decoder, tiny.PROMPT, target="w5")
    scores = {
        r.attribution.lens: block_scores(r.attribution, decoder.blocks, found.target.position)
        for r in found.results
    }
    assert all(score.shape == (decoder.blocks,) and np.isfinite(score).all() for score in scores.values())
    np.testing.assert_allclose(scores["logit-lens"], scores["ig-lens"], atol=1e-15)
