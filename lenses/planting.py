"""A small Llama whose weights are set: what each block writes, and that nothing else reads or writes it.

Law: the state is a sum of four orthogonal spaces. `words` is written by the embedding alone, `heads` is
all that the head reads, `codes` only a translating block reads, and `noise` none (though all four steer
from where other noise is fetched). A block is given a job, or it writes noise; after the prompt's last
position it adds exactly what its size says. Norms have random weights, which what reads through them takes
out again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from lenses.decoder import Decoder

WORDS = 16
"""Size of the vocabulary, and of each space."""

SUBJECTS = 8
"""How many words, the first ones, have an answer; the others are fillers."""

WIDTH = 4 * WORDS
BLOCKS = 8
SHARP = 25.0
"""How sharply a router looks at the subject: it gives it all but e⁻²⁰ of its attention."""

EMBEDDING = 2.0
"""The size of what the embedding writes, beside 1 for a block: a block more or less then changes the size
of the state, and what the norms make of it, by an eighth at most."""

HEAD = 2.6
"""The head's scale: after 8 blocks an answer of size 1 has a logit of about 6."""

SLOW = WIDTH // 2 - 1
"""The dimension of a query that rotary positions turn least: by 10⁻⁸ over a prompt."""


@dataclass(frozen=True)
class Spaces:
    """Four orthogonal spaces, one direction a word in each of the first three."""

    words: Float[Tensor, "word width"]
    heads: Float[Tensor, "word width"]
    codes: Float[Tensor, "word width"]
    noise: Float[Tensor, "direction width"]


@dataclass(frozen=True)
class Lookup:
    """An MLP that writes `writes[k]` where its input has `reads[k]`, at `size` after the last position."""

    reads: Float[Tensor, "entry width"]
    writes: Float[Tensor, "entry width"]
    size: float = 1.0


@dataclass(frozen=True)
class Route:
    """Attention from fillers to the subject, which writes `writes[k]` where that is subject k."""

    writes: Float[Tensor, "subject width"]


def spaces(draw: np.random.Generator) -> Spaces:
    """Four spaces in a random rotation of the residual."""
    rotation = np.linalg.qr(draw.standard_normal((WIDTH, WIDTH)))[0]
    return Spaces(*(_tensor(rows) for rows in np.split(rotation, 4)))


def build(
    draw: np.random.Generator,
    among: Spaces,
    jobs: Mapping[int, Lookup | Route],
    ids: Sequence[int],
    name: str = "",
) -> Decoder:
    """A decoder whose blocks do their jobs, and noise where they have none; sizes hold on this prompt."""
    model = _blank()
    with torch.no_grad():
        for norm in (m for m in model.modules() if type(m).__name__ == "LlamaRMSNorm"):
            norm.weight.copy_(_tensor(draw.uniform(0.5, 1.5, WIDTH)))
        model.model.embed_tokens.weight.copy_(EMBEDDING * among.words)
        model.lm_head.weight.copy_(HEAD * among.heads / model.model.norm.weight)
        hidden = model.model.embed_tokens(torch.tensor([list(ids)]))
        angles = model.model.rotary_emb(hidden, torch.arange(len(ids))[None])
        for number, block in enumerate(model.model.layers):
            sizes = _weights(block, jobs.get(number), among, draw)
            hidden = _sized(block, hidden, angles, *sizes)
    return Decoder(model, tokenizer(), name, source="planted")


def tokenizer() -> Any:
    """One token a word: s0 … s7 are subjects, f8 … f14 and [UNK] fillers."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    names = [f"{'s' if id < SUBJECTS else 'f'}{id}" for id in range(WORDS - 1)] + ["[UNK]"]
    words = Tokenizer(WordLevel({name: id for id, name in enumerate(names)}, unk_token="[UNK]"))
    words.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", pad_token="[UNK]")


def _blank() -> Any:
    """The model before any weight is set; the user's random state is left as it was."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=WORDS, hidden_size=WIDTH, intermediate_size=WORDS, num_hidden_layers=BLOCKS,
        num_attention_heads=1, num_key_value_heads=1, max_position_embeddings=32, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1e9},
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        return LlamaForCausalLM(config).float().eval()


def _weights(
    block: Any, job: Lookup | Route | None, among: Spaces, draw: np.random.Generator
) -> tuple[float, float]:
    """Set a block's weights; the sizes that its attention and its MLP are to write."""
    attention = block.self_attn
    # Attention and MLP write into halves of the noise, so that their sizes make a right triangle.
    moved, looked_up = (_normal(draw, WORDS, len(half)) @ half for half in among.noise.split(WORDS // 2))
    for linear in (attention.q_proj, attention.k_proj):
        linear.weight.copy_(_normal(draw, *linear.weight.shape) * WIDTH**-0.5)
    _placed(attention.v_proj, among.words / block.input_layernorm.weight, slice(WORDS))
    _placed(attention.o_proj, moved.T, (slice(None), slice(WORDS)))
    _look_up(block, job if isinstance(job, Lookup) else Lookup(among.words, looked_up))
    if isinstance(job, Route):
        _route(block, job, among)
        return 1.0, 0.0
    return (0.6, 0.8) if job is None else (0.0, job.size)


def _look_up(block: Any, job: Lookup) -> None:
    """A neuron an entry: silent (SiLU of 0) where its direction is not there."""
    rows, norm, mlp = len(job.reads), block.post_attention_layernorm, block.mlp
    for linear in (mlp.gate_proj, mlp.up_proj):
        _placed(linear, job.reads / norm.weight, slice(rows))
    _placed(mlp.down_proj, job.writes.T, (slice(None), slice(rows)))


def _route(block: Any, job: Route, among: Spaces) -> None:
    """Every filler asks for a subject; a subject hands on which one it is."""
    attention, norm = block.self_attn, block.input_layernorm
    subjects, fillers = (rows / norm.weight for rows in (among.words[:SUBJECTS], among.words[SUBJECTS:]))
    _placed(attention.q_proj, SHARP * fillers.sum(dim=0), SLOW)
    _placed(attention.k_proj, subjects.sum(dim=0), SLOW)
    _placed(attention.v_proj, subjects, slice(SUBJECTS))
    _placed(attention.o_proj, job.writes.T, (slice(None), slice(SUBJECTS)))


def _placed(linear: nn.Linear, rows: Tensor, where: Any) -> None:
    """These weights in one place of a layer, and zeros elsewhere."""
    linear.weight.zero_()
    linear.weight[where] = rows


def _sized(
    block: Any, hidden: Tensor, angles: tuple[Tensor, Tensor], attention: float, mlp: float
) -> Tensor:  # fmt: skip
    """The state after a block, once both of its parts write what they are to write."""
    given = block.self_attn(block.input_layernorm(hidden), position_embeddings=angles, attention_mask=None)
    hidden = hidden + _scaled(block.self_attn.o_proj, given[0], attention)
    given = block.mlp(block.post_attention_layernorm(hidden))
    return hidden + _scaled(block.mlp.down_proj, given, mlp)


def _scaled(last: nn.Linear, written: Tensor, size: float) -> Tensor:
    """What a part writes, by a last layer scaled so that this has `size` after the last position."""
    factor = size / written[0, -1].norm()
    last.weight.mul_(factor)
    return written * factor


def _normal(draw: np.random.Generator, *shape: int) -> Tensor:
    return _tensor(draw.standard_normal(shape))


def _tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)
