"""The code points one way, heavy libraries stay in their places, and files stay readable."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parent.parent / "lenses"
ORDER = [
    "errors", "shortage", "devices", "watermark", "building", "progress", "prompts", "catalog",
    "quadrature", "fetch", "convert", "offload", "trace", "dispatched", "twin", "handover", "sublayers",
    "layout", "proof", "passes", "waves", "inside", "slopes", "tail", "decoder", "fingerprint",
    "translators", "hub", "loading", "variants", "planting", "readout", "halves", "padded", "tokens",
    "target", "tuned", "planted", "attribution", "block_scores", "readouts", "words", "measure",
    "surface", "surfacing", "baseline", "lens", "limits", "observed", "paths", "updates", "ablation",
    "methods", "memory", "registry", "grading", "onset", "question", "together", "onsets", "audit",
    "outcome", "comparison", "corpus", "moments", "refining", "heldout", "unfinished", "fitting",
    "ranking", "validation", "scoring", "findings", "batch", "parts", "store", "depth_map", "mapping",
    "receipt", "tables", "cells", "headline", "depth_tables", "summary", "aggregates", "validating",
    "validation_words", "toy", "charts", "report", "distributed", "terminal", "console", "listing",
    "arguments", "printing", "cli", "ui",
]  # fmt: skip
PLACES = {
    "streamlit": {"ui"},
    "altair": {"charts"},
    "captum": {"methods"},
    "transformers": {"loading", "hub", "convert", "planting"},
    "typer": {"arguments", "cli"},
    "openpyxl": {"prompts"},
    "pyarrow": {"parts", "report", "prompts", "distributed"},
    "psutil": {"watermark"},
    "ray": {"distributed"},
    "scipy": {"validation"},
    "xlsxwriter": {"report"},
    "jinja2": {"report", "tokens"},
}
FILES = sorted(HOME.rglob("*.py"))


def unit(path: Path) -> str:
    """The place of a file in the order: its name, or that of its folder."""
    first = path.relative_to(HOME).parts[0]
    return first.removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Every module that the file imports, also where the import is deferred or for types only."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HOME)))
def test_imports_point_one_way(path):
    if path == HOME / "__init__.py":
        pytest.skip("the package's front door names everything")
    place = ORDER.index(unit(path))
    used = {name.split(".")[1] for name in imports(path) if name.startswith("lenses.")}
    later = {name for name in used & set(ORDER) if ORDER.index(name) > place}
    assert not later, f"{path.name} imports {later}, which come after it"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HOME)))
def test_heavy_libraries_stay_in_their_places(path):
    used = {name.split(".")[0] for name in imports(path)}
    for library, places in PLACES.items():
        assert library not in used or unit(path) in places


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HOME)))
def test_files_have_a_docstring_and_stay_readable(path):
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text))
    assert text.count("\n") <= 320


@pytest.mark.parametrize(
    "name",
    [
        "compare",
        "map",
        "report",
        "validate",
        "methods",
        "controls",
        "lists",
        "findings",
        "cards",
        "parts",
        "shell",
    ],
)
def test_a_page_and_what_it_is_made_of_stay_readable(name):
    assert (HOME / "ui" / f"{name}.py").read_text().count("\n") <= 150


@pytest.mark.parametrize(
    "command", ["import lenses", "import lenses.cli", "import lenses.registry", "import lenses.outcome"]
)
def test_listing_and_helping_need_no_torch(command):
    code = f"import sys; {command}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
