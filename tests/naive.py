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


class Around(nn.Module):
    """A block that stands for another one, and has its attributes."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("block"), name)


class Put(Around):
    """A block that hands back a given state, in the manner of the block it stands for."""

    def __init__(self, block: nn.Module, state: torch.Tensor, first: bool) -> None:
        super().__init__(block)
        self.state, self.first = state, first

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


def chance(logits: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    """The probability that the last positions of a prompt are followed by these tokens, one each."""
    found = logits[-len(tokens) :].softmax(-1)
    product = found[0, tokens[0]]
    for k in range(1, len(tokens)):
        product = product * found[k, tokens[k]]
    return product


def handed_out(parts: torch.Tensor, sizes: torch.Tensor, observed: float) -> np.ndarray:
    """Each unit's part and its portion of what all parts miss of the observed change, by position."""
    missing = observed - sum(float(part) for part in parts.flatten())
    whole = sum(float(size) for size in sizes.flatten())
    return np.array(
        [
            sum(float(part[k]) + missing * float(size[k]) / whole for k in range(len(part)))
            for part, size in zip(parts, sizes, strict=True)
        ]
    )


def conductance(decoder, ids: list[int], tokens: list[int], steps: int, observed=False) -> np.ndarray:
    """Conductance of each position at depths 1…L on Captum's nodes, one interpolated prompt at a time."""
    nodes = (1 + np.polynomial.legendre.leggauss(steps + 1)[0]) / 2
    real = decoder.embed(torch.tensor(ids))
    start = real.mean(0).expand_as(real)
    runs, slopes, levels = [], [], []
    for node in [0.0, *nodes, 1.0]:
        at = (start + float(node) * (real - start)).requires_grad_()
        found, logits = decoder.flow(at[None])
        level = chance(logits[0], tokens)
        slopes.append([slope[0].double() for slope in torch.autograd.grad(level, found[1:])])
        runs.append([state[0].detach().double() for state in found[1:]])
        levels.append(float(chance(logits[0].detach().double(), tokens)))
    totals = np.zeros((len(runs[0]), len(ids)))
    for d in range(len(totals)):
        changes = [runs[k + 1][d] - runs[k][d] for k in range(steps + 2)]
        if not observed:
            totals[d] = sum((slopes[k][d] * changes[k]).sum(-1).numpy() for k in range(1, steps + 1))
            continue
        for k, change in enumerate(changes):
            slope = (slopes[k][d] + slopes[k + 1][d]) / 2
            if k in (0, steps + 1):
                slope = slopes[1 if k == 0 else steps + 1][d]
            part = slope * change
            totals[d] += handed_out(part, part.abs(), levels[k + 1] - levels[k])
    return totals


def layer_ig(model: nn.Module, ids: list[int], tokens: list[int], steps: int, observed=False) -> np.ndarray:
    """Layer IG of each position at depths 1…L, one whole run a point; by Captum's `IntegratedGradients`
    where it is not made to sum to what was observed."""
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
    with torch.no_grad():
        ends = [
            float(chance(one(input_ids=torch.tensor([ids])).logits[0].double(), tokens))
            for one in (plain, model)
        ]
    totals = []
    for depth in range(1, len(real)):

        def f(batch, depth=depth):
            return torch.stack([chance(resumed(model, ids, depth, state), tokens) for state in batch])

        if not observed:
            found = IntegratedGradients(f).attribute(
                real[depth][None], base[depth][None], n_steps=steps, internal_batch_size=steps
            )
            totals.append(found[0].detach().double().sum(-1).numpy())
            continue
        change, parts = real[depth] - base[depth], []
        for node, weight in zip(*np.polynomial.legendre.leggauss(steps), strict=True):
            at = (base[depth] + (1 + float(node)) / 2 * change).requires_grad_()
            (slope,) = torch.autograd.grad(f(at[None])[0], at)
            parts.append(float(weight) / 2 * slope.double() * change)
        sizes = sum(part.abs() for part in parts)
        totals.append(handed_out(sum(parts), sizes, ends[1] - ends[0]))
    return np.array(totals)


ADDED = {
    "gpt2": "attn", "gpt_neo": "attn", "gptj": "attn", "gpt_bigcode": "attn", "codegen": "attn",
    "gpt_neox": "attention", "gpt_neox_sequential": "attention", "mpt": "attn", "bloom": "self_attention",
    "falcon_old": "self_attention", "falcon_new": "self_attention", "gemma2": "post_attention_layernorm",
    "gemma3": "post_attention_layernorm", "olmo2": "post_attention_layernorm",
    "glm4": "post_self_attn_layernorm", "hyperclovax": "post_norm1",
}  # fmt: skip
"""The module of a family's block whose output attention adds, `self_attn` where nothing is said."""


def middles(model: nn.Module, family: str, ids: list[int]) -> list[torch.Tensor | None]:
    """The state after attention in each block, by a forward hook on a copy, as the family's code has it."""
    watched = copy.deepcopy(model)
    seen: dict[int, torch.Tensor] = {}

    def keep(number: int):
        def hook(_, __, output):
            seen[number] = (output if isinstance(output, torch.Tensor) else output[0])[0].clone()

        return hook

    blocks = watched.get_submodule(layouts(model)[0].blocks)
    for number, block in enumerate(blocks):
        if (module := getattr(block, ADDED.get(family, "self_attn"), None)) is not None:
            module.register_forward_hook(keep(number))
    with torch.no_grad():
        watched(input_ids=torch.tensor([ids]))
    before, times = states(model, ids), getattr(model.config, "residual_multiplier", 1.0)
    if family == "bloom":  # its attention hands back the sum
        return [seen[number] for number in range(len(blocks))]
    return [before[k] + times * seen[k] if k in seen else None for k in range(len(blocks))]


class Adds(Around):
    """A block that adds something else to its input at the last positions."""

    def __init__(self, block: nn.Module, added: torch.Tensor, changed: int) -> None:
        super().__init__(block)
        self.added, self.changed = added, changed

    def forward(self, hidden, *args, **kwargs):
        before = hidden.clone()
        output = self.block(hidden, *args, **kwargs)
        state = (output if isinstance(output, torch.Tensor) else output[0]).clone()
        state[0, -self.changed :] = before[0, -self.changed :] + self.added
        return state if isinstance(output, torch.Tensor) else type(output)([state, *output[1:]])


SUBLAYERS = {
    "gpt2": ("attn", "mlp"), "llama": ("self_attn", "mlp"), "gptj": ("attn", "mlp"),
    "falcon_new": ("self_attention", "mlp"), "granite": ("self_attn", "mlp"),
    "gemma2": ("post_attention_layernorm", "post_feedforward_layernorm"), "mistral": ("self_attn", "mlp"),
    "jamba": ("self_attn", "feed_forward"),
}  # fmt: skip
"""The modules of a family's block whose outputs are what attention and the MLP add."""


def ablated(
    model: nn.Module,
    ids: list[int],
    blocks: list[int],
    changed: int,
    added: torch.Tensor | None = None,
    part: str | None = None,
) -> torch.Tensor:
    """Logits of the prompt when some blocks, or a part of each, add something else (nothing if None) at
    the last positions: each run of a whole broken copy."""
    broken = copy.deepcopy(model)
    every = broken.get_submodule(layouts(model)[0].blocks)
    times = getattr(model.config, "residual_multiplier", 1.0)
    for number in blocks:
        one = torch.zeros(1) if added is None else added[number]

        def say(_, __, output, one=one):
            said = (output if isinstance(output, torch.Tensor) else output[0]).clone()
            said = said.reshape(1, len(ids), -1)
            said[0, -changed:] = one / times
            return said if isinstance(output, torch.Tensor) else (said, *output[1:])

        if part is None:
            every[number] = Adds(every[number], one, changed)
        else:
            every[number].get_submodule(part).register_forward_hook(say)
    with torch.no_grad():
        return broken(input_ids=torch.tensor([ids])).logits[0]
