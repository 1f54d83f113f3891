"""Which weights a model has, in 64 hexadecimal digits: what is fitted on a model is refused by another.

Law: the same in float64, float32 and bfloat16, wherever the model came from and whatever its parts are
called; one changed matrix changes it. (float16 rounds twice, so that a lens has to be fitted in it.)
"""

from __future__ import annotations

import hashlib
from threading import Lock
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from lenses.decoder import Decoder
from lenses.errors import UnsupportedLens

SAMPLE = 4096
"""How many values of a parameter are looked at, spread evenly: a large model takes no second."""

_known: WeakKeyDictionary[Decoder, str] = WeakKeyDictionary()
_lock = Lock()


def fingerprint(decoder: Decoder) -> str:
    """The sha256 of every parameter's shape and of a sample of its values, rounded to bfloat16.

    Taken once a decoder. Raises `UnsupportedLens` where weights are not in memory.
    """
    with _lock:
        if decoder not in _known:
            _known[decoder] = _taken(decoder)
        return _known[decoder]


def _taken(decoder: Decoder) -> str:
    digest = hashlib.sha256()
    for parameter in decoder.model.parameters():
        if parameter.device.type == "meta":
            raise UnsupportedLens(
                f"some weights of {decoder.name or 'the model'} are not in memory (offloaded), so nobody can "
                "tell which model it is: load it whole, on one device"
            )
        digest.update(repr(tuple(parameter.shape)).encode())
        digest.update(_sample(parameter.detach()))
    return digest.hexdigest()


def _sample(parameter: Tensor) -> bytes:
    flat = parameter.flatten()
    values = flat[:: -(-len(flat) // SAMPLE) or 1]
    if values.is_floating_point():
        values = values.to(torch.bfloat16).view(torch.int16)
    return values.cpu().contiguous().numpy().tobytes()
