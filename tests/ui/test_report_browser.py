"""A list in a real browser: from the upload to a page that opens with the network off, and prints."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pypdf
import pytest
from playwright.sync_api import Page, expect

from lenses import prompts, registry, report
from lenses.progress import finish
from tests.ui.server import serving
from tests.ui.test_browser import LONG, PICTURES, at_rest, browser, visit  # noqa: F401
from tests.ui.test_browser import pytestmark as needs_a_browser

pytestmark = needs_a_browser
IMAGE = '"><img src=x onerror=alert(1)>'
ROWS = [
    ("capitals", "The capital of France is", " Paris"),
    ("capitals", "The capital of Italy is", " Rome"),
    ("capitals", "The capital of Japan is", " Tokyo"),
    ("opposites", "The opposite of hot is", " cold"),
    ("opposites", "The opposite of up is", ""),
    ("odd", IMAGE, ""),
    ("odd", "It costs $5 or $10 _now_ **x** [a](b) :smile: # h", ""),
    ("odd", "", "x"),
]


def listed() -> bytes:
    file = io.StringIO()
    csv.writer(file).writerows([("group", "prompt", "target"), *ROWS])
    return file.getvalue().encode()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with serving(LENSES_RUNS=str(tmp_path_factory.mktemp("runs"))) as address:
        yield address


@pytest.fixture(scope="module")
def made(smol, tmp_path_factory) -> Path:
    """A report on disk, as somebody was sent it."""
    folder = tmp_path_factory.mktemp("made")
    chosen = [registry.get(name) for name in registry.quick()]
    finish(report.making(smol, prompts.read(listed(), "list.csv"), chosen, folder))
    return folder / "report.html"


@pytest.fixture
def sent(browser, made):  # noqa: F811
    """The report in a browser without a network; nothing may be asked for, and nothing may fail."""
    faults: list[str] = []

    def opened(width: int = 1440, scripts: bool = True) -> Page:
        context = browser.new_context(
            offline=True, viewport={"width": width, "height": 900}, java_script_enabled=scripts
        )
        page = context.new_page()
        page.on("console", lambda message: message.type == "error" and faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: faults.append(f"a script of a user's ran: {dialog.message}"))
        page.on("request", lambda r: r.url.startswith(("file:", "data:", "blob:")) or faults.append(r.url))
        page.goto(made.as_uri())
        return page

    yield opened
    assert faults == []


def shown(page: Page) -> int:
    return page.locator("#table tbody tr[data-row]:visible").count()


def test_a_list_is_uploaded_run_and_its_report_opens_with_the_network_off(visit, browser, tmp_path):  # noqa: F811
    page = visit(accept_downloads=True).open("/report", wait="text=A list of prompts")
    page.locator("input[type=file]").first.set_input_files(
        {"name": "list.csv", "mimeType": "text/csv", "buffer": listed()}
    )
    expect(page.get_by_text("columns group, prompt, target: 8 rows, 1 of them can't be run")).to_be_visible()
    expect(page.get_by_text("It will take about")).to_be_visible(timeout=LONG)
    page.screenshot(path=PICTURES / "report-before.png")
    page.get_by_role("button", name="Run 7 prompts").click()
    expect(page.get_by_text("of 8 prompts:")).to_be_visible()
    page.screenshot(path=PICTURES / "report-during.png")
    expect(page.get_by_text("IG-Lens adds up exactly in 7 of 7 prompts")).to_be_visible(timeout=LONG)
    at_rest(page)
    page.screenshot(path=PICTURES / "report-after.png")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="The report as one HTML file").click()
    waiting.value.save_as(tmp_path / "report.html")
    # Another page shows how far a run is, or that it is ready; the list is still there on the way back.
    page.get_by_role("link", name="Methods").click()
    page.get_by_role("link", name="Report").click()
    expect(page.get_by_text("IG-Lens adds up exactly in 7 of 7 prompts")).to_be_visible()
    context = browser.new_context(offline=True)
    copy = context.new_page()
    copy.goto((tmp_path / "report.html").as_uri())
    expect(copy.locator("h1")).to_have_text("8 prompts through smollm2-135m")
    expect(copy.locator(".chart svg").first).to_be_visible()
    context.close()


def test_the_page_filters_sorts_and_opens_a_prompts_ledger(sent):
    page = sent()
    expect(page.locator(".chart svg").first).to_be_visible()  # the pictures came alive
    assert shown(page) == 8
    page.get_by_placeholder("Find in prompts").fill("capital of")
    assert shown(page) == 3
    expect(page.locator("#count")).to_have_text("3 of 8 prompts")
    page.get_by_placeholder("Find in prompts").fill("")
    page.locator("#group").select_option("odd")
    assert shown(page) == 3
    page.locator("#state").select_option("failed")
    assert shown(page) == 1
    page.locator("#group").select_option("")
    page.locator("#state").select_option("")
    head = page.locator("#table th", has_text=re.compile("^p$"))
    head.click()
    cells = page.locator("#table tbody td:nth-last-child(4)")
    values = [float(v) for v in cells.evaluate_all("all => all.map(c => c.dataset.value)") if v]
    assert values == sorted(values)
    page.locator("tr", has_text="The capital of France is").locator("button.open").click()
    detail = page.locator("tr.detail")
    expect(detail).to_contain_text("␣Paris has 77.3 % after")
    expect(detail.locator("svg")).to_have_count(4)
    expect(detail).to_contain_text("exact.")
    expect(detail.locator(".onsets tr")).to_have_count(8)
    expect(detail.locator(".onsets")).to_contain_text("Half of all movement (paper)30")
    page.screenshot(path=PICTURES / "report-html-middle.png")
    page.locator("button.open", has_text=re.compile("^1$")).click()
    expect(detail).to_have_count(0)


def test_a_row_that_stands_out_is_a_link_to_its_ledger(sent):
    page = sent()
    page.locator("#notable a").first.click()
    expect(page.locator("tr.detail svg").first).to_be_visible()


@pytest.mark.parametrize("width", [1440, 390])
def test_nothing_is_wider_than_the_window(sent, width):
    page = sent(width)
    expect(page.locator(".chart svg").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=PICTURES / f"report-html-{width}.png")


def test_the_page_shows_its_pictures_and_tables_where_no_script_may_run(sent):
    page = sent(scripts=False)
    expect(page.locator(".chart img")).to_have_count(2 + 4 + 1)
    expect(page.locator("#table tbody tr")).to_have_count(8)
    expect(page.get_by_text("That takes scripts")).to_be_visible()


def test_the_page_prints_whole(sent, tmp_path):
    page = sent()
    expect(page.locator(".chart svg")).to_have_count(2 + 4 + 1)
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    pages = [sheet.extract_text() for sheet in pypdf.PdfReader(tmp_path / "report.pdf").pages]
    assert 3 <= len(pages) <= 6
    whole = "\n".join(pages)
    assert "Find in prompts" not in whole  # what only works on a screen is left out
    for words in ("Does it add up?", "Provenance", "The capital of France is", "SHA-256"):
        assert words in whole
    # No chart is cut: what stands above it and the title of the axis below it are on one sheet.
    charts = {"All prompts": "onset depth", "IG-Lens": "mean share", "Logit lens": "mean level"}
    for title, axis in charts.items():
        assert any(re.search(rf"^{title}", text, re.M) and axis in text for text in pages), title
    # A4 less its margins: no figure is higher than a sheet, so that the browser can keep each whole.
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 688, "height": 1000})
    heights = page.locator("figure").evaluate_all("all => all.map(f => f.getBoundingClientRect().height)")
    assert max(heights) < 1000
    widths = page.locator("figure svg").evaluate_all("all => all.map(s => s.getBoundingClientRect().right)")
    assert max(widths) <= 689
