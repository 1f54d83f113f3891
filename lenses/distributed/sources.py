"""Prompt lists in a folder, behind a pattern or at an address: which files there are, and their rows.

Each file is read by a worker as it would be on one machine. A first pass counts the rows, so that they
are numbered through all files, sorted by address, whichever file is read first.
"""

from __future__ import annotations

import fnmatch
import hashlib
import pickle
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import ray.data
from pyarrow import fs

from lenses import prompts
from lenses.batch import window
from lenses.errors import BadPromptFile, LensesError
from lenses.progress import Progress
from lenses.prompts import Manner, Row
from lenses.prompts.wording import counted

READER = 0.25
"""CPUs that Ray sets aside for reading a file."""
WILD = "*?["


@dataclass(frozen=True)
class File:
    """One list among several: `before` counts the rows of those before it."""

    path: str
    before: int
    rows: int
    bad: int
    sha256: str
    described: str
    manner: Manner
    problem: str


@dataclass(frozen=True)
class Files:
    """All lists of a source, in the order of their addresses."""

    system: fs.FileSystem
    files: tuple[File, ...]
    asked: Manner
    name: str

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def manner(self) -> Manner:
        """How a single list was read; of several, how they were to be read."""
        return self.files[0].manner if len(self.files) == 1 else self.asked

    def about(self) -> dict[str, Any]:
        """What `store.asked` takes: of a single list the same that one machine would say."""
        if len(self.files) == 1:
            (one,) = self.files
            name = PurePosixPath(one.path).name
            return {"name": name, "sha256": one.sha256, "rows": one.rows, "described": one.described}
        lines = [f"{one.sha256}  {PurePosixPath(one.path).name}" for one in self.files]
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        bad = sum(one.bad for one in self.files)
        told = f"{counted(len(self.files), 'file')}: {counted(self.rows, 'row')}"
        told += f", {bad} of them can't be run" if bad else ""
        return {"name": self.name, "sha256": digest, "rows": self.rows, "described": told}


def found(sources: Sequence[str]) -> tuple[fs.FileSystem, list[str]]:
    """The file system of the sources and the paths of their files, sorted.

    A source is a file, a folder, or a pattern such as `lists/*.csv`, here or at an address that PyArrow
    knows (`s3://`, `gs://`, `hdfs://`). Raises `BadPromptFile` for one that holds no list.
    """
    system, paths = None, set[str]()
    for source in sources:
        try:
            here, path = _opened(source)
            matching = list(_matching(here, path))
        except (OSError, pa.ArrowException, ValueError) as error:
            raise BadPromptFile(f"{source} can't be read ({error})") from error
        if not matching:
            raise BadPromptFile(
                f"{source} holds no prompt list: name a file, or a folder of files that end in "
                f"{', '.join(prompts.ENDINGS)}"
            )
        if system is not None and not system.equals(here):
            raise BadPromptFile(f"{source} is on another file system than {sources[0]}: run them apart")
        system = here
        paths |= set(matching)
    assert system is not None
    return system, sorted(paths)


def reading(sources: Sequence[str], manner: Manner) -> Generator[Progress, None, Files]:
    """The files, each counted by a worker; raises `BadPromptFile` for one that can't be read at all."""
    yield Progress("counting the rows of the files")
    system, paths = found(sources)
    counts = _opened_by_ray(system, paths).map(_counted, fn_kwargs={"manner": manner}, num_cpus=READER)
    known = {one["path"]: one for one in counts.iter_rows()}
    files, before = [], 0
    for path in sorted(known):
        one = known[path]
        if one["fault"]:
            raise BadPromptFile(one["fault"])
        files.append(File(path, before, *pickle.loads(one["about"])))
        before += files[-1].rows
    return Files(system, tuple(files), manner, sources[0] if len(sources) == 1 else f"{sources[0]} and more")


def rows(files: Files, known: np.ndarray, size: int) -> ray.data.Dataset:
    """The rows that are not known, numbered through all files, in blocks of `size`; columns `row`, `data`."""
    before = {file.path: file.before for file in files.files}
    options = {"before": before, "manner": files.asked, "known": known, "several": len(files.files) > 1}
    paths = [file.path for file in files.files if _any_new(file, known)]
    read = _opened_by_ray(files.system, paths)
    numbered = read.flat_map(_numbered, fn_kwargs=options, num_cpus=READER)
    return numbered.repartition(target_num_rows_per_block=size, strict=True)  # also of many small files


def of_list(listed: Sequence[Row], known: np.ndarray, size: int) -> ray.data.Dataset:
    """The same of rows that are in memory here."""
    lines = list(_lines(_new(listed, known)))
    return ray.data.from_items(lines, override_num_blocks=max(1, -(-len(lines) // size)))


def _opened_by_ray(system: fs.FileSystem, paths: list[str]) -> ray.data.Dataset:
    return ray.data.read_binary_files(
        paths, filesystem=system, include_paths=True, num_cpus=READER, override_num_blocks=len(paths)
    )


def _opened(source: str) -> tuple[fs.FileSystem, str]:
    if "://" in source:
        wild = min((source.find(mark) for mark in WILD if mark in source), default=len(source))
        start = source[:wild].rpartition("/")[0] if wild < len(source) else source
        system, path = fs.FileSystem.from_uri(start)
        return system, path + source[len(start) :]
    return fs.LocalFileSystem(), str(Path(source).absolute())


def _matching(system: fs.FileSystem, path: str) -> Iterator[str]:
    """The files of a path; in folders those that end as lists do, and none that is hidden."""
    wild = any(mark in path for mark in WILD) and system.get_file_info(path).type is fs.FileType.NotFound
    info = None if wild else system.get_file_info(path)
    if info is not None and info.type is fs.FileType.File:
        yield path
        return
    if info is not None and info.type is fs.FileType.NotFound:
        raise FileNotFoundError("there is no such file or folder")
    start = path if info is not None else _folder_before(path)
    for one in system.get_file_info(fs.FileSelector(start, recursive=True, allow_not_found=True)):
        hidden = any(part.startswith((".", "_")) for part in PurePosixPath(one.path[len(start) :]).parts)
        if one.type is not fs.FileType.File or hidden:
            continue
        if _fits(one.path, path) if wild else one.path.rpartition(".")[2].casefold() in prompts.ENDINGS:
            yield one.path


def _folder_before(pattern: str) -> str:
    """The last folder of a pattern that has no wildcard."""
    wild = min(pattern.find(mark) for mark in WILD if mark in pattern)
    return pattern[:wild].rpartition("/")[0]


def _fits(path: str, pattern: str) -> bool:
    """Whether a path matches, part by part, so that `*` stands for no folder."""
    parts, wanted = path.split("/"), pattern.split("/")
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def _counted(file: dict[str, Any], manner: Manner) -> dict[str, Any]:
    try:
        listed = prompts.read(file["bytes"], PurePosixPath(file["path"]).name, manner)
    except LensesError as error:
        return {"path": file["path"], "fault": str(error), "about": b""}
    problem = listed.bad[0].problem if listed.bad else ""
    about = (
        len(listed.rows), len(listed.bad), listed.sha256, listed.described(), listed.manner, problem
    )  # fmt: skip
    return {"path": file["path"], "fault": "", "about": pickle.dumps(about)}


def _numbered(
    file: dict[str, Any], before: dict[str, int], manner: Manner, known: np.ndarray, several: bool
) -> Iterator[dict[str, Any]]:
    """The rows of a file; of several, each says in the column `source file` where it is from."""
    path = file["path"]
    listed = prompts.read(file["bytes"], PurePosixPath(path).name, manner)
    at = (("source file", path),) if several else ()
    renumbered = [replace(row, row=before[path] + row.row, extra=(*at, *row.extra)) for row in listed.rows]
    yield from _lines(_new(renumbered, known))


def _new(rows: Sequence[Row], known: np.ndarray) -> list[Row]:
    done = np.isin([row.row for row in rows], known)
    return [row for row, there in zip(rows, done, strict=True) if not there]


def _lines(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Rows as Ray carries them, in each window those of like lengths together: there is little padding."""
    for _, group in groupby(rows, key=lambda row: window(row.row)):
        for row in sorted(group, key=lambda row: -len(row.prompt)):
            yield {"row": row.row, "data": pickle.dumps(row)}


def _any_new(file: File, known: np.ndarray) -> bool:
    start, end = np.searchsorted(known, [file.before + 1, file.before + file.rows + 1])
    return int(end - start) < file.rows
