"""The app in a real browser, with the real default model: what a visitor does, and what she then sees."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

import pandas as pd
import pytest
from PIL import Image
from playwright.sync_api import BrowserContext, Page, expect

import lenses as library
from lenses.headline import headline
from tests.ui.server import CHROMIUM, browsing, serving

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        CHROMIUM is None and os.environ.get("LENSES_BROWSER") != "required",
        reason="there is no chromium here: apt-get install chromium",
    ),
]
QUICK = ["ig-lens", "logit-lens", "dla"]
FRANCE = "The capital of France is"
PICTURES = Path(__file__).parent.parent / "screenshots"
expect.set_options(timeout=30_000)  # a machine that is busy is no failure
LONG = 90_000
"""Milliseconds within which a model is loaded on any machine."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with serving() as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    with browsing() as found:
        yield found


class Visit:
    """One visitor: a browser context of its own, whose console and requests are watched."""

    def __init__(self, context: BrowserContext, site: str) -> None:
        self.context, self.site, self.faults = context, site, []
        context.set_default_timeout(30_000)
        context.on("console", self._console)
        context.on("request", self._request)
        context.on("weberror", lambda error: self.faults.append(str(error.error)))

    def open(self, path: str = "/", wait: str = ".ll-headline") -> Page:
        page = self.context.new_page()
        page.goto(self.site + path)
        page.wait_for_selector("text=is loaded", timeout=LONG)
        page.wait_for_selector(wait)
        return page

    def quick(self, prompt: str = FRANCE, path: str = "/", more: str = "", **options) -> Page:
        return self.open(f"{path}?prompt={quote(prompt)}&lenses={','.join(QUICK)}{more}", **options)

    def _console(self, message) -> None:
        # Streamlit looks for its own server below a page's path first, and is told 404 there.
        if message.type == "error" and "/_stcore/" not in message.location["url"]:
            self.faults.append(message.text)

    def _request(self, request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob") and address.netloc != urlsplit(self.site).netloc:
            self.faults.append(f"asked {request.url}")


@pytest.fixture
def visit(browser, site):
    """Makes visitors; at the end none of them may have seen an error or asked another host."""
    made: list[Visit] = []

    def make(**options) -> Visit:
        options.setdefault("viewport", {"width": 1440, "height": 900})
        made.append(Visit(browser.new_context(**options), site))
        return made[-1]

    yield make
    for visitor in made:
        visitor.context.close()
        assert visitor.faults == []


def at_rest(page: Page) -> None:
    """Wait until the page is drawn and no run is going on."""
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
    expect(page.get_by_test_id("stSkeleton")).to_have_count(0)
    expect(page.locator("[data-stale=true]")).to_have_count(0)


def shot(page: Page, name: str) -> None:
    """Keep a picture of the whole page, for people to look at."""
    PICTURES.mkdir(exist_ok=True)
    at_rest(page)
    size = page.viewport_size
    tall = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
    page.set_viewport_size({"width": size["width"], "height": max(size["height"], tall)})
    page.screenshot(path=PICTURES / f"{name}.png")
    page.set_viewport_size(size)


def run(page: Page, prompt: str) -> None:
    page.get_by_role("textbox", name="Prompt").fill(prompt)
    page.get_by_role("button", name="Run").click()


def own(smol, prompt: str, target: str | int | None = None, lenses: list[str] = QUICK) -> str:
    return headline(library.compare(smol, prompt, target=target, lenses=lenses))


def test_a_prompt_is_typed_a_word_chosen_and_the_receipts_read(visit, smol):
    page = visit().quick()
    expect(page.locator(".ll-headline")).to_have_text(own(smol, FRANCE))
    run(page, "The capital of Italy is")
    expect(page.locator(".ll-headline")).to_have_text(own(smol, "The capital of Italy is"))
    expect(page.locator(".st-key-card-ig-lens .ll-badge")).to_have_text("adds up exactly")
    expect(page.locator(".st-key-card-logit-lens .ll-badge")).to_have_text("no claim to check")
    expect(page.locator(".st-key-card-dla .ll-receipt")).to_contain_text("exact")
    second = page.locator("[data-testid=stButtonGroup] button", has_text="%").nth(1)
    word = second.locator("code").inner_text().replace("␣", " ")
    second.click()
    expect(page.locator(".ll-headline")).to_have_text(own(smol, "The capital of Italy is", word))
    page.get_by_role("textbox", name="… or type one").fill(" Rome")
    expect(page.locator(".ll-headline")).to_have_text(own(smol, "The capital of Italy is", " Rome"))
    page.get_by_role("textbox", name="… or type one").fill(" Ho Chi Minh City")
    expect(page.get_by_text("tokens, each read after those before it")).to_be_visible()


def test_a_bar_that_is_pointed_at_tells_its_depth_its_value_and_what_was_likeliest(visit):
    page = visit().quick()
    at_rest(page)
    page.locator(".st-key-card-ig-lens .mark-rect path").last.hover()
    tip = page.locator("#vg-tooltip-element")
    expect(tip).to_be_visible()
    expect(tip).to_contain_text("after block 29")
    for words in (
        "Share (probability)",
        "70.2",
        "Target's level before",
        "7.03",
        "Top 5 after",
        "␣Paris 77.3%",
    ):
        expect(tip).to_contain_text(words)


def test_a_click_on_the_map_shows_all_methods_at_that_token(visit, smol):
    page = visit().quick(path="/map", more="&answer=3", wait=".st-key-map canvas, .st-key-map svg.marks")
    at_rest(page)
    box = page.locator(".st-key-map canvas, .st-key-map svg.marks").first.bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.55, box["y"] + box["height"] * 0.5)
    expect(page.locator(".ll-headline")).to_contain_text("The capital of France")
    expect(page.locator(".st-key-card-ig-lens .ll-badge")).to_have_text("adds up exactly")
    position = int(re.search(r"position=(\d+)", page.url)[1])
    target = int(re.search(r"target_id=(\d+)", page.url)[1]) if "target_id" in page.url else None
    text = FRANCE + " Paris.\n"
    alone = library.compare(smol, text, position=position, target=target, lenses=QUICK)
    expect(page.locator(".ll-headline")).to_have_text(headline(alone))
    shot(page, "map")


def test_a_position_stays_and_names_the_new_word_when_the_prompt_changes(visit, smol):
    page = visit().quick()
    page.get_by_role("combobox", name="Explain the word after").click()
    page.get_by_role("option", name="2: ␣of").click()
    expect(page.locator(".ll-headline")).to_contain_text("after “The capital of”")
    run(page, "My dog likes to chase")
    expect(page.locator(".ll-headline")).to_contain_text("after “My dog likes”")
    expect(page.get_by_role("combobox", name="Explain the word after")).to_have_value("2: ␣likes")
    page.get_by_role("textbox", name="… or type one").fill(" cat")
    expect(page.locator(".ll-headline")).to_contain_text("‘␣cat’")
    expect(page.locator(".ll-headline")).to_contain_text("after “My dog likes”")


def test_a_link_opens_the_same_page_in_another_browser(visit):
    page = visit().quick("The capital of Japan is")
    page.get_by_role("textbox", name="… or type one").fill(" Kyoto")
    expect(page.locator(".ll-headline")).to_contain_text("␣Kyoto")
    page.get_by_role("textbox", name="IG-Lens: depths").fill("10,20")
    page.get_by_role("textbox", name="IG-Lens: depths").press("Enter")
    expect(page.locator(".st-key-card-ig-lens")).to_be_visible()
    page.wait_for_url("**ig-lens.depths=10%2C20**")
    at_rest(page)
    other = visit().open(page.url.removeprefix(page.url.split("/?")[0]))
    expect(other.locator(".ll-headline")).to_have_text(page.locator(".ll-headline").inner_text())
    expect(other.locator(".st-key-card-ig-lens .ll-receipt")).to_have_text(
        page.locator(".st-key-card-ig-lens .ll-receipt").inner_text()
    )


def test_charts_table_and_comparison_are_downloaded_whole(visit, smol):
    page = visit().quick()
    compared = library.compare(smol, FRANCE, lenses=QUICK)

    def fetched(label: str) -> bytes:
        with page.expect_download() as waiting:
            page.get_by_role("button", name=label).click()
        return Path(waiting.value.path()).read_bytes()

    data = json.loads(fetched("Comparison as JSON"))
    assert [entry["name"] for entry in data["lenses"]] == QUICK
    for entry, result in zip(data["lenses"], compared.results, strict=True):
        assert entry["values"] == pytest.approx(result.attribution.values.tolist(), abs=1e-6)
    table = pd.read_csv(io.BytesIO(fetched("Table as CSV")))
    assert len(table) == 31
    assert table["Logit lens (probability)"].iloc[-1] == pytest.approx(compared.probability, abs=1e-6)
    assert Image.open(io.BytesIO(fetched("Chart as PNG"))).width > 1000
    assert ElementTree.fromstring(fetched("Chart as SVG")).tag.endswith("svg")
    # Nothing that was shown is lost by it.
    expect(page.locator(".ll-headline")).to_have_text(headline(compared))


def test_two_visitors_with_four_prompts_each_get_their_own_numbers(visit, smol):
    prompts = [f"The capital of {country} is" for country in ("France", "Italy", "Japan", "Spain")]
    pages = [visit().open(f"/?lenses={QUICK[0]}") for _ in range(2)]
    expected = {prompt: own(smol, prompt, lenses=QUICK[:1]) for prompt in prompts}
    for mine, theirs in zip(prompts, reversed(prompts), strict=True):
        asked = (mine, theirs)
        for page, prompt in zip(pages, asked, strict=True):
            run(page, prompt)
        for page, prompt in zip(pages, asked, strict=True):
            expect(page.locator(".ll-headline")).to_have_text(expected[prompt])


def test_a_slow_method_of_one_visitor_does_not_hold_up_another(visit, smol):
    first = visit().open(f"/?prompt={quote('The river ' * 8)}&lenses=layer-ig,ig-lens&layer-ig.steps=50")
    expect(first.get_by_text("Computing: integrating")).to_be_visible()
    second = visit().quick("The capital of Norway is")
    run(second, "The capital of Sweden is")
    expect(second.locator(".ll-headline")).to_have_text(own(smol, "The capital of Sweden is"))
    expect(first.get_by_text("Computing: integrating")).to_be_visible()
    first.get_by_role("button", name="Do without it").click()
    expect(first.get_by_text("You chose to do without this one.")).to_be_visible()


def test_prompts_are_shown_verbatim_and_never_run(visit, smol):
    visitor = visit()
    visitor.context.on("dialog", lambda dialog: visitor.faults.append(dialog.message) or dialog.dismiss())
    page = visitor.open(f"/?lenses={QUICK[0]}")
    for prompt in (
        "It costs $5 or $10 _now_ **x** [a](b) :smile: # h",
        '"><img src=x onerror=alert(1)>',
        "a.b [x] it's",
    ):
        run(page, prompt)
        expect(page.locator(".ll-headline")).to_have_text(own(smol, prompt, lenses=QUICK[:1]))
        expect(page.get_by_role("textbox", name="Prompt")).to_have_value(prompt)
        assert page.locator(".stMain img").count() == 0


def unclipped(page: Page) -> None:
    """Every chart lies within the screen, and the page does not scroll sideways."""
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    charts = page.locator(".stVegaLiteChart canvas, .stVegaLiteChart svg.marks")
    for k in range(charts.count()):
        box = charts.nth(k).bounding_box()
        if box and not charts.nth(k).evaluate("e => !!e.closest('.st-key-map')"):
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width + 1


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("light", {}),
        ("dark", {"color_scheme": "dark"}),
        ("narrow", {"viewport": {"width": 390, "height": 844}}),
    ],
)
def test_every_page_fits_the_screen_in_light_and_dark(name, options, visit):
    visitor = visit(**options)
    page = visitor.quick(wait="text=Take it away")
    at_rest(page)
    unclipped(page)
    expect(page.get_by_text("Options", exact=True)).to_be_visible()
    dark = page.evaluate("getComputedStyle(document.querySelector('.stApp')).backgroundColor")
    assert (dark == "rgb(17, 21, 28)") == (name == "dark")
    shot(page, f"compare-{name}")
    if name == "dark":  # of the same style sheet and theme everywhere
        return
    page = visitor.quick(path="/map", more="&answer=4&position=3")
    at_rest(page)
    unclipped(page)
    shot(page, f"map-{name}")
    page = visitor.context.new_page()
    page.goto(visitor.site + "/methods")
    expect(page.get_by_text("Worked by hand")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    at_rest(page)
    shot(page, f"methods-{name}")
