"""Levels, skips and parts of each family, worked out once outside this library."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers as hf

import lenses
from lenses import readout
from lenses.question import ask
from tests import tiny

LEVELS = {
    "gpt2": [0.002433, 0.007000, 0.001424, 0.001244],
    "llama": [0.002778, 0.004766, 0.045282, 0.086635],
    "opt_nofinal": [0.020374, 0.003217, 0.000815, 0.000062],
    "gemma2": [0.041904, 0.034293, 0.017041, 0.007648],
    "cohere": [0.021759, 0.016422, 0.014005, 0.013799],
    "granite": [0.011247, 0.011205, 0.010863, 0.010836],
    "bloom": [0.012600, 0.044486, 0.023430, 0.039663],
    "mpt": [0.002559, 0.005766, 0.008087, 0.010048],
    "gptj": [0.013390, 0.006703, 0.007471, 0.008274],
    "phi": [0.000736, 0.003058, 0.023634, 0.048122],
    "mixtral": [0.002778, 0.001415, 0.030627, 0.004348],
    "mamba": [0.009310, 0.006396, 0.011298, 0.005712],
    "xglm": [0.015389, 0.031803, 0.038423, 0.031848],
}
"""The probability of the target that each depth reads, at the last position."""

SKIPPED = {
    "gpt2": [0.001805, 0.006078, 0.001424],
    "llama": [0.006202, 0.004058, 0.045282],
    "bloom": [0.019302, 0.042683, 0.023430],
    "mpt": [0.005195, 0.009587, 0.008087],
    "mamba": [0.004173, 0.005104, 0.011298],
    "gemma2": [0.021312, 0.011582, 0.017041],
}
"""The model's probability of the target with block 0, 1 or 2 left out."""

PARTS = {
    "gpt2": ([-0.10364, 0.05498, -1.22712, -0.15336], 0.07801, -1.35113),
    "llama": ([-0.18152, -0.14053, 1.56250, 0.84561], 0.0, 2.08607),
    "gptj": ([0.04515, -0.17007, 0.07654, 0.34978], -0.04906, 0.25233),
    "phi": ([-0.09303, 0.13839, 1.39790, 1.19933], -1.09936, 1.54324),
}
"""What the embedding and each block add to the target's logit, the constant, and the logit."""

# Six printed digits are right to 5e-7; the rest is for float32 sums in another order.
SIX_DIGITS = 1e-6
# Five printed digits are right to 5e-6; the same.
FIVE_DIGITS = 1e-5


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A family's decoder out of a folder, as a user loads it; each is read once."""
    kept: dict[str, lenses.Decoder] = {}

    def load(family: str) -> lenses.Decoder:
        if family not in kept:
            folder = tiny.save(family, tmp_path_factory.mktemp("models") / family)
            kept[family] = lenses.load(str(folder))
        return kept[family]

    return load


def explained(decoder: lenses.Decoder, lens: str) -> lenses.attribution.Attribution:
    (result,) = lenses.compare(decoder, tiny.PROMPT, target="w5", lenses=[lens]).results
    return result.attribution


@pytest.mark.parametrize("family", LEVELS)
def test_the_logit_lens_reads_each_depth_through_the_models_own_tail(saved, family):
    found = explained(saved(family), "logit-lens")
    assert found.values == pytest.approx(np.array(LEVELS[family]), abs=SIX_DIGITS)


@pytest.mark.parametrize("family", LEVELS)
def test_ig_lens_shares_add_up_to_the_change_of_level(saved, family):
    found = explained(saved(family), "ig-lens")
    assert found.start == pytest.approx(LEVELS[family][0], abs=SIX_DIGITS)
    assert found.values.sum() == pytest.approx(LEVELS[family][-1] - LEVELS[family][0], abs=2 * SIX_DIGITS)


@pytest.mark.parametrize("family", SKIPPED)
def test_a_block_is_left_out_by_resuming_behind_it_with_what_it_was_given(saved, family):
    decoder = saved(family)
    trace = decoder.trace(tiny.IDS)
    with torch.no_grad():
        logits = [decoder.resume(block + 1, trace[block])[-1].double() for block in range(decoder.blocks)]
    found = [float(row.softmax(-1)[tiny.TARGET]) for row in logits]
    assert found == pytest.approx(SKIPPED[family], abs=SIX_DIGITS)


@pytest.mark.parametrize("family", PARTS)
def test_the_parts_of_a_logit_and_their_constant_add_up_to_it(saved, family):
    parts, constant, logit = PARTS[family]
    found = explained(saved(family), "dla")
    assert found.values == pytest.approx(np.array(parts), abs=FIVE_DIGITS)
    assert found.constant == pytest.approx(constant, abs=FIVE_DIGITS)
    assert found.end == pytest.approx(logit, abs=FIVE_DIGITS)


@pytest.mark.parametrize("family", ["bloom", "mpt", "granite"])
def test_parts_add_up_where_modules_add_the_residual_themselves_or_scale_what_they_add(saved, family):
    found = explained(saved(family), "dla")
    logit = saved(family).before_head(saved(family).trace(tiny.IDS)[-1][-1:])
    logit = float(saved(family).head(logit, tiny.TARGET)[0])
    # Identities in float32: some tens of roundings of parts below 10.
    assert found.values.sum() + found.constant == pytest.approx(logit, abs=1e-5)


BOS = [("w3 w17 w9", True, 0.007171), ("w3 w17 w9", False, 0.044068)]


@pytest.mark.parametrize(("prompt", "bos", "probability"), BOS)
def test_bos_is_read_as_the_saved_tokenizer_says(tmp_path, prompt, bos, probability):
    decoder = lenses.load(str(tiny.save("llama", tmp_path / "llama", bos=bos)))
    question = ask(decoder, prompt, target="w5")
    assert question.target.token == tiny.TARGET
    assert [token.text for token in question.prompt.tokens] == ["[BOS]"] * bos + prompt.split()
    assert question.probability == pytest.approx(probability, abs=SIX_DIGITS)


def test_a_head_wider_than_the_saved_tokenizer_reads_rows_without_a_name(tmp_path):
    decoder = lenses.load(str(tiny.save("llama", tmp_path / "llama", size=60)))
    assert decoder.vocabulary == 64
    found = lenses.compare(decoder, tiny.PROMPT, target=62, lenses=["logit-lens"]).to_dict()
    assert found["target"]["text"] == "[id 62]"
    with pytest.raises(lenses.BadPrompt, match="'w63' is not in this model's vocabulary"):
        lenses.compare(decoder, tiny.PROMPT, target="w63")


def bert() -> hf.PreTrainedModel:
    return hf.BertLMHeadModel(hf.BertConfig(**tiny.BASE))


def t5() -> hf.PreTrainedModel:
    config = hf.T5Config(vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=3, num_heads=2)
    return hf.T5ForConditionalGeneration(config)


@pytest.mark.parametrize(("build", "said"), [(bert, "sees the future"), (t5, "not a decoder-only model")])
def test_a_model_that_is_no_decoder_is_refused(tmp_path, build, said):
    build().save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    with pytest.raises(lenses.UnsupportedModel, match=said):
        lenses.load(str(tmp_path))


@pytest.mark.parametrize("family", LEVELS)
def test_the_last_level_is_the_models_own_probability(saved, family):
    decoder = saved(family)
    own = decoder.own(tiny.IDS)[-1].double().softmax(-1)[tiny.TARGET]
    level = readout.level(decoder, decoder.trace(tiny.IDS)[-1][-1:], tiny.TARGET)[0]
    assert level == pytest.approx(float(own), abs=SIX_DIGITS)
