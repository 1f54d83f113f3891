"""What a host may fix by the environment: which models, how much is taken, which device."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from lenses.catalog import DEFAULT, MODELS
from lenses.errors import BadOption, UnknownModel

QUEUE = 50
"""How many may be in line, unless the host says otherwise."""
KEPT = 1
"""How many models stay in memory, unless the host says otherwise."""


@dataclass(frozen=True)
class Settings:
    """`models` empty means any; None means no limit, the best device there is, and the cache folder.

    `queue` is how many lists may be in line at once, the running one included, and how many slow methods
    and maps; `max_rows` the longest list; `kept` how many models stay in memory.
    """

    models: tuple[str, ...] = ()
    max_tokens: int | None = None
    device: str | None = None
    runs: Path | None = None
    queue: int = QUEUE
    max_rows: int | None = None
    kept: int = KEPT

    @property
    def hosted(self) -> bool:
        """Whether visitors are strangers to this machine, who name no place on it."""
        return bool(self.models)

    @property
    def offered(self) -> tuple[str, ...]:
        """The names that the picker lists, the default first."""
        return self.models or tuple(model.name for model in MODELS)

    @property
    def first(self) -> str:
        """The model that a visitor starts with."""
        return DEFAULT if DEFAULT in self.offered else self.offered[0]

    def refuse(self, model: str) -> None:
        """Raise `UnknownModel` for a model that may not be loaded, without looking for it."""
        if self.models and model not in self.models:
            raise UnknownModel(
                f"this page loads only {', '.join(self.models)}: choose one of them, or run LensLedger "
                "on a machine of your own for others"
            )


def settings() -> Settings:
    """The settings in `LENSES_MODELS`, `LENSES_MODELS_KEPT`, `LENSES_MAX_TOKENS`, `LENSES_MAX_ROWS`,
    `LENSES_QUEUE`, `LENSES_DEVICE` and `LENSES_RUNS`.

    Raises `BadOption` for a number that is none.
    """
    names = [name.strip() for name in os.environ.get("LENSES_MODELS", "").split(",")]
    return Settings(
        models=tuple(name for name in names if name),
        max_tokens=_number("LENSES_MAX_TOKENS"),
        device=os.environ.get("LENSES_DEVICE") or None,
        runs=Path(os.environ["LENSES_RUNS"]) if os.environ.get("LENSES_RUNS") else None,
        queue=_number("LENSES_QUEUE") or QUEUE,
        max_rows=_number("LENSES_MAX_ROWS"),
        kept=_number("LENSES_MODELS_KEPT") or KEPT,
    )


def _number(name: str) -> int | None:
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < 1:
        raise BadOption(f"the setting {name} must be a whole number of at least 1, not {text[:40]!r}")
    return int(text)
