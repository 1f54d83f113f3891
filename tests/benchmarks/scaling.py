"""How time and memory grow: one thing at a time is made larger, and the slopes are given.

The exponent is that of a straight line through log size and log time (or memory): 1 is in proportion.
Models other than the default one are random Llamas that are built in memory.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import transformers as hf

from lenses import registry, tokens
from lenses.decoder import Decoder
from tests import tiny
from tests.benchmarks import integrals, texts
from tests.benchmarks.measuring import Way, extra, megabytes, seconds, took
from tests.benchmarks.rows import batched, listed, mapped

HEAD = (
    "| row | what | size: time, extra memory | exponent of time | of memory |\n"
    "|---|---|---|---|---|"
)  # fmt: skip
TOKENS = 64


@dataclass(frozen=True)
class Scale:
    """What grows, and the way at each size, made when it is its turn."""

    what: str
    sizes: tuple[int, ...]
    make: Callable[[int], Way]


def measure(scale: Scale, runs: int | None = None) -> list[str]:
    """The cells of a scale: each size's median time and extra memory, and both exponents."""
    times, sizes = [], []
    for size in scale.sizes:
        way = scale.make(size)
        sizes.append(extra(way)[1])
        times.append(statistics.median(took(way) for _ in range(runs or 3)))
    each = [
        f"{size}: {seconds(time)}, {megabytes(memory)}"
        for size, time, memory in zip(scale.sizes, times, sizes, strict=True)
    ]
    return [scale.what, "; ".join(each), exponent(scale.sizes, times), exponent(scale.sizes, sizes)]


def exponent(sizes: tuple[int, ...], values: list[float] | list[int | None]) -> str:
    """The slope of log value against log size, or a dash where a value is missing or nothing."""
    if not all(values):
        return "–"
    return f"{np.polyfit(np.log(sizes), np.log(np.array(values, dtype=float)), 1)[0]:.2f}"


def by_tokens(decoder: Decoder) -> Scale:
    def make(count: int) -> Way:
        return mapped(decoder, texts.prompt(decoder, count))

    return Scale("map of the default model, by tokens", (32, 128, 512, 2048), make)


def by_depths(decoder: Decoder) -> Scale:
    def make(blocks: int) -> Way:
        return random_map(blocks, 32768)

    return Scale(f"map of {TOKENS} tokens, by blocks (random Llama)", (4, 8, 16, 32), make)


def by_vocabulary(decoder: Decoder) -> Scale:
    def make(vocabulary: int) -> Way:
        return random_map(4, vocabulary)

    sizes = (8192, 32768, 131072, 262144)
    return Scale(f"map of {TOKENS} tokens, by vocabulary (random Llama)", sizes, make)


def by_steps(decoder: Decoder) -> Scale:
    question = integrals.asked(decoder, 5)

    def make(steps: int) -> Way:
        lens = registry.get("conductance", steps=steps)
        return lambda: lens.attribute(decoder, question.trace, question.target).values

    return Scale("conductance of 5 tokens, by steps", (5, 10, 20, 40), make)


def by_prompts(decoder: Decoder) -> Scale:
    def make(count: int) -> Way:
        rows = listed(decoder, count)
        return lambda: batched(decoder, rows, 32)

    return Scale("list in batches of 32, by prompts", (16, 64, 256), make)


def random_map(blocks: int, vocabulary: int) -> Way:
    """A map of a random Llama of width 128."""
    config = hf.LlamaConfig(
        vocab_size=vocabulary, hidden_size=128, intermediate_size=256, num_hidden_layers=blocks,
        num_attention_heads=4, max_position_embeddings=2 * TOKENS,
    )  # fmt: skip
    model = tiny.seeded(hf.AutoModelForCausalLM.from_config(config).float()).requires_grad_(False)
    decoder = Decoder(model, tiny.tokenizer(vocabulary), f"random Llama of {blocks} blocks")
    words = " ".join(f"w{3 + k * 101 % (vocabulary - 3)}" for k in range(TOKENS))
    return mapped(decoder, tokens.encode(decoder.tokenizer, words))


SCALES: dict[str, Callable[[Decoder], Scale]] = {
    "scaling-tokens": by_tokens,
    "scaling-depths": by_depths,
    "scaling-vocabulary": by_vocabulary,
    "scaling-steps": by_steps,
    "scaling-prompts": by_prompts,
}


def rows(names: list[str], decoder: Decoder, runs: int | None) -> Iterator[list[str]]:
    """The cells of each named scale."""
    for name in names:
        yield [name, *measure(SCALES[name](decoder), runs)]
