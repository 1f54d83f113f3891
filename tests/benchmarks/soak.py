"""`python -m tests.benchmarks.soak [SESSIONS] [MINUTES]`: many visitors of one server, for a while.

Eight sessions in Chromium use the app with the default model for ten minutes, each in an order of its own:
new prompts, other words, maps, and lists of prompts, with a pause to read after each; all open the page at
once. Every headline that a page shows, for however short, and every summary of a list is held against the
library's numbers, which are computed before the server starts. Told are requests, wrong numbers, dead
sessions, errors in the browser, the server's memory at minute 2 and at the end, and the seconds of each kind
of request; the exit status is 1 where any number is wrong, a session died, a browser had an error, or memory
grew (`soak_told`). Browser and server share the machine.
"""

from __future__ import annotations

import asyncio
import csv
import io
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from playwright.async_api import Browser, Page, async_playwright, expect

import lenses
from lenses.headline import headline
from tests.benchmarks.soak_told import Told, report, strangers
from tests.ui.server import CHROMIUM, FLAGS, serving_process

QUICK = ["ig-lens", "logit-lens", "dla"]
COUNTRIES = [
    "France", "Italy", "Japan", "Spain", "Egypt", "Peru", "Kenya", "India", "Cuba", "Chile", "Ghana",
    "Norway", "Sweden", "Greece", "Turkey",
]  # fmt: skip
PROMPTS = [f"The {what} of {country} is" for what in ("capital", "language", "king") for country in COUNTRIES]
WORDS = [" the", " a", " not"]
LISTED = 12
"""Prompts of a list."""
WAIT = 180_000
"""Milliseconds after which a session counts as dead."""
OBSERVE = """() => {
    window.headlines = [];
    const look = () => document.querySelectorAll(".ll-headline").forEach(shown => {
        if (window.headlines.at(-1) !== shown.textContent) window.headlines.push(shown.textContent);
    });
    new MutationObserver(look).observe(document.body, {childList: true, subtree: true, characterData: true});
    look();
}"""
"""Keeps every headline that the page shows from now on."""
PAUSE = (1.0, 4.0)
"""Seconds that a visitor reads."""
KINDS = {"prompt": 6, "word": 4, "map": 2, "list": 1}
"""How often each is done, among all."""


@dataclass(frozen=True)
class Truth:
    """What the library says, by prompt and word."""

    headlines: dict[tuple[str, str | None], str]
    probabilities: dict[str, float]


def truth() -> Truth:
    """Every headline that a session may see, and the likeliest word's probability for the lists."""
    decoder = lenses.load("smollm2-135m")
    headlines, probabilities = {}, {}
    for prompt in PROMPTS:
        for word in (None, *WORDS):
            found = lenses.compare(decoder, prompt, target=word, lenses=QUICK)
            headlines[prompt, word] = headline(found)
            if word is None:
                probabilities[prompt] = found.probability
    return Truth(headlines, probabilities)


class Session:
    """One visitor; `told` is shared by all."""

    def __init__(self, page: Page, address: str, number: int, truth: Truth, told: Told) -> None:
        self.page, self.address, self.number, self.truth, self.told = page, address, number, truth, told
        self.draw, self.prompt, self.lists = random.Random(number), PROMPTS[number], 0
        self.word: str | None = None  # that was typed last: it stays when the prompt changes
        self.headline, self.lives = "", True
        page.set_default_timeout(WAIT)
        page.context.on("weberror", lambda found: told.faults.append(f"session {number}: {found.error}"))

    async def open(self) -> None:
        """The page with the first prompt; one that never comes is a dead session."""
        self.headline = self.truth.headlines[self.prompt, self.word]
        try:
            await self.page.goto(f"{self.address}/?prompt={quote(self.prompt)}&lenses={','.join(QUICK)}")
            await self.page.wait_for_selector("text=is loaded")
            await expect(self.page.locator(".ll-headline")).to_have_text(self.headline, timeout=WAIT)
            await self.page.evaluate(OBSERVE)
        except Exception as error:  # noqa: BLE001  # as below
            self.told.dead.append(f"session {self.number}, opening: {error}")
            self.lives = False

    async def work(self, until: float) -> None:
        while self.lives and time.monotonic() < until:
            (kind,) = self.draw.choices(list(KINDS), list(KINDS.values()))
            began = time.monotonic()
            try:
                await getattr(self, f"a_{kind}")()
            except Exception as error:  # noqa: BLE001  # a dead session is what is counted here
                self.told.dead.append(f"session {self.number}, {kind}: {error}")
                return
            self.told.seconds[kind].append(time.monotonic() - began)
            await asyncio.sleep(self.draw.uniform(*PAUSE))

    async def a_prompt(self) -> None:
        """Another prompt in the form, and its headline."""
        await self._compare()
        self.prompt = self.draw.choice([prompt for prompt in PROMPTS if prompt != self.prompt])
        await self.page.get_by_role("textbox", name="Prompt").fill(self.prompt)
        await self.page.get_by_role("button", name="Run").click()
        await self._says()

    async def a_word(self) -> None:
        """Another word for the prompt that is there."""
        await self._compare()
        box = self.page.get_by_role("textbox", name="… or type one")
        self.word = self.draw.choice([word for word in WORDS if word != self.word])
        await box.fill(self.word)
        await self._says()

    async def a_map(self) -> None:
        """The map of another prompt, in a tab of its own, as a link opens it."""
        prompt = self.draw.choice(PROMPTS)
        page = await self.page.context.new_page()
        page.set_default_timeout(WAIT)
        await page.goto(f"{self.address}/map?prompt={quote(prompt)}&lenses={','.join(QUICK)}&answer=2")
        await page.wait_for_selector(".st-key-map canvas, .st-key-map svg.marks")
        await page.close()

    async def a_list(self) -> None:
        """A list of prompts to its end, and the summary that is saved."""
        self.lists += 1
        prompts = self.draw.sample(PROMPTS, LISTED)
        page = await self.page.context.new_page()
        page.set_default_timeout(WAIT)
        await page.goto(f"{self.address}/report")
        await page.wait_for_selector("text=A list of prompts")
        name = f"s{self.number}-{self.lists}.csv"
        text = "prompt\n" + "".join(f"{prompt}\n" for prompt in prompts)
        await page.locator("input[type=file]").first.set_input_files(
            {"name": name, "mimeType": "text/csv", "buffer": text.encode()}
        )
        await page.get_by_role("button", name=f"Run {LISTED} prompts").click()
        await page.wait_for_selector(f"text=adds up exactly in {LISTED} of {LISTED} prompts")
        async with page.expect_download() as waiting:
            await page.get_by_role("button", name="summary.csv").click()
        with TemporaryDirectory() as folder:
            path = Path(folder) / name
            await (await waiting.value).save_as(path)
            lines = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"))))
        for prompt, line in zip(prompts, lines, strict=True):
            expected = self.truth.probabilities[prompt]
            if line["prompt"] != prompt or abs(float(line["probability"]) - expected) > 1e-5:
                self.told.wrong.append(f"list {name}: {line} and not {prompt} {expected}")
        await page.close()

    async def _compare(self) -> None:
        """The visitor never left the page that compares."""
        await self.page.bring_to_front()

    async def _says(self) -> None:
        """The headline becomes the library's; any other than that and the one before is a wrong number."""
        before, self.headline = self.headline, self.truth.headlines[self.prompt, self.word]
        try:
            await expect(self.page.locator(".ll-headline")).to_have_text(self.headline, timeout=WAIT)
        except AssertionError as error:
            self.told.wrong.append(f"session {self.number}: never {self.headline!r}: {error}")
        seen = await self.page.evaluate("window.headlines.splice(0)")
        self.told.wrong += [
            f"session {self.number}: {text!r}, between {before!r} and {self.headline!r}"
            for text in strangers(seen, before, self.headline)
        ]


def resident(process: int) -> float:
    """The megabytes of a process and of those that it started."""
    kilobytes = 0
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            status = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        except OSError:  # it has ended meanwhile
            continue
        if int(path.parent.name) == process or int(status["PPid"]) == process:
            kilobytes += int(status.get("VmRSS", "0 kB").split()[0])
    return kilobytes / 1024


async def watch(process: int, told: Told, began: float, until: float) -> None:
    while time.monotonic() < until:
        told.memory.append((time.monotonic() - began, resident(process)))
        await asyncio.sleep(5)


async def soak(sessions: int, minutes: float, known: Truth) -> Told:
    told = Told()
    with TemporaryDirectory() as runs, serving_process(LENSES_RUNS=runs) as (address, process):
        async with async_playwright() as playwright:
            browser: Browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            visitors = []
            for number in range(sessions):
                context = await browser.new_context(accept_downloads=True)
                visitors.append(Session(await context.new_page(), address, number, known, told))
            await asyncio.gather(*(visitor.open() for visitor in visitors))
            began = time.monotonic()
            until = began + 60 * minutes
            await asyncio.gather(
                watch(process.pid, told, began, until), *(visitor.work(until) for visitor in visitors)
            )
            told.memory.append((time.monotonic() - began, resident(process.pid)))
            await browser.close()
        assert process.poll() is None, "the server ended"
    return told


def main() -> None:
    sessions = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    minutes = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
    told = asyncio.run(soak(sessions, minutes, truth()))
    print(f"{sessions} sessions, {minutes:g} minutes\n")
    print(report(told, KINDS))
    sys.exit(bool(told.failures))


if __name__ == "__main__":
    main()
