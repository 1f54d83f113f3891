"""Our map and readings against those of tuned-lens and TransformerLens, on the very same weights.

Each peer is imported when its row is made; what can't be imported is said in its row. Targets are
found before anything is timed; both sides' times include the forward pass.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch

from lenses import readout
from lenses.decoder import Decoder
from tests.benchmarks import texts
from tests.benchmarks.measuring import Missing, Row
from tests.benchmarks.rows import mapped


@contextmanager
def importing(package: str) -> Iterator[None]:
    """Turns a failed import of a peer into the sentence for its row."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise Missing(f"{package} is not installed: pip install 'lensledger[bench]'") from error
    except ImportError as error:
        raise Missing(f"{package} is installed and can't be imported: {error}") from error


def tuned_lens(decoder: Decoder, count: int) -> Row:
    """A map against tuned-lens's own trajectory with its logit lens.

    tuned-lens 0.2 asks TransformerLens for a class that its version 4 no longer has. Where both are
    installed it is told, as its own code tells itself, that TransformerLens is not.
    """
    with importing("tuned-lens"):
        from tuned_lens import model_surgery
        from tuned_lens.nn.lenses import LogitLens
        from tuned_lens.plotting import PredictionTrajectory
    with mock.patch.object(model_surgery, "_transformer_lens_available", False):
        lens = LogitLens.from_model(decoder.model)
    prompt = texts.prompt(decoder, count)
    wanted = np.array(texts.targets(decoder, prompt.ids))

    def peer() -> np.ndarray:
        made = PredictionTrajectory.from_lens_and_model(lens, decoder.model, prompt.ids)
        chosen = np.take_along_axis(made.log_probs, wanted[None, :, None], axis=-1)
        return np.exp(chosen[..., 0].astype(np.float64))

    what = f"map of {count} tokens / tuned-lens: PredictionTrajectory.from_lens_and_model with LogitLens"
    return Row(what, mapped(decoder, prompt), peer)


def transformer_lens(decoder: Decoder, count: int) -> Row:
    """A map against TransformerLens's accumulated residuals through its final norm and unembedding."""
    prompt = texts.prompt(decoder, count)
    wanted = torch.tensor(texts.targets(decoder, prompt.ids))
    model = bridge(decoder)

    @torch.no_grad()
    def peer() -> np.ndarray:
        states = cached(model, decoder, prompt.ids).accumulated_resid(apply_ln=True)
        chance = model.unembed(states[:, 0]).softmax(-1)
        return chance.gather(-1, wanted.expand(len(chance), -1)[..., None])[..., 0].numpy()

    what = f"map of {count} tokens / TransformerLens: accumulated_resid, apply_ln, unembed, softmax at once"
    return Row(what, mapped(decoder, prompt), peer)


def readings(decoder: Decoder, count: int) -> Row:
    """Probability, rank and entropy at every depth and position, against TransformerLens's own tool."""
    prompt = texts.prompt(decoder, count)
    wanted = texts.targets(decoder, prompt.ids)
    model = bridge(decoder)
    with importing("transformer-lens"):
        from transformer_lens.tools.analysis import logit_lens

    def together(chance: np.ndarray, rank: np.ndarray, entropy: np.ndarray) -> np.ndarray:
        """All three as parts of the most that they can be; `rank` counts from 0, as the peer does."""
        return np.stack([chance, rank / decoder.vocabulary, entropy / np.log(decoder.vocabulary)])

    def ours() -> np.ndarray:
        rows = decoder.trace(prompt.ids).residual.flatten(0, 1)
        tokens = torch.tensor(wanted).repeat(decoder.blocks + 1)
        found = readout.read(decoder, rows, tokens, detail=True, fast=True)
        return together(found.probability, found.rank - 1, found.entropy)

    def peer() -> np.ndarray:
        cache, each = cached(model, decoder, prompt.ids), torch.tensor([wanted])
        found = logit_lens(model, cache=cache, positions=None, targets=each, return_type="probs")
        parts = found.values, found.readout.target_ranks, found.readout.entropy
        return together(*(part.flatten().double().numpy() for part in parts))

    what = f"probability, rank, entropy at every depth of {count} tokens / TransformerLens: logit_lens"
    return Row(what, ours, peer, note="ranks as parts of the vocabulary, entropies of their maximum")


def bridge(decoder: Decoder) -> Any:
    """TransformerLens's model around a copy of ours, which it changes in place; nothing is fetched.

    With its default weights, unfolded, and its own choice of attention (eager).
    """
    with importing("transformer-lens"):
        from transformer_lens.model_bridge import TransformerBridge
    made = TransformerBridge.boot_transformers(
        decoder.name, hf_model=copy.deepcopy(decoder.model), tokenizer=decoder.tokenizer, device="cpu"
    )
    return made.eval()


@torch.no_grad()
def cached(model: Any, decoder: Decoder, ids: list[int]) -> Any:
    """The cache of one forward pass that keeps the residuals at all depths and nothing else."""
    last = f"blocks.{decoder.blocks - 1}.hook_resid_post"
    return model.run_with_cache(
        torch.tensor([ids]), names_filter=lambda name: name.endswith("hook_resid_pre") or name == last
    )[1]
