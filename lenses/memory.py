"""How large a model is, before it is loaded: from the catalog, its files' headers, or its configuration."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path

from lenses import catalog
from lenses.catalog import MODELS
from lenses.errors import UnknownModel


def parameters(name: str) -> int | None:
    """How many weights a model has; None for a Hub model that is not in the catalog.

    Reads headers only: never a weight, and nothing from the network (`loading.weights` asks the Hub
    for a configuration). Raises `UnknownModel`.
    """
    source = catalog.find(name)
    for model in MODELS:
        if name in (model.name, model.hub):
            return model.weights
    if source.gguf:
        return _gguf(source.gguf)
    if source.folder:
        return sum(_safetensors(path) for path in source.folder.glob("*.safetensors"))
    return None


def _safetensors(path: Path) -> int:
    """The weights that a safetensors file names in its header (its length, then JSON)."""
    try:
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > 100 << 20:
                raise ValueError("its header is too long")
            header = json.loads(file.read(length))
        shapes = [entry["shape"] for key, entry in header.items() if key != "__metadata__"]
        return sum(math.prod(shape) for shape in shapes)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise UnknownModel(f"{path} can't be read as safetensors: {error}") from error


def _gguf(path: Path) -> int:
    from gguf import GGUFReader

    try:
        return sum(int(tensor.n_elements) for tensor in GGUFReader(path).tensors)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise UnknownModel(f"{path.name} can't be read as GGUF: {error}") from error
