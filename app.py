"""LensLedger in a browser: `streamlit run app.py`."""

from pathlib import Path

from lenses.ui.shell import run

run(Path(__file__).parent / "assets")
