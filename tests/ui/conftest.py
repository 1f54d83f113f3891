"""What the tests of pages share."""

from __future__ import annotations

import pytest
from streamlit.delta_generator import DeltaGenerator


@pytest.fixture
def downloads(monkeypatch):
    """What each download button of the last run hands out, by its label."""
    found: dict[str, bytes] = {}

    def record(self, label, data, **options):
        found[label] = data() if callable(data) else data

    monkeypatch.setattr(DeltaGenerator, "download_button", record)
    return found
