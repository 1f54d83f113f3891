"""A text file → windows of tokens, most to fit on and some held out, the same for the same seed.

Windows are as long as a prompt may be. Stretches of neighbouring windows are held out together, since a
window half of whose sentences were fitted on is no fair test.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from lenses.decoder import Decoder
from lenses.errors import BadCorpus
from lenses.progress import Progress
from lenses.tokens import encode, plain_ids

LENGTH = 128
"""Tokens in a window, where the model has places for so many."""

STRETCH, HELD = 8, 16
"""Neighbouring windows that go together; one stretch of so many is held out."""

LEAST = 16
"""Windows without which nothing can be fitted and tested."""

MOST = 4_000_000
"""Tokens that are read of a corpus at most: more than any fit takes."""

PIECE = 1 << 20
"""Characters that are tokenised at once."""


@dataclass(frozen=True)
class Corpus:
    """The windows to fit on, in the order in which they are taken, and those held out.

    The first position of each is left out of every fit and loss: its state is an outlier, a hundred times
    larger than others, that all prompts share.
    """

    fit: Int[Tensor, "window position"]
    held: Int[Tensor, "held position"]
    record: dict[str, Any]
    """Its name, sha256 and numbers of characters and tokens."""


def reading(path: Path, decoder: Decoder, seed: int) -> Generator[Progress, None, Corpus]:
    """The corpus in a UTF-8 text file; raises `BadCorpus` for another encoding and for too few tokens."""
    yield Progress(f"reading {path.name}")
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    begin = _begin(decoder)
    length = min(LENGTH, decoder.positions.tokens or LENGTH) - len(begin)
    ids: list[int] = []
    characters = 0
    for piece in _pieces(path):
        ids += plain_ids(decoder.tokenizer, piece)
        characters += len(piece)
        yield Progress(f"reading {path.name}", len(ids), MOST)
        if len(ids) >= MOST:
            break
    count = min(len(ids), MOST) // length
    if count < LEAST:
        raise BadCorpus(
            f"{path.name} has {len(ids)} tokens, and a fit needs at least {LEAST * length}, better some "
            "hundred thousand: give a longer text"
        )
    windows = torch.tensor(ids[: count * length]).reshape(count, length)
    windows = torch.cat([torch.tensor(begin, dtype=torch.long).expand(count, -1), windows], dim=1)
    fit, held = _split(count, random.Random(seed))
    record = {"name": path.name, "sha256": digest, "characters": characters, "tokens": count * length}
    return Corpus(windows[fit], windows[held], record)


def _begin(decoder: Decoder) -> list[int]:
    """What the tokenizer puts before every prompt."""
    with_special, plain = encode(decoder.tokenizer, "a").ids, plain_ids(decoder.tokenizer, "a")
    return with_special[: max(0, len(with_special) - len(plain))] if with_special[-1:] == plain[-1:] else []


def _pieces(path: Path) -> Generator[str, None, None]:
    with open(path, encoding="utf-8") as file:
        try:
            while piece := file.read(PIECE):
                yield piece
        except UnicodeDecodeError as error:
            raise BadCorpus(
                f"{path.name} is no UTF-8 text (byte {error.object[error.start]:#04x} does not fit): save it "
                "as UTF-8"
            ) from error


def _split(count: int, draw: random.Random) -> tuple[list[int], list[int]]:
    """Windows to fit on and windows held out, each in random order."""
    size = min(STRETCH, count // LEAST)
    stretches = [list(range(start, min(start + size, count))) for start in range(0, count, size)]
    draw.shuffle(stretches)
    aside = max(1, len(stretches) // HELD)
    held, fit = ([*itertools.chain(*part)] for part in (stretches[:aside], stretches[aside:]))
    draw.shuffle(fit)
    draw.shuffle(held)
    return fit, held
