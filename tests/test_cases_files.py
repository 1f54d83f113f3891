"""Folders of the kinds of model that users of other tools reported wrong numbers for.

Each list is the probability of `w5` after the last token, in float32: read at each depth, and with
each block skipped. The numbers were computed outside this project and are written with six digits.
"""

from __future__ import annotations

import pytest
import torch

import lenses
from tests import tiny

LEVELS = {
    "gpt2": [0.002433, 0.007000, 0.001424, 0.001244],
    "llama": [0.002778, 0.004766, 0.045282, 0.086635],
    "opt_nofinal": [0.020374, 0.003217, 0.000815, 0.000062],  # no norm before the head
    "gemma2": [0.041904, 0.034293, 0.017041, 0.007648],  # logits bounded by a tanh
    "cohere": [0.021759, 0.016422, 0.014005, 0.013799],  # logits multiplied by 0.25
    "granite": [0.011247, 0.011205, 0.010863, 0.010836],  # logits divided by 4
    "bloom": [0.012600, 0.044486, 0.023430, 0.039663],  # a norm before the first block
    "mpt": [0.002559, 0.005766, 0.008087, 0.010048],
    "gptj": [0.013390, 0.006703, 0.007471, 0.008274],  # a bias in the head
    "phi": [0.000736, 0.003058, 0.023634, 0.048122],  # a bias in the head
    "mixtral": [0.002778, 0.001415, 0.030627, 0.004348],
    "mamba": [0.009310, 0.006396, 0.011298, 0.005712],
    "xglm": [0.015389, 0.031803, 0.038423, 0.031848],
}

SKIPPED = {
    "gpt2": [0.001805, 0.006078, 0.001424],
    "llama": [0.006202, 0.004058, 0.045282],
    "bloom": [0.019302, 0.042683, 0.023430],
    "mpt": [0.005195, 0.009587, 0.008087],
    "mamba": [0.004173, 0.005104, 0.011298],
    "gemma2": [0.021312, 0.011582, 0.017041],
}

VARIANTS = {"llama-bos": {"bos": True}, "llama-smalltok": {"size": 60}}

# Half of the sixth digit is the rounding of the numbers above; the other half is room for float32.
SIX_DIGITS = 1e-6


@pytest.fixture(scope="session")
def loaded(tmp_path_factory):
    """The decoder of a family's folder, or of a variant's: saved and loaded once."""
    known = {}

    def of(name):
        if name not in known:
            folder = tmp_path_factory.mktemp(name)
            tiny.save(name.partition("-")[0], folder, **VARIANTS.get(name, {}))
            known[name] = lenses.load(str(folder))
        return known[name]

    return of


def read(decoder, prompt=tiny.PROMPT, target="w5"):
    return lenses.compare(decoder, prompt, target=target, lenses=["logit-lens", "ig-lens"])


@pytest.mark.parametrize("family", LEVELS)
def test_a_saved_folder_reads_the_levels_of_its_model(family, loaded):
    found = read(loaded(family))
    levels, shares = (result.attribution for result in found.results)
    assert levels.values == pytest.approx(LEVELS[family], abs=SIX_DIGITS)
    assert shares.start + shares.values.cumsum() == pytest.approx(LEVELS[family][1:], abs=SIX_DIGITS)
    assert found.probability == pytest.approx(LEVELS[family][-1], abs=SIX_DIGITS)
    assert found.target.token == tiny.TARGET
    assert found.model["blocks"] == 3


@pytest.mark.parametrize("family", SKIPPED)
def test_skipping_a_block_of_a_saved_folder_gives_the_known_probability(family, loaded):
    decoder = loaded(family)
    trace = decoder.trace(tiny.IDS)
    with torch.no_grad():
        after = [decoder.resume(block + 1, trace[block])[-1].softmax(-1) for block in range(decoder.blocks)]
    found = [float(chances[tiny.TARGET]) for chances in after]
    assert found == pytest.approx(SKIPPED[family], abs=SIX_DIGITS)


def test_bos_is_kept_where_the_tokenizer_adds_it_and_moves_the_probability(loaded):
    with_bos, without = (read(loaded(name), "w3 w17 w9") for name in ("llama-bos", "llama"))
    assert [token.text for token in with_bos.prompt.tokens] == ["[BOS]", "w3", "w17", "w9"]
    assert [token.text for token in without.prompt.tokens] == ["w3", "w17", "w9"]
    assert with_bos.probability == pytest.approx(0.007171, abs=SIX_DIGITS)
    assert without.probability == pytest.approx(0.044068, abs=SIX_DIGITS)


def test_a_target_is_its_word_also_where_the_tokenizer_would_put_bos_before_it(loaded):
    tokenizer = loaded("llama-bos").tokenizer
    assert tokenizer("w5").input_ids == [1, tiny.TARGET]
    assert read(loaded("llama-bos")).target.token == tiny.TARGET


def test_a_head_wider_than_the_tokenizer_reads_the_same_levels(loaded):
    found = read(loaded("llama-smalltok"))
    assert found.results[0].attribution.values == pytest.approx(LEVELS["llama"], abs=SIX_DIGITS)
    assert found.model["vocabulary"] == 64


def test_a_token_that_the_tokenizer_has_no_name_for_is_shown_by_its_id(loaded):
    assert read(loaded("llama-smalltok"), target=62).target_text == "[id 62]"


def test_a_word_outside_the_vocabulary_is_no_target(loaded):
    with pytest.raises(lenses.BadPrompt, match="'w63' is not in this model's vocabulary"):
        read(loaded("llama-smalltok"), target="w63")
