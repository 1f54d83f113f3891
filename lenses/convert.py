"""GGUF files, dequantised once to float32 and kept as a safetensors folder in the user's cache.

Two processes that start at once convert once: a lock is held, the folder is written aside and then
renamed. Every file's sha256 is kept beside it, so that a damaged cache is noticed and made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock

from lenses import shortage
from lenses.catalog import Source
from lenses.errors import UnknownModel, UnsupportedModel
from lenses.fetch import fetch
from lenses.progress import Progress

MANIFEST = "lensledger.json"


def cache() -> Path:
    """Where converted models are kept: `LENSES_CACHE`, or the platform's cache folder."""
    return Path(os.environ.get("LENSES_CACHE") or platformdirs.user_cache_path("lensledger"))


def prepare(source: Source) -> Generator[Progress, None, Path]:
    """The converted folder of a wheel or a GGUF file, made if it is not there whole already."""
    if source.gguf is not None:
        yield Progress(f"reading {source.gguf.name}")
    folder = converted(source)
    with ThreadPoolExecutor(1) as pool:
        whole = pool.submit(_whole, folder)  # its files are hashed while the code that reads them is imported
        from transformers import AutoTokenizer, PreTrainedModel  # noqa: F401

        if whole.result():
            return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    yield Progress("waiting for another process that prepares this model")
    # A generator may be closed in another thread than it began in, and has to give the lock back.
    with FileLock(f"{folder}.lock", thread_local=False):
        if not _whole(folder):
            yield from _replace(source, folder)
    return folder


def _replace(source: Source, folder: Path) -> Iterator[Progress]:
    """Make the folder aside and put it in place; whoever calls holds the folder's lock."""
    prefix = f".new-{folder.name}-"
    for killed in folder.parent.glob(f"{prefix}*"):
        shutil.rmtree(killed, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=prefix) as aside:
        yield from _make(source, Path(aside))
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(Path(aside) / "model", folder)


def converted(source: Source) -> Path:
    """The cache folder of a source, named by the content of its GGUF file."""
    digest = source.wheel.member_sha256 if source.wheel else sha256(_file(source))
    return cache() / "models" / f"{Path(source.name).stem}-{digest[:16]}"


def origin(folder: Path) -> tuple[str, str]:
    """Where a converted folder came from, and the sha256 of the GGUF file."""
    manifest = json.loads((folder / MANIFEST).read_text())
    return manifest["source"], manifest["sha256"]


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def without_bars() -> Iterator[None]:
    """Transformers' own progress bars off: our progress is shown in their place."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def refuse_missing(name: str, report: dict[str, Any]) -> None:
    """Raise `UnsupportedModel` where transformers would make up weights that a checkpoint lacks."""
    missing = sorted(report["missing_keys"]) + sorted(key for key, *_ in report["mismatched_keys"])
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise UnsupportedModel(
            f"the checkpoint of {name} lacks weights that transformers would make up "
            f"({', '.join(missing[:3])}{more}): use a whole one, with its language-model head"
        )


def _whole(folder: Path) -> bool:
    """Whether every file of a converted folder is what was written."""
    try:
        origin(folder)
        files = json.loads((folder / MANIFEST).read_text())["files"]
        return all(sha256(folder / name) == digest for name, digest in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _make(source: Source, aside: Path) -> Iterator[Progress]:
    if source.wheel is not None:
        yield from fetch(source.wheel, aside)
        gguf, name = aside / source.wheel.member, source.wheel.source
    else:
        gguf = _file(source)
        name = f"file:{gguf.name}"
    yield Progress(f"converting {gguf.name} to float32 (half a minute for 135 M parameters)")
    digest = sha256(gguf)
    if source.wheel is not None and digest != source.wheel.member_sha256:
        raise UnknownModel(f"{gguf.name} from {source.wheel.package} is not the file that was expected")
    folder = aside / "model"
    _dequantise(gguf, folder)
    files = {path.name: sha256(path) for path in sorted(folder.iterdir())}
    manifest = {"source": name, "sha256": digest, "files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))


def _dequantise(gguf: Path, folder: Path) -> None:
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers import modeling_gguf_pytorch_utils as reader
    from transformers.utils import logging

    # The reader of GGUF files takes tqdm itself; with transformers' own it heeds `without_bars`.
    reader.tqdm = logging.tqdm
    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    with without_bars():
        try:
            model, report = AutoModelForCausalLM.from_pretrained(
                **where, dtype=torch.float32, output_loading_info=True
            )
            tokenizer = AutoTokenizer.from_pretrained(**where)
        except Exception as error:
            # Transformers and gguf raise whatever a file brings them to; the file is what the user has.
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise shortage.no_room(error, gguf.name) or UnknownModel(
                f"{gguf.name} can't be read as a GGUF model: {reason[:200]}"
            ) from error
        refuse_missing(gguf.name, report)
        try:
            _plain(model).save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        except (OSError, SafetensorError) as error:
            raise UnknownModel(
                f"the converted model can't be written below {cache()} ({error}): make room there, or set "
                "LENSES_CACHE to another folder"
            ) from error


def _plain(model: Any) -> Any:
    """The same weights in a model that transformers does not hold for quantised, and so will save."""
    import torch
    from transformers import AutoModelForCausalLM

    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.device("meta"):
        plain = AutoModelForCausalLM.from_config(config)
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    plain.generation_config = model.generation_config
    return plain


def _file(source: Source) -> Path:
    if source.gguf is None:
        raise ValueError(f"{source.name} is no GGUF model")
    return source.gguf
