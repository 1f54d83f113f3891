"""Where a path starts: named, and always shown with the value that it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lenses import readout
from lenses.decoder import Decoder
from lenses.errors import BadOption, NonFinite
from lenses.tokens import plain_ids
from lenses.trace import Trace

Name = Literal["embedding", "mean", "zero", "token", "end-of-text", "corpus"]

PLAIN = ("embedding", "mean", "zero")
"""The baselines that every model and every prompt have, without a choice to make."""

LONGEST = 512
"""Tokens of a corpus that are averaged, at most, from its beginning."""


def residual(
    name: str, decoder: Decoder, trace: Trace, position: int, token: int = 0, corpus: str | None = None
) -> Float[Tensor, " width"]:
    """The residual vector from which the IG-Lens path starts: a state at depth 0, or zeros.

    `embedding` is that of the token itself; `mean` the prompt's; `token` and `end-of-text` that of
    another token which stands in its place; `corpus` the mean over the first tokens of a text (that of
    `sample` by default). Both means leave out the first position, whose state is an outlier a hundred
    times larger in most models; a prompt of one token has only that.

    Raises `BadOption` for a name that is none, a token outside the vocabulary, a tokenizer without an
    end-of-text token and a corpus of fewer than two tokens.
    """
    if name == "embedding":
        return trace[0][position]
    if name == "mean":
        return trace[0][1:].mean(0) if trace.positions > 1 else trace[0][0]
    if name == "zero":
        return torch.zeros_like(trace[0][position])
    if name == "token":
        return _repeated(decoder, trace, _known(decoder, token))[position]
    if name == "end-of-text":
        return _repeated(decoder, trace, end_of_text(decoder))[position]
    if name == "corpus":
        return _averaged(decoder, trace, sample() if corpus is None else corpus)
    raise BadOption(f"there is no baseline {name!r}: choose {', '.join(get_args(Name))}")


def end_of_text(decoder: Decoder) -> int:
    """The id of the token that ends a text; raises `BadOption` for a tokenizer without one."""
    token = decoder.tokenizer.eos_token_id
    if token is None:
        raise BadOption("this model's tokenizer has no end-of-text token: choose another baseline")
    return _known(decoder, int(token))


def sample() -> str:
    """The text that is averaged where none is given: two old American ones, in the public domain."""
    return files("lenses").joinpath("corpus.txt").read_text(encoding="utf-8")


def starts(decoder: Decoder, wanted: Sequence[tuple[Trace, int, int]]) -> list[dict[str, float]]:
    """What the path of each (trace, position, token) starts at, by plain baseline; kept with the trace.

    All that is not known by now is read at once. A baseline that reads as no number is left out: a
    model need not be able to read zeros.
    """
    kept = [
        trace.memo.setdefault(decoder, {}).setdefault(_key(trace, *asked), {}) for trace, *asked in wanted
    ]
    missing = [
        (known, name, residual(name, decoder, trace, position), token)
        for known, (trace, position, token) in zip(kept, wanted, strict=True)
        for name in PLAIN
        if name not in known
    ]
    if missing:
        _read(decoder, missing)
    return [{name: known[name] for name in PLAIN if known[name] is not None} for known in kept]


def _read(decoder: Decoder, missing: list[tuple[dict[str, float | None], str, Tensor, int]]) -> None:
    rows = torch.stack([row for _, _, row, _ in missing])
    tokens = torch.tensor([token for *_, token in missing])
    try:
        found: list[float | None] = list(map(float, readout.read(decoder, rows, tokens).probability))
    except NonFinite:
        if len(missing) > 1:
            for one in missing:
                _read(decoder, [one])
            return
        found = [None]
    for (known, name, *_), value in zip(missing, found, strict=True):
        known[name] = value


def embedding(
    name: str, decoder: Decoder, ids: Int[Tensor, " position"], token: int
) -> Float[Tensor, "position embedding"]:
    """The input embeddings from which an input path starts, the same at every position.

    A start of zeros does not converge on models with RMSNorm: their readout is scale-free, so all
    of the change happens in the first instant.
    """
    real = decoder.embed(ids)
    if name == "mean":
        return real.mean(0).expand_as(real)
    if name == "zero":
        return torch.zeros_like(real)
    if name == "token":
        return decoder.embed(torch.full_like(ids, _known(decoder, token)))
    raise BadOption(f"there is no baseline {name!r}: choose mean, zero or token")


def _known(decoder: Decoder, token: int) -> int:
    if not 0 <= token < decoder.embeddings:
        raise BadOption(f"the baseline token {token} is outside 0…{decoder.embeddings - 1}")
    return token


def _repeated(decoder: Decoder, trace: Trace, token: int) -> Float[Tensor, "position width"]:
    """Depth 0 of a text as long as the prompt in which every token is this one."""
    return _once(
        decoder, trace, ("repeated", token), lambda: decoder.enter(torch.full_like(trace.ids, token))
    )


def _averaged(decoder: Decoder, trace: Trace, corpus: str) -> Float[Tensor, " width"]:
    ids = plain_ids(decoder.tokenizer, corpus)[: min(LONGEST, decoder.positions.tokens or LONGEST)]
    if len(ids) < 2:
        raise BadOption(
            f"the corpus has {len(ids)} tokens, and the first is left out: give a text of some sentences"
        )
    return _once(
        decoder, trace, ("averaged", corpus), lambda: decoder.enter(decoder.checked(ids))[1:].mean(0)
    )


def _once(decoder: Decoder, trace: Trace, what: tuple[Any, ...], make: Callable[[], Tensor]) -> Tensor:
    """A state that every position of a trace starts from, made for the first."""
    kept = trace.memo.setdefault(decoder, {})
    key = (*what, trace.residual.device)
    if key not in kept:
        kept[key] = make().to(trace.residual.device)
    found: Tensor = kept[key]
    return found


def _key(trace: Trace, position: int, token: int) -> tuple[Any, ...]:
    return "starts", position, token, trace.residual._version
