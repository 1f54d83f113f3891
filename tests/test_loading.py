"""What is loaded, and what is refused and why: nothing runs a checkpoint's code or makes up a weight."""

from __future__ import annotations

import json
import shutil
import time

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

import lenses
from tests import tiny

TEXT = dict(tiny.HEADS, sliding_window=3)
TEXT["layer_types"] = ["sliding_attention", "sliding_attention", "full_attention"]


def saved(folder, network, **tokenizer):
    """A folder with this network and the word tokenizer."""
    tiny.seeded(network.float()).save_pretrained(folder)
    tiny.tokenizer(**tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    return tiny.save("llama", tmp_path_factory.mktemp("whole"))


@pytest.fixture
def copy(llama, tmp_path):
    """A copy of the llama folder that a test may break."""
    return shutil.copytree(llama, tmp_path / "llama")


def probability(decoder):
    return lenses.compare(decoder, tiny.PROMPT, target="w5", lenses=["logit-lens"]).probability


def pickled(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def headless(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def narrow(folder):
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"] = torch.zeros(30, 16)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def configured(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def cut_short(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def code_of_its_own(folder):
    configured(folder, model_type="own", auto_map={"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"})
    (folder / "code.py").write_text("raise SystemExit('this code must not run')")


def dangling(folder):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(folder / "gone")


REFUSED = [
    ("a pickle checkpoint", pickled, lenses.UnsupportedModel, "pickled weights (pytorch_model.bin)"),
    ("no configuration", lambda f: (f / "config.json").unlink(), lenses.UnknownModel, "no config.json"),
    ("a broken configuration", lambda f: (f / "config.json").write_text("{"), lenses.UnknownModel, "config"),
    ("no weights", lambda f: (f / "model.safetensors").unlink(), lenses.UnknownModel, "no .safetensors file"),
    ("weights that are a dead link", dangling, lenses.UnknownModel, "can't be read"),
    ("weights cut short", cut_short, lenses.UnknownModel, "can't be read"),
    ("no tokenizer", lambda f: [p.unlink() for p in f.glob("token*")], lenses.UnknownModel, "tokenizer"),
    ("no head", headless, lenses.UnsupportedModel, "lm_head.weight"),
    ("a weight of another shape", narrow, lenses.UnsupportedModel, "layers.1.mlp.up_proj.weight"),
    ("code of its own", code_of_its_own, lenses.UnknownModel, "code of its own"),
    ("an unknown kind", lambda f: configured(f, model_type="own"), lenses.UnknownModel, "own"),
]


@pytest.mark.parametrize(("what", "damage", "error", "said"), REFUSED, ids=[row[0] for row in REFUSED])
def test_a_folder_is_refused_in_a_sentence_that_says_why(what, damage, error, said, copy):
    damage(copy)
    with pytest.raises(error) as refused:
        lenses.load(str(copy))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500


SMALL = dict(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2)
NO_DECODERS = {
    "encoder–decoder": lambda: hf.T5ForConditionalGeneration(
        hf.T5Config(vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2)
    ),
    "sees the future": lambda: hf.BertLMHeadModel(hf.BertConfig(**SMALL)),
    "no next-token head": lambda: hf.ViTModel(
        hf.ViTConfig(**{k: v for k, v in SMALL.items() if k != "vocab_size"}, image_size=16, patch_size=8)
    ),
}


@pytest.mark.parametrize("said", NO_DECODERS)
def test_a_model_that_is_no_decoder_is_refused(said, tmp_path):
    folder = saved(tmp_path, NO_DECODERS[said]())
    with pytest.raises(lenses.UnsupportedModel, match="not a decoder-only model") as refused:
        lenses.load(str(folder))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dtype": "float33"}, "float33 is no number format .*float32"),
        ({"dtype": "int8"}, "int8 is no number format"),
        ({"device": "abacus"}, "no device abacus"),
        ({"device": "meta"}, "no device meta"),
    ],
)
def test_an_unknown_number_format_or_device_is_refused_before_anything_is_read(options, said, tmp_path):
    with pytest.raises(lenses.UnknownModel, match=said):
        lenses.load(str(tmp_path / "nothing-is-here"), **options)


def test_the_number_format_is_the_one_that_was_asked_for_and_is_stated(llama):
    found = {
        dtype: lenses.compare(
            lenses.load(str(llama), dtype=dtype), tiny.PROMPT, target="w5", lenses=["logit-lens"]
        )
        for dtype in ("float64", "float32", "bfloat16")
    }
    assert [found[dtype].model["dtype"] for dtype in found] == list(found)
    assert found["float64"].probability == pytest.approx(found["float32"].probability, abs=1e-6)
    # Loaded in bfloat16, its rotary angles stay in float32; with those cast too it would be 0.085956.
    # A kernel of another machine may round one step of bfloat16 in a logit otherwise: less than 1e-4.
    assert found["bfloat16"].probability == pytest.approx(0.086269, abs=1e-4)


def test_a_folder_is_named_by_its_place_and_the_hash_of_its_weights(llama, copy):
    whole, same = lenses.load(str(llama)), lenses.load(str(copy))
    assert (same.name, same.source) == ("llama", "folder:llama")
    assert whole.revision == same.revision
    tiny.seeded(same.model).model.norm.weight.data.add_(1)
    same.model.save_pretrained(copy)
    assert lenses.load(str(copy)).revision != whole.revision


def test_the_text_side_of_a_vision_language_model_gives_the_text_models_numbers(tmp_path):
    # The tower that sees has as many blocks as the one that writes, and stands first.
    eyes = hf.SiglipVisionConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2, image_size=16,
        patch_size=8,
    )  # fmt: skip
    config = hf.Gemma3Config(
        text_config=hf.Gemma3TextConfig(**TEXT), vision_config=eyes, mm_tokens_per_image=4,
        image_token_index=63, boi_token_index=61, eoi_token_index=62,
    )  # fmt: skip
    both = tiny.seeded(hf.Gemma3ForConditionalGeneration(config).float())
    text = hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**TEXT)).float().eval()
    text.model.load_state_dict(both.model.language_model.state_dict())
    text.tie_weights()
    for name, network in (("both", both), ("text", text)):
        network.save_pretrained(tmp_path / name)
        tiny.tokenizer().save_pretrained(tmp_path / name)
    found, expected = (
        lenses.compare(lenses.load(str(tmp_path / name)), tiny.PROMPT, target="w5", lenses=["logit-lens"])
        for name in ("both", "text")
    )
    assert (found.model["blocks"], found.model["width"], found.model["vocabulary"]) == (3, 16, 64)
    values = expected.results[0].attribution.values
    # The same weights through another class's code.
    assert found.results[0].attribution.values == pytest.approx(values, abs=1e-6)
    assert values.max() - values.min() > 1e-3


def test_a_tokenizer_larger_than_the_embedding_loads_and_its_outer_tokens_are_refused(tmp_path):
    decoder = lenses.load(str(saved(tmp_path, tiny.model("llama"), size=80)))
    assert probability(decoder) == pytest.approx(0.086635, abs=1e-6)
    with pytest.raises(lenses.BadPrompt, match="token id 70 is outside the embedding, which has 64 rows"):
        lenses.compare(decoder, "w3 w70", lenses=["logit-lens"])
    with pytest.raises(lenses.BadPrompt, match="'w70' is outside this vocabulary of 64 tokens"):
        lenses.compare(decoder, "w3 w17", target="w70", lenses=["logit-lens"])


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(llama, tmp_path, monkeypatch):
    """The llama folder, in the Hub's cache as owner/name."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--owner--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    return shutil.copytree(llama, repository / "snapshots" / COMMIT)


def test_a_model_of_the_hub_is_named_by_its_id_and_its_commit(hub):
    decoder = lenses.load("owner/name")
    assert (decoder.name, decoder.source) == ("owner/name", "hub:owner/name")
    assert decoder.revision == lenses.load("owner/name", revision=COMMIT).revision == COMMIT
    assert probability(decoder) == pytest.approx(0.086635, abs=1e-6)


def test_a_model_of_the_hub_with_pickled_weights_only_is_refused_with_the_reason(hub):
    pickled(hub)
    with pytest.raises(lenses.LensesError, match="owner/name has no safetensors weights"):
        lenses.load("owner/name")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nobody/no-such-model", ["nobody/no-such-model", "check the name", "the network", "local folder"]),
        ("no-such-model", ["no-such-model", "`lenses models`"]),
        ("gemma-3-270m", ["google/gemma-3-270m", "hf auth login", "HF_TOKEN", "https://huggingface.co/"]),
        ("google/gemma-3-270m", ["hf auth login"]),
        ("./no/such/folder", ["no model folder at ./no/such/folder", "smollm2-135m"]),
        ("no/such/folder", ["no model folder at no/such/folder"]),
        ("nowhere.gguf", ["no GGUF file at nowhere.gguf"]),
        ("", ["smollm2-135m"]),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_within_seconds_and_says_what_to_do(name, said):
    began = time.monotonic()
    with pytest.raises(lenses.UnknownModel) as refused:
        lenses.load(name)
    assert all(words in str(refused.value) for words in said)
    assert "\n" not in str(refused.value)
    assert time.monotonic() - began < 5
