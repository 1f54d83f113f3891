"""`python -m tests.benchmarks.cuda [--tokens N] [--runs N]`: a map on a GPU against its bare matrix products.

The model has the shapes of Llama-3.2-1B (16 blocks, width 2,048, 128,256 tokens) and random weights, made
on the device. What no map can do without is one product of each state with the head; both are timed in
turn in one run, in float32 (without TF32) and in bfloat16, and their ratio is printed, with the most
memory that the map held beside the model.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import transformers as hf

from lenses import tokens
from lenses.decoder import Decoder
from tests import tiny
from tests.benchmarks.rows import CHUNK, mapped

SHAPES = dict(
    vocab_size=128_256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
    num_attention_heads=32, num_key_value_heads=8, head_dim=64, max_position_embeddings=8192,
    tie_word_embeddings=True,
)  # fmt: skip


def model(dtype: torch.dtype) -> Decoder:
    """A decoder of these shapes on the device, its weights small enough that states stay finite."""
    with torch.device("cuda"):
        made = hf.AutoModelForCausalLM.from_config(hf.LlamaConfig(**SHAPES), dtype=dtype)
    made.requires_grad_(False).eval()
    return Decoder(made, tiny.tokenizer(SHAPES["vocab_size"]), "random Llama with the shapes of Llama-3.2-1B")


def products(decoder: Decoder, count: int) -> Callable[[], None]:
    """One product of each depth's state of each token with the head, in chunks."""
    weight = decoder.model.get_output_embeddings().weight.detach().t()
    states = torch.randn((decoder.blocks + 1) * count, decoder.width, device="cuda", dtype=decoder.dtype)
    buffer = torch.empty(CHUNK, decoder.vocabulary, device="cuda", dtype=decoder.dtype)

    @torch.no_grad()
    def run() -> None:
        for chunk in states.split(CHUNK):
            torch.mm(chunk, weight, out=buffer[: len(chunk)])

    return run


def took(way: Callable[[], object]) -> float:
    """Seconds until the device has done all of it."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    way()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def line(dtype: torch.dtype, count: int, runs: int) -> str:
    """Both medians, their ratio, and the map's memory."""
    decoder = model(dtype)
    words = " ".join(f"w{3 + k * 10_007 % (decoder.vocabulary - 3)}" for k in range(count))
    ours, peer = mapped(decoder, tokens.encode(decoder.tokenizer, words)), products(decoder, count)
    took(peer)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    took(ours)
    held = torch.cuda.max_memory_allocated() - before
    pairs = [(took(ours), took(peer)) for _ in range(runs)]
    a, b = (statistics.median(column) for column in zip(*pairs, strict=True))
    name = str(dtype).removeprefix("torch.")
    return f"| {name} | {count} | {a:.3f} s | {b:.3f} s | {a / b:.2f} | {held / 1e6:.0f} MB |"


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.cuda", description=__doc__.split("\n\n")[1])
    parser.add_argument("--tokens", type=int, default=512, metavar="N", help="tokens of the text (512)")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="timed runs of each (3)")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no CUDA device here")
    torch.backends.cuda.matmul.allow_tf32 = False
    print(f"{torch.cuda.get_device_name(0)}; torch {torch.__version__}")
    print("| weights | tokens | map | products | map / products | extra memory |\n|---|---|---|---|---|---|")
    for dtype in (torch.float32, torch.bfloat16):
        print(line(dtype, given.tokens, given.runs), flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
