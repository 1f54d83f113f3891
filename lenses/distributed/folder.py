"""A run's folder as all machines must see it: the driver leaves a word there, by which workers know it."""

from __future__ import annotations

import shutil
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lenses.errors import BadRun
from lenses.store import Store

TOKEN = ".ray-token"


@dataclass(frozen=True)
class Folder:
    """A run's folder, by its absolute path, and the word that stands in it."""

    path: Path
    token: str

    @property
    def parts(self) -> Path:
        return self.path / "parts"

    def seen(self) -> None:
        """Raises `BadRun` on a machine that sees another folder there, or none."""
        token = self.path / TOKEN
        if not token.is_file() or token.read_text(encoding="utf-8") != self.token:
            here = socket.gethostname()
            raise BadRun(
                f"a worker on {here} doesn't see {self.path}: choose a folder that all machines share"
            )


@contextmanager
def held(path: Path) -> Iterator[tuple[Store, Folder]]:
    """A run's folder, held by this process alone, with a word in it; what is empty afterwards goes again.

    Raises `BadRun` where another process holds it.
    """
    made = [one for one in (path / "parts", path) if not one.exists()]
    try:
        with Store(path, {}, ()) as run:
            folder = Folder(path.absolute(), uuid.uuid4().hex)
            (path / TOKEN).write_text(folder.token, encoding="utf-8")
            try:
                yield run, folder
            finally:
                (path / TOKEN).unlink(missing_ok=True)
    finally:
        for one in made:
            if one.exists() and {inner.name for inner in one.iterdir()} <= {".lock"}:
                shutil.rmtree(one)
