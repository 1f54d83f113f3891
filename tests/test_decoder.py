"""Models that are wrapped, nested, offloaded, quantised, broken or refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers as hf
from torch import nn

import lenses
from lenses import comparison, readout
from tests import tiny

FIVE = ["ig-lens", "logit-lens", "dla", "layer-ig", "conductance"]


def levels(decoder: lenses.Decoder) -> np.ndarray:
    return readout.level(decoder, decoder.trace(tiny.IDS).residual[:, -1], tiny.TARGET)


def all_five(decoder: lenses.Decoder) -> list[np.ndarray]:
    found = comparison.compare(decoder, tiny.PROMPT, target="w5", lenses=FIVE)
    return [result.attribution.values for result in found.results]


def test_a_lora_that_does_nothing_changes_nothing_and_one_that_does_is_read():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=True)
    wrapped = peft.get_peft_model(tiny.model("llama"), config).eval()
    decoder = lenses.Decoder(wrapped, tiny.tokenizer(), "llama + LoRA")
    for found, plain in zip(all_five(decoder), all_five(tiny.decoder("llama")), strict=True):
        assert found == pytest.approx(plain, abs=1e-6 * max(1, np.abs(plain).max()))
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    active = levels(lenses.Decoder(wrapped, tiny.tokenizer()))
    own = wrapped(input_ids=torch.tensor([tiny.IDS])).logits[0, -1].double().softmax(-1)[tiny.TARGET]
    assert active[-1] == pytest.approx(float(own), abs=1e-6)
    assert active[-1] != pytest.approx(levels(tiny.decoder("llama"))[-1], abs=1e-4)


def test_the_text_backbone_of_a_vision_language_model_is_found_beside_a_vision_tower_as_deep():
    vision = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2,
                  image_size=16, patch_size=8)  # fmt: skip
    config = hf.Gemma3Config(
        text_config=tiny.FAMILIES["gemma3"]().to_dict(), vision_config=vision, mm_tokens_per_image=4,
        image_token_index=60, boi_token_index=61, eoi_token_index=62,
    )  # fmt: skip
    model = tiny.seeded(hf.Gemma3ForConditionalGeneration(config).float())
    decoder = lenses.Decoder(model, tiny.tokenizer(), "gemma3 with eyes")
    assert decoder.blocks == 3
    own = model(input_ids=torch.tensor([tiny.IDS])).logits[0]
    trace = decoder.trace(tiny.IDS)
    with torch.no_grad():
        assert all(torch.equal(decoder.resume(depth, trace[depth]), own) for depth in range(4))


def test_an_offloaded_model_gives_the_same_numbers():
    accelerate = pytest.importorskip("accelerate")
    offloaded = accelerate.cpu_offload(tiny.model("llama"), execution_device=torch.device("cpu"))
    assert next(offloaded.parameters()).device.type == "meta"
    decoder = lenses.Decoder(offloaded, tiny.tokenizer(), "llama, offloaded")
    for found, plain in zip(all_five(decoder), all_five(tiny.decoder("llama")), strict=True):
        assert found == pytest.approx(plain, abs=1e-6 * max(1, np.abs(plain).max()))


class Packed(nn.Module):
    """A head as a quantiser leaves it: packed bytes as its weight, and a forward of its own."""

    def __init__(self, head: nn.Linear) -> None:
        super().__init__()
        self.rows = head.weight.detach().clone()
        self.weight = nn.Parameter(torch.zeros(len(self.rows), 1, dtype=torch.uint8), requires_grad=False)

    def forward(self, hidden):
        return hidden @ self.rows.T


def test_a_packed_head_is_called_and_never_read():
    model = tiny.model("llama")
    model.lm_head = Packed(model.lm_head)
    decoder = lenses.Decoder(model, tiny.tokenizer(), "llama, packed")
    for found, plain in zip(all_five(decoder), all_five(tiny.decoder("llama")), strict=True):
        assert found == pytest.approx(plain, abs=1e-5 * max(1, np.abs(plain).max()))


class Flagless(nn.Module):
    """A wrapper whose forward drops every flag that it is given."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.config = inner, inner.config

    def get_input_embeddings(self):
        return self.inner.get_input_embeddings()

    def get_output_embeddings(self):
        return self.inner.get_output_embeddings()

    def forward(self, input_ids, **_):
        return self.inner(input_ids)


def test_nothing_depends_on_the_flags_of_forward():
    wrapped = lenses.Decoder(Flagless(tiny.model("gpt2")).eval(), tiny.tokenizer())
    for found, plain in zip(all_five(wrapped), all_five(tiny.decoder("gpt2")), strict=True):
        assert found == pytest.approx(plain, abs=1e-6)


def gemma3n() -> nn.Module:
    config = hf.Gemma3nTextConfig(
        **{**tiny.HEADS, "intermediate_size": [32] * 3}, hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=64, num_kv_shared_layers=0, laurel_rank=4,
        layer_types=["full_attention"] * 3, activation_sparsity_pattern=[0.0] * 3,
    )  # fmt: skip
    return tiny.seeded(hf.AutoModelForCausalLM.from_config(config).float())


def overflowing(dtype: torch.dtype) -> nn.Module:
    model = tiny.model("llama")
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight.mul_(3e4)
    return model.to(dtype)


def untrained_mode() -> nn.Module:
    return tiny.model("gpt2").train()


def bert() -> nn.Module:
    return tiny.seeded(hf.AutoModelForCausalLM.from_config(hf.BertConfig(**tiny.BASE)).float())


def no_list() -> nn.Module:
    model = tiny.model("gpt2")
    model.config.n_layer = 5
    return model


REFUSED = [
    (gemma3n, lenses.UnsupportedModel, "one vector a token"),
    (untrained_mode, lenses.UnsupportedModel, "model.eval()"),
    (bert, lenses.UnsupportedModel, "sees the future"),
    (no_list, lenses.UnsupportedModel, "no list of 5 blocks"),
    (lambda: overflowing(torch.float16), lenses.NonFinite, "depth 2 of tiny is not finite in float16: load"),
]


@pytest.mark.parametrize(("build", "error", "said"), REFUSED)
def test_what_cannot_be_proved_is_refused_with_the_reason(build, error, said):
    with pytest.raises(error, match=said.replace("(", r"\(").replace(")", r"\)")):
        lenses.Decoder(build(), tiny.tokenizer(), "tiny")


def test_a_model_that_overflows_in_float16_is_read_in_bfloat16_and_float32():
    for dtype, expected, tolerance in ((torch.float32, 0.157563, 1e-6), (torch.bfloat16, 0.155874, 5e-3)):
        decoder = lenses.Decoder(overflowing(dtype), tiny.tokenizer())
        assert levels(decoder)[-1] == pytest.approx(expected, abs=tolerance)


def test_a_readout_that_is_not_the_models_own_is_refused():
    class Moody(type(tiny.model("llama"))):
        """Its logits depend on how long the prompt is, so single rows read otherwise."""

        def forward(self, *args, **kwargs):
            output = super().forward(*args, **kwargs)
            output.logits = output.logits * (1 + 0.01 * output.logits.shape[1])
            return output

    model = tiny.model("llama")
    model.__class__ = Moody
    with pytest.raises(lenses.UnsupportedModel, match="away from the model's own"):
        lenses.Decoder(model, tiny.tokenizer(), "moody")


def test_a_state_that_is_not_finite_names_its_depth():
    model = tiny.model("llama")
    decoder = lenses.Decoder(model, tiny.tokenizer(), "late")
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight.fill_(torch.inf)
    with pytest.raises(lenses.NonFinite, match="depth 2"):
        decoder.trace(tiny.IDS)


def test_a_table_of_positions_that_ends_unseen_is_a_sentence_too():
    with pytest.raises(lenses.BadPrompt, match="33 tokens and the model has places for 32"):
        tiny.decoder("mpt").trace(tiny.IDS * 5 + tiny.IDS[:3])


def test_a_token_that_the_heads_bias_rules_out_has_probability_0_and_no_parts():
    model = tiny.model("phi")
    with torch.no_grad():
        model.lm_head.bias[tiny.TARGET] = -torch.inf
    decoder = lenses.Decoder(model, tiny.tokenizer(), "phi")
    found = comparison.compare(
        decoder, tiny.PROMPT, target=tiny.TARGET, lenses=["ig-lens", "logit-lens", "dla"]
    )
    assert [result.attribution.lens for result in found.results] == ["ig-lens", "logit-lens"]
    assert all((result.attribution.values == 0).all() for result in found.results)
    assert any("dla is left out" in warning for warning in found.warnings)
    assert found.to_dict()["target"]["probability"] == 0


def test_a_token_that_the_heads_bias_makes_infinite_is_refused():
    model = tiny.model("phi")
    with torch.no_grad():
        model.lm_head.bias[tiny.TARGET] = torch.inf
    with pytest.raises(lenses.NonFinite, match="not finite"):
        lenses.Decoder(model, tiny.tokenizer(), "phi")


def test_log_probability_is_finite_where_the_probability_underflows():
    model = tiny.model("phi")
    with torch.no_grad():
        model.lm_head.bias[tiny.TARGET] = -5000.0
    decoder = lenses.Decoder(model, tiny.tokenizer(), "phi")
    found = readout.read(decoder, decoder.trace(tiny.IDS)[-1], tiny.TARGET)
    assert (found.probability == 0).all()
    assert np.isfinite(found.log_probability).all()
    assert (found.log_probability < -4000).all()


def test_gradients_in_half_precision_come_with_a_warning():
    decoder = lenses.Decoder(tiny.model("llama").to(torch.bfloat16), tiny.tokenizer(), "llama")
    found = comparison.compare(decoder, tiny.PROMPT, target="w5")
    assert found.model["dtype"] == "bfloat16"
    assert any("bfloat16" in warning and "layer-ig" in warning for warning in found.warnings)
