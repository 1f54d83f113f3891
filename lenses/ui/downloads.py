"""The files of a run as downloads, read when they are asked for."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import streamlit as st

MIME = {
    ".html": "text/html", ".json": "application/json", ".csv": "text/csv",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".parquet": "application/vnd.apache.parquet",
}  # fmt: skip


def downloads(folder: Path, files: Sequence[str], what: str = "report") -> None:
    """A button a file, the page for everybody first."""
    first, *others = files
    columns = st.columns([2, *[1] * len(files)])
    columns[0].download_button(
        f"The {what} as one HTML file", data=lambda: (folder / first).read_bytes(), file_name=first,
        mime=MIME[".html"], key=f"save-{what}", type="primary", width="stretch", on_click="ignore",
    )  # fmt: skip
    for column, name in zip(columns[1:], others, strict=False):
        column.download_button(
            name, data=_bytes(folder / name), file_name=name, mime=MIME[Path(name).suffix],
            key=f"save-{name}", width="stretch", on_click="ignore",
        )  # fmt: skip
    columns[-1].download_button(
        "All as ZIP", data=lambda: _zip(folder, files), file_name=f"{what}.zip", mime="application/zip",
        key="save-zip", width="stretch", on_click="ignore",
    )  # fmt: skip


def _bytes(path: Path) -> Callable[[], bytes]:
    return path.read_bytes


def _zip(folder: Path, files: Sequence[str]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in files:
            archive.write(folder / name, name)
    return made.getvalue()
