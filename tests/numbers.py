"""Every kind of number that is made of a decoder, by name, so that two decoders can be held together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from lenses import ablation, halves, padded, readout, registry
from lenses.decoder import Decoder
from lenses.errors import UnsupportedLens
from lenses.target import Target
from tests import tiny

OTHERS = ([7, 30], [12, 33, 6, 51])
LENSES: dict[str, tuple[str, dict[str, object]]] = {
    "logit-lens": ("logit-lens", {}),
    "ig-lens": ("ig-lens", {}),
    "ig-lens, halves": ("ig-lens", {"halves": True}),
    "ig-lens, gradient": ("ig-lens", {"estimator": "gradient", "steps": 4}),
    "ig-lens, log-odds": ("ig-lens", {"readout": "log-odds", "against": "w9"}),
    "dla": ("dla", {}),
    "conductance": ("conductance", {"steps": 4}),
    "conductance, observed": ("conductance", {"steps": 4, "estimator": "observed"}),
    "conductance, captum": ("conductance", {"steps": 4, "engine": "captum"}),
    "layer-ig": ("layer-ig", {"steps": 4}),
    "layer-ig, captum": ("layer-ig", {"steps": 4, "engine": "captum"}),
    "ablation": ("ablation", {}),
}
SLOPES = ("ig-lens, gradient", "conductance", "layer-ig")
"""How the names begin of what is made of gradients."""


def exact(decoder: Decoder, ids: list[int] = tiny.IDS) -> dict[str, torch.Tensor]:
    """What may not differ in a bit: states, put back in, and the model's own logits."""
    trace = decoder.trace(ids)
    with torch.no_grad():
        found = {
            f"resume {depth}": decoder.resume(depth, trace[depth]) for depth in range(decoder.blocks + 1)
        }
    found |= {"own": decoder.own(ids), "readout": decoder.readout(trace[-1]), "residual": trace.residual}
    found["given to the head"] = decoder.before_head(trace[-1])
    return {name: value.cpu() for name, value in found.items()}


def passes(decoder: Decoder, ids: list[int] = tiny.IDS) -> dict[str, Callable[[], np.ndarray]]:
    """What is made of many passes at once."""
    trace, target = decoder.trace(ids), Target(len(ids) - 1, tiny.TARGET)

    def wave() -> np.ndarray:
        with torch.no_grad():
            depths = range(decoder.blocks + 1)
            return decoder.wave({depth: trace[depth][None] for depth in depths}).cpu().double().numpy()

    def together() -> np.ndarray:
        rows = [decoder.checked(some) for some in (ids, *OTHERS)]
        made = [one.residual.cpu().double().numpy().ravel() for one in padded.traces(decoder, rows)]
        return np.concatenate(made)

    return {
        "levels": lambda: readout.level(decoder, trace.residual[:, -1], tiny.TARGET),
        "wave": wave,
        "padded": together,
        "skipped": lambda: ablation.skipped(decoder, trace, target),
        "skipped at the last": lambda: ablation.skipped(decoder, trace, target, last=True),
        "MLPs skipped": lambda: ablation.skipped(decoder, trace, target, half="mlp"),
        "middles": lambda: halves.middle(decoder, trace).states.cpu().double().numpy(),
    }


def lenses(decoder: Decoder, ids: list[int] = tiny.IDS) -> dict[str, Callable[[], np.ndarray]]:
    """What each lens gives, by its options."""
    trace, target = decoder.trace(ids), Target(len(ids) - 1, tiny.TARGET)

    def one(name: str, options: dict[str, object]) -> np.ndarray:
        made = registry.get(name, **options).attribute(decoder, trace, target)
        return np.concatenate([made.values] if made.halves is None else [made.values, made.halves.ravel()])

    return {key: lambda given=given: one(*given) for key, given in LENSES.items()}


def everything(decoder: Decoder) -> dict[str, np.ndarray]:
    """All of it; nothing of a lens that the model can't have."""

    def made(make: Callable[[], np.ndarray]) -> np.ndarray:
        try:
            return make()
        except UnsupportedLens:
            return np.zeros(0)

    return {name: made(make) for name, make in (passes(decoder) | lenses(decoder)).items()}


def apart(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, as a part of the largest number expected; infinite where one has a gap that
    the other has not."""
    if found.shape != expected.shape or (np.isnan(found) != np.isnan(expected)).any():
        return float("inf")
    if np.isnan(expected).all():  # also where there is none
        return 0.0
    return float(np.nanmax(np.abs(found - expected)) / max(np.nanmax(np.abs(expected)), 1e-30))


def spread(family: str, elsewhere: dict[str, Any], home: Any = "cpu") -> dict[str, Any]:
    """A device map: each block and each part beside them at home, but for those named by their ends."""
    model, blocks = tiny.model(family), tiny.decoder(family)._layout.blocks

    def walked(prefix: str, module: torch.nn.Module) -> list[str]:
        names: list[str] = []
        for child, inner in module.named_children():
            name = f"{prefix}{child}"
            deeper = name == blocks or blocks.startswith(f"{name}.")
            names += walked(f"{name}.", inner) if deeper else [name]
        return names

    return {
        name: next((place for end, place in elsewhere.items() if name.endswith(end)), home)
        for name in walked("", model)
    }
