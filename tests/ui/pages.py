"""A page as AppTest runs it, without a browser, and what a reader finds on it."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pandas as pd
import pyarrow as pa
from streamlit.testing.v1 import AppTest

from lenses.ui import models
from lenses.ui.answers import jobs
from lenses.ui.runs import estimates, queue
from tests import tiny

HOME = Path(__file__).parent.parent.parent
SOON = 120.0


def app(page: str = "compare", **query: str) -> AppTest:
    """A page as its own script, with the address that it was opened by."""
    calls = {
        "compare": "compare.page(assets)", "map": "map.page()", "methods": "methods.page()",
        "report": "report.page(assets)", "validate": "validate.page(assets)",
    }  # fmt: skip
    script = (
        "from pathlib import Path\nimport streamlit as st\n"
        "from lenses.ui import compare, map, methods, report, shell, validate\n"
        f"assets = Path({str(HOME / 'assets')!r})\nshell.begin(assets)\n{calls[page]}\n"
        "st.session_state['painted'] = True\n"
    )
    at = AppTest.from_string(script, default_timeout=60)
    for name, value in query.items():
        at.query_params[name.replace("__", ".")] = value
    return at


def settle(at: AppTest) -> AppTest:
    """Run until nothing is loading or being computed."""
    before = None
    for _ in range(12):
        at.run()
        assert not at.exception, at.exception[0].value
        assert models.loader().idle(SOON)
        assert jobs().idle(SOON)
        assert queue().idle(SOON)
        assert estimates().idle(SOON)
        now = [element.proto.body for element in at.html]
        if now == before:
            return at
        before = now
    raise AssertionError("the page never came to rest")


def opened(folder: str, page: str = "compare", **query: str) -> AppTest:
    return settle(app(page, **{"model": folder, "prompt": tiny.PROMPT, **query}))


def submit(at: AppTest) -> AppTest:
    """Press Run, which is what makes the form's values count."""
    next(button for button in at.button if button.proto.label == "Run").click()
    return settle(at)


def texts(at: AppTest) -> str:
    """Everything that stands on the page as HTML, as a reader sees it."""
    return html.unescape(re.sub("<[^>]+>", " ", " ".join(element.proto.body for element in at.html)))


def headline(at: AppTest) -> str:
    (found,) = [e.proto.body for e in at.html if 'class="ll-headline"' in e.proto.body]
    return html.unescape(re.sub("<[^>]+>", "", found))


def verdicts(at: AppTest) -> list[str]:
    return re.findall(r'll-badge"[^>]*>([^<]+)<', " ".join(e.proto.body for e in at.html))


def charts(at: AppTest) -> list[str]:
    """The charts without their data, which `rows` gives."""
    return [element.proto.spec for element in at.get("vega_lite_chart")]


def rows(at: AppTest, chart: int, field: str = "value") -> pd.DataFrame:
    """The data of a chart: the first of its tables that has the field."""
    tables = [
        pa.ipc.open_stream(d.data.data).read_pandas() for d in at.get("vega_lite_chart")[chart].proto.datasets
    ]
    return next(table for table in tables if field in table)
