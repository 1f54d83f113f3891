"""Where a path starts: named, and always shown with the value that it reads."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lenses.decoder import Decoder
from lenses.errors import BadOption
from lenses.trace import Trace


def residual(name: str, trace: Trace, position: int) -> Float[Tensor, " width"]:
    """The residual vector from which the IG-Lens path starts.

    `mean` leaves out the first position, whose state is an outlier a hundred times larger in most
    models; a prompt of one token has only that.
    """
    if name == "embedding":
        return trace[0][position]
    if name == "mean":
        return trace[0][1:].mean(0) if trace.positions > 1 else trace[0][0]
    if name == "zero":
        return torch.zeros_like(trace[0][position])
    raise BadOption(f"there is no baseline {name!r}: choose embedding, mean or zero")


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
        if not 0 <= token < decoder.embeddings:
            raise BadOption(f"the baseline token {token} is outside 0…{decoder.embeddings - 1}")
        return decoder.embed(torch.full_like(ids, token))
    raise BadOption(f"there is no baseline {name!r}: choose mean, zero or token")
