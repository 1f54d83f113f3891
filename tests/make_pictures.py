"""The README's pictures, taken of the running app: `python -m tests.make_pictures`."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

import lenses
from lenses import prompts, registry, report
from lenses.progress import finish
from tests.ui.server import HOME, browsing, serving

SIZE = {"width": 1440, "height": 1240}


def keep(page: Page, name: str) -> None:
    page.wait_for_timeout(2000)  # the last chart's fade-in; nothing is asserted of it
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(128)
    picture.save(HOME / "assets" / f"{name}.png", optimize=True)


def main() -> None:
    with serving() as address, browsing() as browser:
        page = browser.new_page(viewport=SIZE)
        page.goto(address)
        page.wait_for_selector("text=Take it away", timeout=120_000)
        page.wait_for_function("!document.body.innerText.includes('Computing:')", timeout=300_000)
        keep(page, "compare")
        page.goto(f"{address}/map?answer=6&position=4&lenses=ig-lens,logit-lens,dla")
        page.wait_for_selector("text=Take it away", timeout=120_000)
        keep(page, "map")
        with tempfile.TemporaryDirectory() as name:
            facts = HOME / "assets" / "prompts" / "facts.csv"
            chosen = [registry.get(lens) for lens in registry.quick()]
            listed = prompts.read(facts.read_bytes(), facts.name)
            finish(report.making(lenses.load(), listed, chosen, Path(name)))
            page.goto((Path(name) / "report.html").as_uri())
            page.wait_for_selector(".chart svg")
            keep(page, "report")


if __name__ == "__main__":
    main()
