"""`python -m tests.benchmarks.app [RUNS]`: how long a visitor waits, in Chromium with the default model.

Medians of RUNS (10). The first chart is compared with a bare Streamlit page of one chart, each on a
server of its own that has just started; the other rows are times within one running app: until the
headline and all three cards show what was asked, or until the run is over.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, Page

from tests.ui.server import HOME, browsing, serving

BARE = """
import altair as alt, pandas as pd, streamlit as st
st.altair_chart(alt.Chart(pd.DataFrame({"x": [1, 2], "y": [1, 2]})).mark_bar().encode(x="x:O", y="y:Q"))
"""
FRESH = "document.querySelectorAll('[class*=st-key-card-] [data-stale=true]').length === 0"
"""The JavaScript condition that every card shows what was asked last."""
CHART = ".stVegaLiteChart canvas, .stVegaLiteChart svg.marks"
WATCH = """() => {
  const app = document.querySelector('.stApp');
  window.states = [];
  new MutationObserver(() => window.states.push([performance.now(), app.dataset.testScriptState]))
    .observe(app, {attributes: true, attributeFilter: ['data-test-script-state']});
}"""
WORDS = ["France", "Italy", "Japan", "Spain", "Egypt", "Peru", "Kenya", "India", "Cuba", "Chile", "Ghana"]


def first_chart(browser: Browser, script: Path) -> float:
    """Seconds from opening the address of a new server to its first chart."""
    with serving(script) as address:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        began = time.perf_counter()
        page.goto(address)
        page.wait_for_selector(CHART)
        seconds = time.perf_counter() - began
        page.close()
    return seconds


def until(page: Page, act: Callable[[], None], done: str) -> float:
    """Seconds from an act to the moment at which the JavaScript condition holds."""
    began = time.perf_counter()
    act()
    page.wait_for_function(done, polling=20)
    return time.perf_counter() - began


def rerun(page: Page) -> float:
    """Seconds of a run that Run starts without a change, as the page itself sees it."""
    page.evaluate("window.states = []; window.began = performance.now()")
    page.get_by_role("button", name="Run").click()
    ended = "window.states.length > 1 && window.states.at(-1)[1] === 'notRunning'"
    page.wait_for_function(ended, polling=20)
    return float(page.evaluate("window.states.at(-1)[0] - window.began")) / 1000


def within(browser: Browser, runs: int) -> dict[str, list[float]]:
    """The times of one visitor's acts in a running app."""
    times: dict[str, list[float]] = {"new prompt": [], "another target": [], "nothing changed": []}
    with serving() as address:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"{address}/?lenses=ig-lens,logit-lens,dla")
        page.wait_for_selector("text=Take it away", timeout=120_000)
        page.wait_for_timeout(3000)
        page.evaluate(WATCH)
        box = page.get_by_role("textbox", name="Prompt")
        for word in WORDS[1 : runs + 1]:
            box.fill(f"The capital of {word} is")
            page.wait_for_timeout(500)
            head = f"document.querySelector('.ll-headline')?.innerText.includes('of {word} is')"
            run = page.get_by_role("button", name="Run").click
            times["new prompt"].append(until(page, run, f"{head} && {FRESH}"))
            page.wait_for_timeout(1000)
            old = page.locator(".ll-headline").inner_text()
            pill = page.locator("[data-testid=stButtonGroup] button", has_text="%").nth(1).click
            new = f"document.querySelector('.ll-headline')?.innerText !== {old!r}"
            times["another target"].append(until(page, pill, f"{new} && {FRESH}"))
            page.wait_for_timeout(1000)
            times["nothing changed"].append(rerun(page))
            page.wait_for_timeout(500)
        page.close()
    return times


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with TemporaryDirectory() as folder, browsing() as browser:
        bare = Path(folder) / "bare.py"
        bare.write_text(BARE)
        pairs = [(first_chart(browser, bare), first_chart(browser, HOME / "app.py")) for _ in range(runs)]
        print(f"medians of {runs}, in seconds\n\n| what | app | bare page |\n|---|---|---|")
        theirs, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"| first chart on a new server | {ours:.2f} | {theirs:.2f} |", flush=True)
        for name, seconds in within(browser, runs).items():
            print(f"| {name} | {statistics.median(seconds):.2f} | |", flush=True)


if __name__ == "__main__":
    main()
