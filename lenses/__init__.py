"""Compare what each layer gave to a word, by methods that state what adds up.

    import lenses

    decoder = lenses.load("smollm2-135m")
    result = lenses.compare(decoder, "The capital of France is", target=" Paris")
    result.to_dict()

Names are imported when they are first used, so that `import lenses` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lenses.errors import (
    BadOption,
    BadPrompt,
    BadPromptFile,
    BadRun,
    LensesError,
    NonFinite,
    NoRoom,
    UnknownLens,
    UnknownModel,
    UnsupportedLens,
    UnsupportedModel,
)

if TYPE_CHECKING:
    from lenses.comparison import compare
    from lenses.decoder import Decoder
    from lenses.loading import load
    from lenses.outcome import Comparison
    from lenses.registry import LENSES, get

_HOMES = {
    "Comparison": "lenses.outcome",
    "compare": "lenses.comparison",
    "Decoder": "lenses.decoder",
    "load": "lenses.loading",
    "LENSES": "lenses.registry",
    "get": "lenses.registry",
}

__all__ = [
    "LENSES",
    "BadOption",
    "BadPrompt",
    "BadPromptFile",
    "BadRun",
    "Comparison",
    "Decoder",
    "LensesError",
    "NoRoom",
    "NonFinite",
    "UnknownLens",
    "UnknownModel",
    "UnsupportedLens",
    "UnsupportedModel",
    "compare",
    "get",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lenses' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
