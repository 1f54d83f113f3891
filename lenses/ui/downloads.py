"""The files of a run as downloads, read when they are asked for."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import streamlit as st

from lenses.ui.saving import offer

MIME = {
    ".html": "text/html", ".json": "application/json", ".csv": "text/csv",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".parquet": "application/vnd.apache.parquet",
}  # fmt: skip


def downloads(folder: Path, files: Sequence[str], what: str = "report") -> None:
    """A button a file, the page for everybody first."""
    first, *others = files
    columns = st.columns([2, *[1] * len(files)])
    read = {name: (folder / name).read_bytes for name in files}
    offer(
        columns[0], f"The {what} as one HTML file", read[first], first, MIME[".html"], f"save-{what}",
        type="primary",
    )  # fmt: skip
    for column, name in zip(columns[1:], others, strict=False):
        offer(column, name, read[name], name, MIME[Path(name).suffix], f"save-{name}")
    packed = partial(_zip, folder, files)
    offer(columns[-1], "All as ZIP", packed, f"{what}.zip", "application/zip", "save-zip")


def _zip(folder: Path, files: Sequence[str]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in files:
            archive.write(folder / name, name)
    return made.getvalue()
