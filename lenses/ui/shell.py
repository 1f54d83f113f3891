"""The frame of all pages: the window's title, the logo, the navigation, and a session's beginning."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import streamlit as st

from lenses.errors import LensesError
from lenses.ui import compare, link, map, methods, report, runs, validate
from lenses.ui.picker import PAINTED
from lenses.ui.settings import settings
from lenses.ui.text import CSS, message


def run(assets: Path) -> None:
    """Draws whichever page the visitor is on; `assets` is the folder of the logo and the example."""
    begin(assets)
    chosen = st.navigation(
        [
            st.Page(partial(compare.page, assets), title="Compare", url_path="compare", default=True),
            st.Page(map.page, title="Map", url_path="map"),
            st.Page(partial(report.page, assets), title="Report", url_path="report"),
            st.Page(partial(validate.page, assets), title="Validate", url_path="validate"),
            st.Page(methods.page, title="Methods", url_path="methods"),
        ],
        position="top",
    )
    chosen.run()
    if chosen.url_path != "report":
        runs.aside()
    if chosen.url_path != "validate":
        runs.aside(runs.VALIDATED, "validation")
    st.session_state[PAINTED] = True


def begin(assets: Path) -> None:
    """What comes before every page; a setting that can't be read ends here, in a sentence."""
    st.set_page_config(page_title="LensLedger", page_icon=str(assets / "favicon.png"), layout="wide")
    st.html(CSS)
    st.logo(str(assets / "logo.svg"), size="large")
    try:
        link.arrive(settings().first)
    except LensesError as error:
        message("error", str(error))
        st.stop()
