"""The planted models are what they say, and what every lens makes of them is pinned in the README.

`python -m tests.test_planted` measures `assets/planted.csv` and the README's table anew.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, get_args

import numpy as np
import pandas as pd
import pytest
import torch

import lenses
from lenses import ablation, grading, planted, planting, readout, registry, variants
from lenses.attribution import Attribution, Claim, Unit
from lenses.block_scores import block_scores
from lenses.errors import BadOption, NonFinite, UnsupportedLens
from lenses.grading import Grade, grade
from lenses.methods.ig_lens import IGLens
from lenses.methods.logit_lens import LogitLens
from lenses.target import Target
from tests import tiny

README = Path(__file__).parent.parent / "README.md"
ASSETS = README.parent / "assets"
SEEDS = range(20)
"""Of the README's table, which takes a minute or two."""

FAST = range(4)
"""Of the table that is pinned here."""

VARIANTS = get_args(variants.Variant)
EVEN = 1 / planting.WORDS
"""The probability of every word where nothing of an answer is in the state."""

TARGET = Target(len(tiny.IDS) - 1, tiny.TARGET)
"""Of the tiny models."""

ROUNDING = 2e-5
"""Of a state of size 3 in float32, after eight blocks."""


ONE, TWO = "100 % · 0.0 · 1.0", "100 % · 0.0 · 1.5"
PINNED = {
    "ig-lens": [ONE, TWO, ONE, ONE, "0 % · 3.8 · 5.8"],
    "logit-lens": [ONE, TWO, ONE, ONE, "0 % · 3.8 · 5.8"],
    "tuned-lens": ["–"] * 5,  # nobody fits one for a planted model
    "dla": [ONE, TWO, ONE, ONE, "0 % · 3.8 · 5.0"],
    "layer-ig": ["0 % · 5.0 · 7.0", "50 % · 1.5 · 5.2", "0 % · 4.5 · 6.9", ONE, "25 % · 1.8 · 4.5"],
    "conductance": ["0 % · 5.0 · 4.5", "50 % · 1.5 · 5.4", "0 % · 4.5 · 5.5", ONE, "25 % · 1.8 · 4.0"],
    "ablation (skip)": [ONE, TWO, ONE, ONE, "50 % · 1.9 · 1.5"],
    "chance": [
        "12 % · 2.5 · 4.5",
        "25 % · 1.7 · 4.5",
        "12 % · 2.2 · 4.5",
        "12 % · 2.3 · 4.5",
        "12 % · 2.5 · 4.5",
    ],
}
"""Hits, distance and rank on each variant, over `FAST`: hits · blocks · place."""


@pytest.fixture(scope="module")
def models() -> list[planted.Planted]:
    return list(planted.variants(VARIANTS, FAST))


@pytest.fixture(scope="module")
def scores(models) -> pd.DataFrame:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(planted, "variants", lambda names, seeds: iter(models))  # planted once
        return grading.score(seeds=FAST)


def read(model: planted.Planted) -> np.ndarray:
    """The target's probability at each depth."""
    trace = model.decoder.trace(model.ids)
    return readout.level(model.decoder, trace.residual[:, model.target.position], model.target.token)


def silenced(model: planted.Planted, blocks: frozenset[int]) -> torch.Tensor:
    """The words' probabilities where these blocks of a copy write nothing, at any position."""
    broken = copy.deepcopy(model.decoder.model)
    with torch.no_grad():
        for block in blocks:
            broken.model.layers[block].self_attn.o_proj.weight.zero_()
            broken.model.layers[block].mlp.down_proj.weight.zero_()
        return broken(input_ids=torch.tensor([model.ids])).logits[0, -1].softmax(dim=-1)


def of(models: list[planted.Planted], variant: str) -> list[planted.Planted]:
    return [model for model in models if model.variant == variant]


def written(model: planted.Planted) -> torch.Tensor:
    """What each block adds to the state of the last position."""
    return model.decoder.trace(model.ids).residual[:, -1].diff(dim=0)


def test_the_model_answers_and_without_its_true_blocks_nothing_of_the_answer_is_left(models):
    for model in models:
        token = model.target.token
        assert int(silenced(model, frozenset()).argmax()) == token
        assert silenced(model, model.blocks) == pytest.approx(EVEN, abs=1e-5)


def test_skipping_a_true_block_is_resuming_one_depth_later(models):
    for model in models:
        trace = model.decoder.trace(model.ids)
        skipped = ablation.skipped(model.decoder, trace, model.target)
        for block in model.blocks:
            logits = model.decoder.resume(block + 1, trace[block][None])
            expected = logits[0, -1].softmax(dim=-1)[model.target.token]
            assert skipped[block] == pytest.approx(float(expected), abs=1e-5)
            if len(model.blocks) == 1:
                assert skipped[block] == pytest.approx(EVEN, abs=1e-5)


def test_without_a_block_that_has_no_part_in_it_the_answer_stays(models):
    for model in models:
        token = model.target.token
        decided = max(silenced(model, frozenset({block}))[token] for block in model.blocks)
        for block in set(range(planting.BLOCKS)) - model.blocks - model.helpers:
            left = silenced(model, frozenset({block}))
            assert int(left.argmax()) == token
            assert left[token] > decided  # no noise block costs as much as a true one


def test_noise_is_as_large_as_an_answer_and_the_head_can_read_none_of_it(models):
    for model in models:
        head = model.decoder.model.lm_head.weight * model.decoder.model.model.norm.weight
        parts = {block: part for block, part in enumerate(written(model)) if block not in model.helpers}
        sizes = {
            block: 0.5 if model.variant == "shared" and block in model.blocks else 1.0 for block in parts
        }
        for block, part in parts.items():
            assert float(part.norm()) == pytest.approx(sizes[block], abs=ROUNDING)
            seen = float((head @ part).abs().max())
            if block in model.blocks and model.variant != "hidden":
                assert seen == pytest.approx(planting.HEAD * sizes[block], abs=5 * ROUNDING)
            else:
                assert seen < ROUNDING * planting.HEAD


def test_before_the_first_true_block_nothing_of_the_answer_is_in_the_state(models):
    for model in models:
        state = model.decoder.trace(model.ids)[min(model.blocks)][-1]
        for rows in (model.spaces.heads, model.spaces.codes):
            assert float((rows @ state).abs().max()) < ROUNDING


def test_the_answer_hangs_on_the_subject_alone(models):
    for model in models:
        answers = set()
        for subject in range(planting.SUBJECTS):
            ids = list(model.ids)
            ids[model.source] = subject
            answers.add(int(model.decoder.own(ids, [len(ids) - 1])[0].argmax()))
        assert len(answers) == planting.SUBJECTS
        other = [id if place == model.source else 8 for place, id in enumerate(model.ids)]
        assert int(model.decoder.own(other, [len(other) - 1])[0].argmax()) == model.target.token


def test_what_an_eraser_takes_away_makes_the_path_fall_again(models):
    for model in of(models, "erased"):
        levels, (eraser,) = read(model), model.helpers
        assert eraser > max(model.blocks)
        assert levels[eraser + 1] < levels[eraser] - 0.05


def test_a_hidden_write_moves_no_readout_and_its_translation_does(models):
    for model in of(models, "hidden"):
        shares = np.diff(read(model))
        (writer,), (translator,) = model.blocks, model.helpers
        assert abs(shares[writer]) < 1e-5
        assert shares[translator] > 0.5
        assert silenced(model, model.helpers) == pytest.approx(EVEN, abs=1e-5)


def test_a_routed_answer_is_not_at_the_last_position_before_its_router(models):
    for model in of(models, "routed"):
        (router,) = model.blocks
        subjects = model.spaces.words[: planting.SUBJECTS]
        states = model.decoder.trace(model.ids)[router]
        assert float((subjects @ states[-1]).abs().max()) < ROUNDING
        assert float((subjects @ states[model.source]).max()) == pytest.approx(2, abs=ROUNDING)
        looked = model.decoder.trace(model.ids)[router + 1][-1] - states[-1]
        assert float(looked @ model.spaces.heads[model.target.token]) == pytest.approx(1, abs=1e-4)


def test_a_seed_gives_one_model_and_leaves_the_users_random_state_alone():
    before = torch.get_rng_state()
    one, same, other = (planted.plant("single", seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    pairs = zip(one.decoder.model.parameters(), same.decoder.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert (one.ids, one.target, one.blocks) == (same.ids, same.target, same.blocks)
    assert not torch.equal(one.decoder.model.lm_head.weight, other.decoder.model.lm_head.weight)


def test_a_planted_model_is_compared_like_any_other():
    model = planted.plant("single", 0)
    found = lenses.compare(model.decoder, model.prompt)
    assert found.target == model.target
    assert found.probability == pytest.approx(read(model)[-1], abs=1e-6)
    assert {"ig-lens", "dla", "conductance"} <= {result.attribution.lens for result in found.results}


def test_ig_lens_names_the_planted_block_of_every_single_model():
    readings = [
        IGLens(),
        IGLens(readout="log-probability"),
        IGLens(readout="logit"),
        IGLens(estimator="gradient"),
    ]
    found = grading.score(readings, ["single"], range(8))
    assert list(found["lens"][:4]) == [
        "ig-lens",
        "ig-lens (readout=log-probability)",
        "ig-lens (readout=logit)",
        "ig-lens (estimator=gradient)",
    ]
    assert (found["hit"][:4] == 1).all()
    assert (found["distance"][:4] == 0).all()


def test_ig_lens_misses_what_the_head_cant_read_and_names_the_translator(models):
    for model in of(models, "hidden"):
        trace = model.decoder.trace(model.ids)
        shares = block_scores(IGLens().attribute(model.decoder, trace, model.target), planting.BLOCKS)
        assert frozenset({int(abs(shares).argmax())}) == model.helpers
        assert grade(shares, model.blocks).hit == 0


def test_what_every_lens_makes_of_every_variant_is_pinned_failures_included(scores):
    found = {name: dict(cells_of(scores))[name] for name in PINNED}
    assert found == PINNED


def test_the_readme_and_the_page_show_the_same_measurements_of_every_lens():
    found = variants.measured(ASSETS)
    rows = README.read_text().split("<!-- planted -->")[1].split("<!-- /planted -->")[0].strip().splitlines()
    assert rows == cells(found), "run python -m tests.test_planted"
    names = list(dict.fromkeys(found["lens"]))
    assert names == [*grading.METHODS, variants.ABLATION, variants.CHANCE], "run python -m tests.test_planted"
    assert (found["models"] + found["refused"] == len(SEEDS)).all()


def test_every_lens_is_graded_on_every_variant_and_the_logit_lens_as_ig_lens(scores):
    assert len(scores) == (len(grading.METHODS) + 2) * len(VARIANTS)
    assert (scores["models"] + scores["refused"] == len(FAST)).all()
    wide = grading.table(scores, "rank")
    assert list(wide.columns) == list(VARIANTS)
    # Both read the same states in float32 and subtract in float64.
    assert wide.loc["logit-lens"].tolist() == pytest.approx(wide.loc["ig-lens"].tolist())


def test_scores_that_are_all_alike_are_at_chance_as_random_ones_are_on_average():
    draw = np.random.default_rng(0)
    true = {1, 2, 6}
    random = pd.DataFrame([vars(grade(row, true)) for row in draw.random((4000, 8))])
    alike = grade(np.full(8, 0.3), true)
    assert alike == Grade(hit=3 / 8, found=3 / 8, distance=6 / 8, rank=4.5)
    for name, expected in vars(alike).items():
        error = random[name].std() / len(random) ** 0.5
        assert abs(random[name].mean() - expected) < 4 * error, name  # four standard errors


def test_the_truth_gets_the_best_grade_and_a_lie_does_not():
    truth = np.array([0, 0, 0.4, 0, 0, -0.5, 0, 0])
    assert grade(truth, {2, 5}) == Grade(hit=1, found=1, distance=0, rank=1.5)
    assert grade(np.roll(truth, 1), {2, 5}) == Grade(hit=0, found=0, distance=1, rank=5.5)
    half = np.array([0, 0.3, 0, 0.3 + 1e-7])  # a difference that rounding makes
    assert grade(half, {1}) == Grade(hit=0.5, found=0.5, distance=1, rank=1.5)
    with pytest.raises(NonFinite, match="not a number"):
        grade(np.array([0, np.nan]), {1})


def test_a_lens_that_a_model_does_not_allow_is_counted_and_others_are_graded():
    @dataclass(frozen=True)
    class Unfitted(LogitLens):
        name: ClassVar[str] = "unfitted"

        def attribute(self, decoder, trace, target):
            raise UnsupportedLens("fit it first")

    found = grading.score([Unfitted(), "ig-lens"], ["single"], [0]).set_index("lens")
    assert found.loc["unfitted", ["models", "refused"]].tolist() == [0, 1]
    assert np.isnan(found.loc["unfitted", "hit"])
    assert found.loc["ig-lens", ["models", "refused", "hit"]].tolist() == [1, 0, 1]


def test_the_same_lens_twice_is_refused():
    with pytest.raises(BadOption, match="twice"):
        grading.score(["ig-lens", IGLens()], ["single"], [0])


def attribution(claim: Claim, depths: list[int], values: list[float], **more) -> Attribution:
    return Attribution(
        "toy", {}, Unit.PROBABILITY, claim, np.array(depths), np.array(values), start=0.0, end=1.0, **more
    )


def test_a_blocks_score_by_each_claim_worked_by_hand():
    across = attribution(Claim.ACROSS, [0, 1, 2], [9.0, 0.25, 0.5])
    assert block_scores(across, 2).tolist() == [0.25, 0.5]
    level = attribution(Claim.LEVEL, [0, 1, 2], [0.5, 0.25, 1.0])
    assert block_scores(level, 2).tolist() == [-0.25, 0.75]
    positions = np.array([[0.75, 0.25, 0.0], [0.0, 1.0, 0.0]])
    within = attribution(Claim.WITHIN, [1, 2], [1.0, 1.0], positions=positions)
    assert block_scores(within, 2, 1).tolist() == [0.25, 0.75]
    assert block_scores(within, 2).tolist() == [0.0, 0.0]


def test_depths_that_leave_out_a_block_and_positions_that_are_not_told_have_no_block_scores():
    decoder = tiny.decoder("llama")
    trace = decoder.trace(tiny.IDS)
    chosen = IGLens(depths=(1, 3)).attribute(decoder, trace, TARGET)
    with pytest.raises(UnsupportedLens, match="leave out 2 of 1…3: ask for all depths"):
        block_scores(chosen, decoder.blocks)
    with pytest.raises(UnsupportedLens, match="positions are not told"):
        block_scores(attribution(Claim.WITHIN, [1, 2], [1.0, 1.0]), 2)


def test_every_registered_lens_scores_every_block_and_the_logit_lens_as_ig_lens():
    decoder = tiny.decoder("llama")
    trace = decoder.trace(tiny.IDS)
    found = {
        name: block_scores(tiny.lens("llama", name).attribute(decoder, trace, TARGET), decoder.blocks)
        for name in registry.LENSES
    }
    assert {len(one) for one in found.values()} == {decoder.blocks}
    assert found["logit-lens"] == pytest.approx(found["ig-lens"], abs=1e-12)


def cells_of(found: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Hits, distance and rank of each lens on each variant."""
    tables = {measure: grading.table(found, measure) for measure in grading.MEASURES}
    rows = []
    for lens in tables["hit"].index:
        texts = []
        for variant in VARIANTS:
            hit, _, distance, rank = (table.loc[lens, variant] for table in tables.values())
            texts.append("–" if np.isnan(hit) else f"{100 * hit:.0f} % · {distance:.1f} · {rank:.1f}")
        rows.append((str(lens), texts))
    return rows


def cells(found: pd.DataFrame) -> list[str]:
    """The README's table."""
    head = ["| | " + " | ".join(f"`{name}`" for name in VARIANTS) + " |", "|---" * (len(VARIANTS) + 1) + "|"]
    return head + [
        f"| {f'`{lens}`' if lens in registry.LENSES else lens} | {' | '.join(texts)} |"
        for lens, texts in cells_of(found)
    ]


def generated(text: str, found: pd.DataFrame) -> str:
    pattern = r"(<!-- planted -->\n).*?(<!-- /planted -->)"
    assert re.search(pattern, text, flags=re.S), "the README has no place for planted"
    return re.sub(pattern, lambda m: m[1] + "\n".join(cells(found)) + "\n" + m[2], text, flags=re.S)


if __name__ == "__main__":
    score = grading.score(seeds=SEEDS)
    score.round(6).to_csv(ASSETS / variants.FILE, index=False)
    README.write_text(generated(README.read_text(), score))
