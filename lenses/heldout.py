"""The judge of a fit: states of text that is never fitted on, and the best translators by their losses.

Law: `Best` never gets worse at any depth. A loss is KL(model's final distribution ‖ reading) in nats, the
mean over held-out positions, exact over the whole vocabulary.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from lenses.corpus import Corpus
from lenses.decoder import Decoder
from lenses.moments import states
from lenses.progress import Progress

ROWS, WINDOWS = 256, 16
"""Held-out positions on which losses are taken, and the windows that they are spread over."""

MEMORY = 256 << 20
"""Bytes that their states may take."""


@dataclass(frozen=True)
class Best:
    """At each depth the translator with the least loss so far, and that loss in nats."""

    matrix: Float[Tensor, "depth width more"]
    loss: Float[ndarray, " depth"]

    def or_better(self, matrix: Float[Tensor, "depth width more"], loss: Float[ndarray, " depth"]) -> Best:
        """The better of both at each depth."""
        better = loss < self.loss
        chosen = torch.where(torch.from_numpy(better)[:, None, None], matrix, self.matrix)
        return Best(chosen, np.where(better, loss, self.loss))


def reading(decoder: Decoder, corpus: Corpus) -> Generator[Progress, None, list[Float[Tensor, "row width"]]]:
    """The states at depths 0…L of held-out positions, spread over the windows."""
    windows = corpus.held[:WINDOWS]
    rows = min(ROWS, max(1, MEMORY // (4 * decoder.width * (decoder.blocks + 1))))
    parts = []
    for k, window in enumerate(windows):
        yield Progress("reading held-out text", k, len(windows))
        found = states(decoder, window[None])
        places = torch.linspace(0, len(found[0]) - 1, min(len(found[0]), -(-rows // len(windows)))).long()
        parts.append([state[places] for state in found])
    return [torch.cat(depth) for depth in zip(*parts, strict=True)]
