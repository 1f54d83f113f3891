"""A model's name → a `Decoder`: safetensors or GGUF only, no remote code, nothing invented.

What is refused, with the reason: a pickle checkpoint, a model that brings code of its own, an
encoder–decoder, weights that are missing from the checkpoint, and whatever `proof` refuses.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch

from lenses import catalog, convert, devices, shortage, watermark
from lenses.building import BUILDING
from lenses.decoder import Decoder
from lenses.errors import LensesError, UnknownModel, UnsupportedModel
from lenses.hub import Where, fetching, named, reachable
from lenses.offload import Offload
from lenses.progress import Progress, finish
from lenses.proof import TOLERANCE

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
HASHED = 1 << 30
"""Bytes of a local folder's weights up to which its revision is their hash."""


def load(
    model: str = catalog.DEFAULT,
    *,
    revision: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
) -> Decoder:
    """The decoder of a catalog name, a Hub id, a local folder or a `.gguf` file.

    `dtype` (float32 unless said otherwise) and `device` (an accelerator with float64 where there is one) are
    torch's names; `auto` spreads the model over all devices, then memory, then the disk. Raises
    `UnknownModel`, `UnsupportedModel`, and `NoRoom` where one device has no room for it.
    """
    return finish(loading(model, revision=revision, dtype=dtype, device=device))


def loading(
    model: str = catalog.DEFAULT,
    *,
    revision: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
) -> Generator[Progress, None, Decoder]:
    """`load`, with its progress: yields each step and returns the decoder."""
    number, place = _dtype(dtype), devices.named(device)
    source = catalog.find(model)
    if source.wheel or source.gguf:
        folder = yield from convert.prepare(source)
        where, (name, version) = Where(str(folder)), convert.origin(folder)
    elif source.folder:
        _refuse_pickle(source.folder)
        where, name = Where(str(source.folder)), f"folder:{source.name}"
        version = _digest(source.folder)
    else:
        hub = str(source.hub)
        yield Progress(f"asking the Hugging Face Hub for {hub}")
        where = Where(hub, named(revision), source.gated, local=not reachable())
        name, version = f"hub:{hub}", ""
    yield Progress(f"loading {source.name}")
    config = _fitting(where, number, place)
    pinned = where.pinned()
    tokenizer = _tokenizer(pinned)
    here = (yield from _fetched(pinned, config, source.name)) if source.hub else pinned
    with BUILDING:
        network = _read(here or where, config, number, place)
    network.requires_grad_(False).eval()
    yield Progress(f"proving the readout of {source.name}")
    with shortage.noticed(source.name, shortage.SMALLER):
        return Decoder(network, tokenizer, source.name, name, version or pinned.commit())


def weights(hub: str, revision: str | None = None) -> int:
    """How many weights a Hub model has, from its configuration alone; raises `UnknownModel`.

    Builds the model without memory, so that nothing but the configuration is fetched.
    """
    where = Where(hub, named(revision), local=not reachable())
    with _reading(where):
        config = _config(where)
        with BUILDING:
            return _counted(config, hub)


def _fitting(where: Where, dtype: torch.dtype, place: torch.device | None) -> Any:
    """The configuration of a language model that has room where it is to be."""
    with _reading(where):
        config = _config(where)
        _auto_class(config, where.path)
        # How small a quantised checkpoint is is not in its configuration.
        if place is not None and not hasattr(config, "quantization_config"):
            with BUILDING:
                weights = _counted(config, where.path)
            watermark.refuse(where.path, weights, dtype, place)
    return config


def _fetched(where: Where, config: Any, name: str) -> Generator[Progress, None, Where | None]:
    """Where a Hub model is once its files are here, so that nothing is fetched while it is built; None for
    one of a kind that only transformers fetches."""
    files = fetching(where, config)
    while True:
        with _reading(where):
            try:
                step = next(files)
            except StopIteration as end:
                found: Where | None = end.value
                return found
        yield Progress(f"fetching {name} from the Hugging Face Hub: {step}")


def _read(where: Where, config: Any, dtype: torch.dtype, place: torch.device | None) -> Any:
    """The network where it is to be."""
    offload = Offload() if place is None else None
    with _reading(where):
        network, report = _auto_class(config, where.path).from_pretrained(
            **where(), config=config, dtype=dtype, use_safetensors=True, output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are in the report, by name
            **_placed(place, offload),
        )  # fmt: skip
    if offload is not None:
        offload.keep_with(network)
    convert.refuse_missing(where.path, report)
    return network


def _placed(place: torch.device | None, offload: Offload | None) -> dict[str, Any]:
    """Where transformers is to put the weights: an accelerator's never pass through memory as a whole."""
    if offload is None:
        return {} if place == torch.device("cpu") else {"device_map": {"": place}}
    return {
        "device_map": "auto",
        "max_memory": watermark.allowances(),
        "offload_folder": str(offload.folder),
    }


def _counted(config: Any, path: str) -> int:
    """How many weights a configuration makes, built without memory."""
    with torch.device("meta"):
        network = _auto_class(config, path).from_config(copy.deepcopy(config), dtype=torch.float32)
    return sum(parameter.numel() for parameter in network.parameters())


def _config(where: Where) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(**where())


@contextmanager
def _reading(where: Where) -> Iterator[None]:
    """Whatever is raised while a folder or the Hub is read becomes one sentence."""
    try:
        with convert.without_bars():
            yield
    except LensesError:
        raise
    except Exception as error:
        # Transformers, the Hub's client and tokenizers raise whatever a folder brings them to.
        short = shortage.no_room(error, where.path, shortage.SMALLER)
        raise short or UnknownModel(_why(where, error)) from error


def _tokenizer(where: Where) -> Any:
    from transformers import AutoTokenizer

    try:
        with convert.without_bars():
            return AutoTokenizer.from_pretrained(**where())
    except Exception as error:
        # As above: the reason is for the user, whatever raised it.
        short = shortage.no_room(error, f"the tokenizer of {where.path}")
        raise short or UnknownModel(
            f"the tokenizer of {where.path} can't be read, so no prompt can be: add tokenizer.json and "
            f"tokenizer_config.json ({shorten(str(error), 160, placeholder=' …')})"
        ) from error


def _auto_class(config: Any, path: str) -> Any:
    """The class that builds a language model of this configuration."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto import modeling_auto as known

    kind = getattr(config, "model_type", type(config).__name__)
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModel(
            f"{path} is an encoder–decoder ({kind}), not a decoder-only model: depth is not one axis "
            "there; choose a model such as GPT-2 or Llama"
        )
    if type(config) in known.MODEL_FOR_CAUSAL_LM_MAPPING:
        return AutoModelForCausalLM
    if type(config) in known.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        return AutoModelForImageTextToText
    raise UnsupportedModel(f"{path} ({kind}) is not a decoder-only model: it has no next-token head")


def _refuse_pickle(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise UnknownModel(
            f"{folder} has no config.json: give the folder that save_pretrained wrote, or a .gguf file"
        )
    if any(folder.glob("*.safetensors")):
        return
    pickles = [path.name for pattern in PICKLES for path in sorted(folder.glob(pattern))]
    if pickles:
        raise UnsupportedModel(
            f"{folder} holds only pickled weights ({pickles[0]}), and unpickling runs whatever code is "
            "in the file: convert it to safetensors with save_pretrained where you trust it"
        )
    raise UnknownModel(f"{folder} has a config.json but no .safetensors file: the weights are missing")


def _digest(folder: Path) -> str:
    """The sha256 of the weights, or "" where hashing them would take long."""
    weights = sorted(folder.glob("*.safetensors"))
    try:
        if sum(path.stat().st_size for path in weights) > HASHED:
            return ""
        return hashlib.sha256("".join(convert.sha256(path) for path in weights).encode()).hexdigest()
    except OSError as error:
        raise UnknownModel(f"{error.filename} can't be read: {error.strerror}") from error


def _why(where: Where, error: Exception) -> str:
    """One sentence for what transformers or the Hub's client said."""
    text = shorten(str(error), 200, placeholder=" …")
    if "trust_remote_code" in str(error) or "custom code" in str(error):
        return f"{where.path} needs code of its own to run, which is never executed here"
    if Path(where.path).is_dir():
        return f"{where.path} can't be read as a model folder: {text}"
    if "model.safetensors" in text:
        return (
            f"{where.path} has no safetensors weights on the Hub, and pickled ones run whatever code is in "
            "them: choose a revision or a copy of it that has"
        )
    if where.gated or "gated repo" in text or "401 Client Error" in text:
        terms = f"https://huggingface.co/{where.path}"
        return (
            f"{where.path} is gated and not in the Hub's cache here: with a network, accept its terms at "
            f"{terms}, then run `hf auth login` or set HF_TOKEN ({text})"
        )
    return (
        f"{where.path} is not in the Hub's cache here and could not be fetched: check the name (`lenses "
        "models` lists those that need no Hub id) and the network, or name a local folder or .gguf file "
        f"({text})"
    )


def _dtype(name: str | None) -> torch.dtype:
    known = {str(dtype).removeprefix("torch."): dtype for dtype in TOLERANCE}
    if (name or "float32") not in known:
        raise UnknownModel(f"{name} is no number format for a model: choose {', '.join(known)}")
    return known[name or "float32"]
