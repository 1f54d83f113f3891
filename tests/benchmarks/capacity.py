"""`python -m tests.benchmarks.capacity [TOKENS]`: what a prompt costs, by arithmetic, and one check of it.

A product of m × k with k × n is 2mkn operations. A prompt is run twice (the trace, and the untouched model as
its proof), and the head reads the target's position at every depth. The check runs Llama-3.2-1B's shapes
with random weights in float32 on this machine: the products that the arithmetic counts, each measured at its
own shape in the same run, against the seconds that a comparison takes. Readings of many rows at once make
some of them faster, so that the comparison may take less.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

TOKENS = 16
STEPS = 20
FLOPS, BANDWIDTH, MEMORY = 400e12, 3.5e12, 141e9
"""What is counted on of one H200 in bfloat16: operations and bytes a second (of 990e12 and 4.8e12), bytes."""
HALF = 2
"""Bytes of a number in bfloat16."""
CORES = 24
"""CPU cores beside each H200, as in common machines of eight: a process takes one."""
BATCH = 32
"""Prompts in a batch (`batch.BATCH`), which `padded.fits` allows at all of these shapes."""
ROOM = 0.9
"""The part of a device's memory that models may take (`LENSES_MEMORY`)."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama: `keys` is the width of its keys and of its values."""

    name: str
    blocks: int
    width: int
    inner: int
    keys: int
    vocabulary: int
    tied: bool

    @property
    def block(self) -> int:
        """Weights of a block."""
        return 2 * self.width * (self.width + self.keys) + 3 * self.width * self.inner

    @property
    def head(self) -> int:
        return self.width * self.vocabulary

    @property
    def weights(self) -> int:
        return self.blocks * self.block + self.head * (1 if self.tied else 2)

    def forward(self, tokens: int) -> float:
        """Operations of all blocks: their products, and attention's two of every pair of tokens."""
        return 2.0 * tokens * self.blocks * self.block + 4.0 * tokens**2 * self.width * self.blocks


SHAPES = (
    Shape("SmolLM2-135M", 30, 576, 1536, 192, 49_152, True),
    Shape("Llama-3.2-1B", 16, 2048, 8192, 512, 128_256, True),
    Shape("Llama-3.1-8B", 32, 4096, 14_336, 1024, 128_256, False),
    Shape("Llama-3.1-70B", 80, 8192, 28_672, 1024, 128_256, False),
)


@dataclass(frozen=True)
class Cost:
    """Operations of a prompt: both passes, the head at all depths, and what integrals take in addition."""

    passes: float
    head: float
    conductance: float
    layer_ig: float

    @property
    def quick(self) -> float:
        """IG-Lens, the logit lens and DLA together: they share their readings."""
        return self.passes + self.head


def cost(shape: Shape, tokens: int, steps: int = STEPS) -> Cost:
    """A backward pass to the states costs as much as a forward pass (no gradient of weights is taken)."""
    forward = shape.forward(tokens) + 2.0 * shape.head
    return Cost(
        2 * forward,
        2.0 * (shape.blocks + 1) * shape.head,
        2 * steps * forward,
        steps * (shape.blocks + 1) * (forward + 2.0 * shape.head),  # from depth d on, half of it on average
    )


def seconds(shape: Shape, tokens: int, batch: int) -> float:
    """Of one prompt on one H200 in a batch: its operations, or the bytes of the weights, whichever is more.

    Three times the weights are read in a batch: by two passes, and (the head alone) once per chunk of depths.
    """
    moved = 2 * shape.weights * HALF + (shape.blocks + 1) * batch * shape.vocabulary * 4 * 2
    return max(cost(shape, tokens).quick / FLOPS, moved / batch / BANDWIDTH)


def table(tokens: int, beside: float) -> list[str]:
    """The table of the README; `beside` are a process's seconds a prompt beside the model."""
    head = (
        "| model | weights in bfloat16 | operations a prompt | of them the head | conductance | layer IG | "
    )
    head += "an H200 could | processes on it | prompts/s, one H200 | eight | a hundred |"
    lines = [head, "|---" * 11 + "|"]
    for shape in SHAPES:
        made, room = cost(shape, tokens), ROOM * MEMORY
        held = 1.2 * shape.weights * HALF  # a fifth more, for the work
        chips = max(1, math.ceil(held / room))
        processes = min(CORES, int(room // held)) if chips == 1 else 1
        could = 1 / seconds(shape, tokens, BATCH)  # of several chips, one works at a time
        rate = min(could, processes / beside) / chips
        one = f"{rate:,.0f}" if chips == 1 else f"(needs {chips})"
        lines.append(
            f"| {shape.name} | {shape.weights * HALF / 1e9:.1f} GB | {_ops(made.quick)} | "
            f"{made.head / made.quick:.0%} | {_ops(made.conductance)} | {_ops(made.layer_ig)} | "
            f"{could:,.0f} | {processes} | {one} | {8 * rate:,.0f} | {100 * rate:,.0f} |"
        )
    return lines


def _ops(count: float) -> str:
    return f"{count / 1e9:,.0f} G" if count < 1e12 else f"{count / 1e12:,.1f} T"


def model(shape: Shape, heads: int) -> Any:
    """Random weights at a shape, in float32."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=shape.vocabulary, hidden_size=shape.width, intermediate_size=shape.inner,
        num_hidden_layers=shape.blocks, num_attention_heads=heads,
        num_key_value_heads=heads * shape.keys // shape.width, tie_word_embeddings=shape.tied,
        max_position_embeddings=2048,
    )  # fmt: skip
    torch.manual_seed(0)
    return LlamaForCausalLM(config).eval()


def best(act: Callable[[], Any], times: int = 3) -> float:
    """The least seconds of some tries: what else runs only adds."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        found.append(time.perf_counter() - began)
    return min(found)


@torch.no_grad()
def predicted(shape: Shape, network: Any, tokens: int) -> float:
    """Seconds of the products of a prompt alone, each measured at its own shape: two passes of the blocks,
    and the head at all depths and twice at the end."""
    block = network.model.layers[0]
    linears = [m for m in block.modules() if isinstance(m, torch.nn.Linear)]
    rows = {m: torch.randn(tokens, m.in_features) for m in linears}
    # One block after another, as the model does: none of them stays in the processor's cache.
    blocks = [
        [(m, rows[n]) for m, n in zip(_linears(one), linears, strict=True)] for one in network.model.layers
    ]

    def products() -> None:
        for one in blocks:
            for linear, given in one:
                linear(given)

    ends = torch.randn(shape.blocks + 1, shape.width)
    return 2 * best(products) + best(lambda: network.lm_head(ends)) + 2 * best(
        lambda: network.lm_head(ends[:1])
    )  # fmt: skip


def _linears(block: Any) -> list[torch.nn.Linear]:
    return [m for m in block.modules() if isinstance(m, torch.nn.Linear)]


def check(tokens: int) -> list[str]:
    """The comparison of IG-Lens, the logit lens and DLA against the arithmetic, on this machine."""
    from lenses import comparison
    from lenses.decoder import Decoder
    from tests import tiny

    shape = SHAPES[1]
    network = model(shape, heads=32)
    decoder = Decoder(network, tiny.tokenizer(), "llama-3.2-1b-shapes")
    prompt = " ".join(f"w{3 + k % 60}" for k in range(tokens))
    names = ["ig-lens", "logit-lens", "dla"]
    found = best(lambda: comparison.compare(decoder, prompt, lenses=names))
    products = predicted(shape, network, tokens)
    speed = cost(shape, tokens).quick / products
    return [
        f"{shape.name}'s shapes in float32, {shape.weights / 1e9:.2f} billion weights (counted: "
        f"{sum(p.numel() for p in network.parameters()) / 1e9:.2f}), {tokens} tokens, "
        f"{torch.get_num_threads()} threads: products alone {products:.2f} s ({speed / 1e9:.0f} G operations "
        f"a second), three methods {found:.2f} s, ratio {found / products:.2f}"
    ]


def beside(rows: int = 512) -> float:
    """The seconds that a prompt costs a process beside the model: read, explained, kept and reported with a
    model whose products take next to nothing. They bound a process however fast its device is."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from lenses import prompts, registry, report
    from lenses.progress import finish
    from tests import tiny

    texts = "".join(f"{' '.join(f'w{3 + (k * 7 + j) % 60}' for j in range(8))}\n" for k in range(rows))
    listed = prompts.read(f"prompt\n{texts}".encode(), "list.csv")
    lenses = [registry.get(name) for name in ("ig-lens", "logit-lens", "dla")]
    with TemporaryDirectory() as folder:
        began = time.perf_counter()
        finish(report.making(tiny.decoder("llama"), listed, lenses, Path(folder)))
        return (time.perf_counter() - began) / rows


def main() -> None:
    tokens = int(sys.argv[1]) if len(sys.argv) > 1 else TOKENS
    taken = beside()
    print("\n".join(table(tokens, taken)), flush=True)
    said = f"beside the model {1000 * taken:.1f} ms a prompt: {1 / taken:.0f} prompts/s a process"
    print("\n" + "\n".join([*check(tokens), said]))


if __name__ == "__main__":
    main()
