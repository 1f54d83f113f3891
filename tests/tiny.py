"""Tiny random decoder-only models, one a family, the same on every machine.

Every weight is drawn from a generator seeded with the parameter's own name; biases are noise, since
a bias of zero hides bugs.
"""

from __future__ import annotations

import functools
import tempfile
import zlib
from pathlib import Path

import numpy as np
import torch
import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from lenses import registry, translators
from lenses.decoder import Decoder
from lenses.fingerprint import fingerprint
from lenses.lens import Lens

IDS = [3, 17, 9, 41, 22, 8]
PROMPT = "w3 w17 w9 w41 w22 w8"
TARGET = 5

BASE = dict(
    vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=3,
    num_attention_heads=2, max_position_embeddings=32,
)  # fmt: skip
ONE_KV = dict(BASE, num_key_value_heads=1)
TWO_KV = dict(BASE, num_key_value_heads=2)
HEADS = dict(ONE_KV, head_dim=8)
GPT = dict(vocab_size=64, n_embd=16, n_layer=3, n_head=2, n_positions=32, bos_token_id=0, eos_token_id=0)
OPT = dict(
    vocab_size=64, hidden_size=16, ffn_dim=32, num_hidden_layers=3, num_attention_heads=2,
    max_position_embeddings=32,
)  # fmt: skip
FALCON = dict(vocab_size=64, hidden_size=16, num_hidden_layers=3, num_attention_heads=2)
SPECIAL = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)

FAMILIES = {
    "gpt2": lambda: hf.GPT2Config(**GPT),
    "gpt_neo": lambda: hf.GPTNeoConfig(
        vocab_size=64, hidden_size=16, num_layers=3, num_heads=2, intermediate_size=32,
        max_position_embeddings=32, attention_types=[[["global"], 1], [["local"], 2]], window_size=4,
        bos_token_id=0, eos_token_id=0,
    ),
    "gptj": lambda: hf.GPTJConfig(**GPT, rotary_dim=4),
    "gpt_neox": lambda: hf.GPTNeoXConfig(**BASE),
    "gpt_neox_sequential": lambda: hf.GPTNeoXConfig(**BASE, use_parallel_residual=False),
    "gpt_bigcode": lambda: hf.GPTBigCodeConfig(**GPT),
    "openai-gpt": lambda: hf.OpenAIGPTConfig(**GPT),
    "opt": lambda: hf.OPTConfig(**OPT),
    "opt_350m": lambda: hf.OPTConfig(**OPT, word_embed_proj_dim=8, do_layer_norm_before=False),
    "opt_nofinal": lambda: hf.OPTConfig(**OPT, _remove_final_layer_norm=True),
    "bloom": lambda: hf.BloomConfig(vocab_size=64, hidden_size=16, n_layer=3, n_head=2),
    "falcon_old": lambda: hf.FalconConfig(**FALCON, new_decoder_architecture=False),
    "falcon_new": lambda: hf.FalconConfig(**FALCON, num_kv_heads=1, new_decoder_architecture=True),
    "mpt": lambda: hf.MptConfig(
        vocab_size=64, d_model=16, n_layers=3, n_heads=2, max_seq_len=32, expansion_ratio=2
    ),
    "codegen": lambda: hf.CodeGenConfig(**dict(GPT, n_head=4), n_ctx=32, rotary_dim=4),
    "llama": lambda: hf.LlamaConfig(**BASE),
    "mistral": lambda: hf.MistralConfig(**ONE_KV, sliding_window=4),
    "mixtral": lambda: hf.MixtralConfig(**ONE_KV, num_local_experts=4, num_experts_per_tok=2),
    "qwen2": lambda: hf.Qwen2Config(**ONE_KV),
    "qwen3": lambda: hf.Qwen3Config(**HEADS),
    "qwen3_moe": lambda: hf.Qwen3MoeConfig(**HEADS, **EXPERTS),
    "qwen3_next": lambda: hf.Qwen3NextConfig(
        **HEADS, **EXPERTS, shared_expert_intermediate_size=16, linear_num_value_heads=2,
        linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=8,
        layer_types=["linear_attention", "linear_attention", "full_attention"],
    ),
    "gemma": lambda: hf.GemmaConfig(**HEADS),
    "gemma2": lambda: hf.Gemma2Config(**HEADS, final_logit_softcapping=2.0, query_pre_attn_scalar=8),
    "gemma3": lambda: hf.Gemma3TextConfig(
        **HEADS, sliding_window=3, layer_types=["sliding_attention", "sliding_attention", "full_attention"]
    ),
    "phi": lambda: hf.PhiConfig(**BASE),
    "phi3": lambda: hf.Phi3Config(**BASE, **SPECIAL),
    "olmo": lambda: hf.OlmoConfig(**BASE, **SPECIAL),
    "olmo2": lambda: hf.Olmo2Config(**BASE, **SPECIAL),
    "cohere": lambda: hf.CohereConfig(**TWO_KV, **SPECIAL, logit_scale=0.25),
    "cohere2": lambda: hf.Cohere2Config(**TWO_KV, **SPECIAL, logit_scale=0.25, sliding_window=4),
    "granite": lambda: hf.GraniteConfig(
        **TWO_KV, logits_scaling=4.0, residual_multiplier=0.22, embedding_multiplier=12.0,
        attention_multiplier=0.125,
    ),
    "hyperclovax": lambda: hf.HyperCLOVAXConfig(**ONE_KV, logits_scaling=0.5),
    "glm4": lambda: hf.Glm4Config(**HEADS, pad_token_id=0),
    "stablelm": lambda: hf.StableLmConfig(**TWO_KV),
    "starcoder2": lambda: hf.Starcoder2Config(**ONE_KV, bos_token_id=0, eos_token_id=0),
    "nemotron": lambda: hf.NemotronConfig(**TWO_KV, head_dim=8),
    "smollm3": lambda: hf.SmolLM3Config(**ONE_KV, **SPECIAL),
    "gpt_oss": lambda: hf.GptOssConfig(
        **HEADS, num_local_experts=3, num_experts_per_tok=2, sliding_window=4, eos_token_id=2
    ),
    "mamba": lambda: hf.MambaConfig(vocab_size=64, hidden_size=16, num_hidden_layers=3, state_size=4),
    "jamba": lambda: hf.JambaConfig(
        **ONE_KV, **SPECIAL, num_experts=2, attn_layer_period=2, attn_layer_offset=1,
        expert_layer_period=2, expert_layer_offset=1, mamba_d_state=4, mamba_dt_rank=4,
    ),
    "falcon_h1": lambda: hf.FalconH1Config(
        **HEADS, **SPECIAL, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8,
        mamba_n_groups=1, lm_head_multiplier=0.5,
    ),
    "xglm": lambda: hf.XGLMConfig(
        vocab_size=64, d_model=16, ffn_dim=32, num_layers=3, attention_heads=2, max_position_embeddings=32
    ),
    "biogpt": lambda: hf.BioGptConfig(**BASE),
}  # fmt: skip

SOME = ("gpt2", "llama", "gemma2", "bloom", "mixtral", "mamba", "opt_350m", "falcon_new")
"""Families that differ where lenses could go wrong: for laws that take longer."""


def seeded(model: torch.nn.Module) -> torch.nn.Module:
    """Fill every parameter: matrices ~ 0.25 N, vectors ~ 1 + 0.3 N, biases ~ 0.5 N."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            draw = np.random.RandomState(zlib.crc32(name.encode()) & 0x7FFFFFFF)
            values = draw.standard_normal(tuple(parameter.shape)).astype("float32")
            if name.endswith("bias"):
                values = 0.5 * values
            elif parameter.ndim == 1:
                values = 1 + 0.3 * values
            else:
                values = 0.25 * values
            parameter.copy_(torch.from_numpy(values))
    return model.eval()


def model(family: str) -> hf.PreTrainedModel:
    """A fresh model of the family, safe to break."""
    return seeded(hf.AutoModelForCausalLM.from_config(FAMILIES[family]()).float())


def tokenizer(size: int = 64, bos: bool = False) -> hf.PreTrainedTokenizerFast:
    """One token a word: [UNK] [BOS] [EOS] w3 w4 …"""
    names = ["[UNK]", "[BOS]", "[EOS]"] + [f"w{i}" for i in range(3, size)]
    words = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if bos:
        words.post_processor = processors.TemplateProcessing(single="[BOS] $A", special_tokens=[("[BOS]", 1)])
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="[UNK]", pad_token="[UNK]", bos_token="[BOS]", eos_token="[EOS]"
    )


@functools.cache
def decoder(family: str) -> Decoder:
    """The family's decoder, shared by tests, none of which may change it."""
    return Decoder(model(family), tokenizer(), family)


@functools.cache
def tuned(family: str) -> Path:
    """A folder with a tuned lens of the family: matrices and constants of noise."""
    own, draw = decoder(family), torch.Generator().manual_seed(0)
    matrix = 0.1 * torch.randn(own.blocks, own.width, own.width, generator=draw)
    constant = 0.1 * torch.randn(own.blocks, own.width, generator=draw)
    folder = Path(tempfile.mkdtemp(prefix=f"tuned-{family}-"))
    translators.Translators(matrix, constant, True, fingerprint(own)).save(folder)
    return folder


def lens(family: str, name: str, **options: object) -> Lens:
    """The lens as the family can have it: the tuned lens with translators of noise."""
    return registry.get(name, **({"folder": str(tuned(family))} if name == "tuned-lens" else {}), **options)


def save(family: str, folder: Path, **options: object) -> Path:
    """The family as a folder that the Auto classes load."""
    model(family).save_pretrained(folder)
    tokenizer(**options).save_pretrained(folder)
    return folder
