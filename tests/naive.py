"""The slow, obvious twin of every formula: no chunks, no batches, no `resume`.

Blocks are replaced in a deep copy of the model, so nothing here shares a line with `lenses`.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from captum.attr import IntegratedGradients
from torch import nn

from lenses.layout import layouts


class Put(nn.Module):
    """A block that hands back a given state, in the manner of the block it stands for."""

    def __init__(self, block: nn.Module, state: torch.Tensor, first: bool) -> None:
        super().__init__()
        self.block, self.state, self.first = block, state, first

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("block"), name)

    def forward(self, hidden, *args, **kwargs):
        if self.first:
            return self.block(self.state.clone(), *args, **kwargs)
        output = self.block(hidden, *args, **kwargs)
        if isinstance(output, torch.Tensor):
            return self.state.clone()
        return type(output)([self.state.clone(), *output[1:]])


def resumed(model: nn.Module, ids: list[int], depth: int, state: torch.Tensor) -> torch.Tensor:
    """Logits of the whole prompt when `state` [position, width] stands at `depth`."""
    broken = copy.deepcopy(model)
    path = layouts(model)[0].blocks
    blocks = broken.get_submodule(path)
    place = max(depth - 1, 0)
    blocks[place] = Put(blocks[place], state[None], first=depth == 0)
    return broken(input_ids=torch.tensor([ids])).logits[0]


def states(model: nn.Module, ids: list[int]) -> list[torch.Tensor]:
    """h[0] … h[L] of one prompt, by forward hooks on a copy."""
    watched = copy.deepcopy(model)
    seen: list[torch.Tensor] = []
    blocks = watched.get_submodule(layouts(model)[0].blocks)
    blocks[0].register_forward_pre_hook(
        lambda _, args, kwargs: seen.append((args[0] if args else kwargs["hidden_states"])[0].clone()),
        with_kwargs=True,
    )
    for block in blocks:
        block.register_forward_hook(
            lambda _, __, output: seen.append(
                (output if isinstance(output, torch.Tensor) else output[0])[0].clone()
            )
        )
    with torch.no_grad():
        watched(input_ids=torch.tensor([ids]))
    return seen


def levels(model: nn.Module, ids: list[int], token: int) -> np.ndarray:
    """Probability of `token` after the last position, read at each depth, one whole run a depth."""
    count = len(states(model, ids)) - 1
    with torch.no_grad():
        return np.array(
            [
                float(resumed(model, ids, count, state).double().softmax(-1)[-1, token])
                for state in states(model, ids)
            ]
        )


def conductance(decoder, ids: list[int], token: int, steps: int) -> np.ndarray:
    """Conductance totals at depths 1…L on Captum's nodes, one interpolated prompt at a time."""
    nodes = (1 + np.polynomial.legendre.leggauss(steps + 1)[0]) / 2
    real = decoder.embed(torch.tensor(ids))
    start = real.mean(0).expand_as(real)
    runs, slopes = [], []
    for node in nodes:
        at = (start + float(node) * (real - start)).requires_grad_()
        found, logits = decoder.flow(at[None])
        chance = logits[0, -1].softmax(-1)[token]
        slopes.append([slope[0] for slope in torch.autograd.grad(chance, found[1:])])
        runs.append([state[0].detach() for state in found[1:]])
    totals = [
        sum(float((slopes[s][d] * (runs[s + 1][d] - runs[s][d])).sum()) for s in range(steps))
        for d in range(len(runs[0]))
    ]
    return np.array(totals)


def layer_ig(model: nn.Module, ids: list[int], token: int, steps: int) -> np.ndarray:
    """Layer IG totals at depths 1…L by Captum's `IntegratedGradients`, one whole run a point."""
    real = states(model, ids)
    embedding = model.get_input_embeddings()
    embedded = embedding(torch.tensor([ids]))[0].detach()
    plain = copy.deepcopy(model)
    mean = embedded.mean(0).expand_as(embedded)

    class Mean(nn.Module):
        def forward(self, given):
            return mean[None]

    plain.set_input_embeddings(Mean())
    base = states(plain, ids)
    totals = []
    for depth in range(1, len(real)):

        def f(batch, depth=depth):
            rows = [resumed(model, ids, depth, state).softmax(-1)[-1, token] for state in batch]
            return torch.stack(rows)

        found = IntegratedGradients(f).attribute(
            real[depth][None], base[depth][None], n_steps=steps, internal_batch_size=steps
        )
        totals.append(float(found.double().sum()))
    return np.array(totals)
