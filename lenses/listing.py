"""What the commands over a list of prompts share: its file, its folder and its estimate."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lenses import console
from lenses.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lenses.decoder import Decoder
    from lenses.lens import Lens
    from lenses.prompts import Manner, PromptList


def read(file: Path, manner: Manner) -> PromptList:
    """The list in a file; how it was read is said on stderr."""
    from lenses import prompts

    name = os.fsencode(file.name).decode("utf-8", "replace")  # names of files need not be text
    listed = prompts.read(file.read_bytes(), name, manner)
    said = console.console(stderr=True)
    said.print(listed.described(), markup=False, soft_wrap=True)
    for note in (*listed.notes, *(row.problem for row in listed.bad[:5])):
        said.print(f"Note: {note}", markup=False, soft_wrap=True)
    return listed


@dataclass(frozen=True)
class Named:
    """A model as it is asked for."""

    name: str
    device: str | None = None
    dtype: str | None = None


@dataclass(frozen=True)
class Cluster:
    """What is asked of Ray: workers, the GPUs of each, and the address of a cluster; None as Ray has it."""

    workers: int | None = None
    gpus: float | None = None
    address: str | None = None


def alone(sources: Sequence[str], cluster: Cluster) -> Path:
    """The one file that this process reads; raises `BadOption` for what only Ray takes."""
    if cluster != Cluster():
        raise BadOption("--workers, --gpus-per-worker and --ray-address go with --engine ray: add it")
    if len(sources) > 1:
        raise BadOption(f"one list at a time, not {len(sources)}: put them together, or add --engine ray")
    return Path(sources[0])


def on_ray(
    sources: Sequence[str], manner: Manner, model: Named, lenses: Sequence[Lens], every: bool, output: Path,
    resume: bool, batch_size: int, cluster: Cluster,
) -> None:  # fmt: skip
    """A report by the workers of Ray; `every` tells whether each of the lenses was asked for."""
    from lenses import distributed, terminal

    distributed.require()
    only = Path(sources[0]) if len(sources) == 1 else None
    lists = read(only, manner) if only and only.is_file() else tuple(sources)
    with console.status("importing torch and Ray"):
        from lenses.distributed import cluster as ray_cluster
        from lenses.distributed.making import Asked, making
    asked = Asked(
        lists, model.name, tuple(lenses), every, cluster.workers, cluster.gpus, batch_size, manner,
        model.device, model.dtype,
    )  # fmt: skip
    with console.resumable(output), ray_cluster.joined(cluster.address or os.environ.get("RAY_ADDRESS")):
        made = console.watched(making(asked, output, resume=resume))
    terminal.distributed(made, output, console.console())


def estimate(decoder: Decoder, listed: PromptList, lenses: Sequence[Lens]) -> None:
    """Say on stderr how long the slow lenses will take; nothing where there is none."""
    from lenses import report

    if slow := [lens for lens in lenses if lens.slow]:
        seconds = console.watched(report.estimating(decoder, listed.rows, slow))
        names = ", ".join(lens.name for lens in slow)
        console.console(stderr=True).print(f"{names}: about {seconds / 60:.0f} min for this list")


def refuse_no_folder(output: Path) -> None:
    """Say so before minutes of work, not after."""
    if output.exists() and not output.is_dir():
        raise BadOption(f"--output takes the name of a folder, and {output} is a file")


def delimiter(text: str | None) -> str | None:
    """The character that a word or the character itself stands for."""
    words = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|", "none": ""}
    return text if text is None else words.get(text, text)
