"""Our two integrals along the input path against Captum's own calls at every depth."""

from __future__ import annotations

import numpy as np
import torch
from captum.attr import LayerIntegratedGradients

from lenses import registry
from lenses.decoder import Decoder
from lenses.question import Question, aim, read
from tests.benchmarks import texts
from tests.benchmarks.measuring import Row

STEPS = 20


def asked(decoder: Decoder, count: int) -> Question:
    return aim(decoder, read(decoder, texts.prompt(decoder, count)))


def conductance(decoder: Decoder, count: int) -> Row:
    """All depths from one sweep, against Captum's call at every depth."""
    question = asked(decoder, count)

    def run(engine: str) -> np.ndarray:
        lens = registry.get("conductance", engine=engine, steps=STEPS)
        return lens.attribute(decoder, question.trace, question.target).positions

    size = f"{decoder.blocks} depths, {STEPS} steps, {count} tokens"
    what = f"conductance, {size}: one sweep / Captum's LayerConductance looped"
    return Row(what, lambda: run("sweep"), lambda: run("captum"), 1e-5, runs=1)


def layer_ig(decoder: Decoder, count: int) -> Row:
    """Integrals that start at each depth, against Captum on the Hugging Face model, block by block."""
    question = asked(decoder, count)
    end = decoder.embed(question.trace.ids)[None]
    start = end.mean(dim=1, keepdim=True).expand_as(end)

    def ours() -> np.ndarray:
        lens = registry.get("layer-ig", steps=STEPS)
        return lens.attribute(decoder, question.trace, question.target).positions

    def f(inputs: torch.Tensor) -> torch.Tensor:
        logits = decoder.model(inputs_embeds=inputs, use_cache=False, logits_to_keep=1).logits
        return logits[:, -1].softmax(-1)[:, question.target.token]

    def peer() -> np.ndarray:
        made = []
        for block in decoder.model.model.layers:
            found = LayerIntegratedGradients(f, block).attribute(
                end, start, n_steps=STEPS, method="gausslegendre", attribute_to_layer_input=False
            )
            made.append(found[0].detach().double().sum(dim=-1).numpy())
        return np.array(made)

    size = f"{decoder.blocks} depths, {STEPS} steps, {count} tokens"
    what = f"layer IG, {size}: the blocks after each depth / Captum's LayerIntegratedGradients looped"
    note = "sums over the width"
    return Row(what, ours, peer, 1e-3, runs=1, note=note)
