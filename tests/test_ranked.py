"""A list that was run with ablation says in its report how well the other methods rank the blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import transformers as hf

from lenses import batch, prompts, registry, report, store
from lenses.decoder import Decoder
from lenses.findings import Outcome, gathered
from lenses.report.ranked import ranked
from lenses.validation import swing
from tests import tiny
from tests.test_validating import LIST

NAMES = ("ig-lens", "logit-lens", "dla", "ablation")


@pytest.fixture(scope="module")
def decoder():
    config = hf.LlamaConfig(**{**tiny.BASE, "num_hidden_layers": 6})
    model = tiny.seeded(hf.AutoModelForCausalLM.from_config(config).float())
    return Decoder(model, tiny.tokenizer(), "six")


def said(found):
    return ranked(found.validation, found.settings)


class Run:
    def __init__(self, decoder, lenses) -> None:
        listed = prompts.read(LIST.encode(), "list.csv")
        self.settings = store.settings(decoder, listed, lenses)
        self._outcomes = sorted(batch.run(decoder, listed.rows, lenses), key=lambda one: one.row.row)

    def outcomes(self):
        return iter(self._outcomes)


@pytest.fixture(scope="module")
def run(decoder):
    return Run(decoder, [registry.get(name) for name in NAMES])


@pytest.fixture(scope="module")
def found(run):
    return gathered(run.settings, run.outcomes())


def test_the_scores_are_the_methods_own_and_the_drops_those_of_ablation(run, found):
    values = {lens.lens: lens.values for lens in found.lenses}
    scores = found.scores
    np.testing.assert_array_equal(scores.drops, values["ablation"])
    assert list(scores.titles) == ["ig-lens", "logit-lens", "dla", "random", "depth"]
    np.testing.assert_array_equal(scores.values[0], values["ig-lens"])
    np.testing.assert_array_equal(scores.values[2], values["dla"][:, 1:])
    # The last block's drop is its share, to the rounding of two passes of the model.
    np.testing.assert_allclose(scores.drops[:, -1], scores.values[0][:, -1], atol=2e-6)
    assert scores.prompts["swing"].tolist() == pytest.approx([swing(v) for v in values["logit-lens"]])


def test_a_ledger_alone_tells_whether_a_target_is_monotone(decoder, found):
    alone = Run(decoder, [registry.get(name) for name in ("ig-lens", "ablation")])
    told = gathered(alone.settings, alone.outcomes()).scores.prompts["swing"]
    np.testing.assert_allclose(told, found.scores.prompts["swing"], atol=1e-6)


def test_a_target_of_which_no_method_tells_the_path_is_in_neither_subset(decoder):
    alone = Run(decoder, [registry.get(name) for name in ("dla", "ablation")])
    scores = gathered(alone.settings, alone.outcomes()).scores
    assert scores.subset("all").all()
    assert not (scores.subset("monotone") | scores.subset("non-monotone")).any()


def test_the_page_shows_the_numbers_of_the_validation(run, found, tmp_path):
    report.write(tmp_path, run)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Do the methods find the blocks that matter?" in text
    assert "at all positions" in text
    line = said(found).rows[0]
    mean = found.validation.rows.iloc[0]["spearman"]
    assert line["ρ"].startswith(f"{mean:.2f}".replace("-", "−"))
    assert f'<td class="n">{line["ρ"]}</td>' in text
    assert 'id="spec-ranked"' in text


def test_where_blocks_were_skipped_is_said(decoder):
    last = Run(decoder, [registry.get("ig-lens"), registry.get("ablation", positions="last")])
    assert said(gathered(last.settings, last.outcomes())).where == "where the word is predicted"


UNFIT = {
    "no ablation": ["ig-lens", "dla"],
    "nothing but ablation": ["ablation"],
    "halves of blocks": ["ig-lens", registry.get("ablation", kind="mlp")],
    "spans of blocks": ["ig-lens", registry.get("ablation", span=2)],
    "some depths only": [registry.get("ig-lens", depths=(2, 4)), "ablation"],
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_scores_no_single_block_has_no_section(case, decoder):
    chosen = [registry.get(one) if isinstance(one, str) else one for one in UNFIT[case]]
    alone = Run(decoder, chosen)
    found = gathered(alone.settings, alone.outcomes())
    assert found.scores is None
    assert said(found) is None


def test_a_method_that_was_left_out_of_a_prompt_has_no_number_there(run):
    first, *others = run.outcomes()
    kept = tuple(r for r in first.comparison.results if r.attribution.lens != "dla")
    cut = Outcome(first.row, replace(first.comparison, results=kept))
    scores = gathered(run.settings, [cut, *others]).scores
    assert np.isnan(scores.values[2, 0]).all()
    assert np.isfinite(scores.values[2, 1:]).all()


def test_a_prompt_without_drops_is_not_held_against_anything(run):
    first, *others = run.outcomes()
    kept = tuple(r for r in first.comparison.results if r.attribution.lens != "ablation")
    cut = Outcome(first.row, replace(first.comparison, results=kept))
    assert gathered(run.settings, [cut, *others]).scores.prompts["row"].tolist() == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("family", ["gpt2", "bloom"])
def test_a_model_of_few_blocks_has_its_section_without_a_picture(family, tmp_path):
    few = Run(tiny.decoder(family), [registry.get("ig-lens"), registry.get("ablation")])
    report.write(tmp_path, few)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Do the methods find the blocks that matter?" in text
    assert "nan" not in text.split('<section id="ablation">')[1].split("<script")[0]
