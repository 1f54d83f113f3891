"""`python -m tests.benchmarks [ROW …] [--runs N] [--readme]`: run each row against its peer in this process.

A row first checks that both ways give the same numbers and what memory each takes, then times them in
turn, and prints the median of each and their ratio. `scaling` stands for all rows of that kind.
Nothing here is asserted by the tests: machines are noisy. Peers that are other packages come with
`pip install 'lensledger[bench]'`.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import lenses
from lenses.decoder import Decoder
from lenses.errors import LensesError
from tests.benchmarks import integrals, measuring, peers, rows, scaling
from tests.benchmarks.measuring import Missing, Row

README = Path(__file__).parents[2] / "README.md"
PLACE = r"(<!-- benchmarks -->\n).*?(<!-- /benchmarks -->)"
PACKAGES = ("torch", "transformers", "captum", "tuned-lens", "transformer-lens")

ROWS: dict[str, Callable[[Decoder], Row]] = {
    "map-128": lambda decoder: rows.products(decoder, 128),
    "map-512": lambda decoder: rows.products(decoder, 512),
    "map-naive-128": lambda decoder: rows.naive(decoder, 128),
    "map-tuned-lens-128": lambda decoder: peers.tuned_lens(decoder, 128),
    "map-transformer-lens-128": lambda decoder: peers.transformer_lens(decoder, 128),
    "logit-lens-tl-128": lambda decoder: peers.readings(decoder, 128),
    "ig-lens-script-exact": lambda decoder: rows.script(decoder, "observed"),
    "ig-lens-script-gradient": lambda decoder: rows.script(decoder, "gradient"),
    "conductance-5": lambda decoder: integrals.conductance(decoder, 5),
    "conductance-64": lambda decoder: integrals.conductance(decoder, 64),
    "layer-ig-5": lambda decoder: integrals.layer_ig(decoder, 5),
    "layer-ig-64": lambda decoder: integrals.layer_ig(decoder, 64),
    "ablation-64": lambda decoder: rows.ablation(decoder, 64),
    "list-64": lambda decoder: rows.lists(decoder, 64),
    "load": rows.load,
    "start": rows.start,
}


def line(name: str, decoder: Decoder, runs: int | None) -> str:
    """A row of the table; what can't be measured here says why."""
    try:
        cells = measuring.measure(ROWS[name](decoder), runs).cells
    except (Missing, LensesError) as reason:
        cells = [f"not measured: {reason}", *["–"] * 6]
    return f"| {' | '.join([f'`{name}`', *cells])} |"


def machine() -> str:
    """What the numbers were made on and with."""
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    name = found[1].strip() if found else platform.processor() or platform.machine()
    threads = torch.get_num_threads()
    return f"{name}, {os.cpu_count()} cores, {threads} in use; {', '.join(map(installed, PACKAGES))}"


def installed(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} not installed"


def lines(names: list[str], runs: int | None) -> Iterator[str]:
    """The machine, the table of rows and the table of scales, line by line as they are measured."""
    decoder = lenses.load()
    yield f"{machine()}; {decoder.name}."
    plain, growing = ([name for name in names if name in known] for known in (ROWS, scaling.SCALES))
    if plain:
        yield from ("", *measuring.HEAD.split("\n"))
        yield from (line(name, decoder, runs) for name in plain)
    if growing:
        yield from ("", *scaling.HEAD.split("\n"))
        yield from (f"| {' | '.join(cells)} |" for cells in scaling.rows(growing, decoder, runs))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.benchmarks", description=__doc__.split("\n\n")[1])
    known = [*ROWS, *scaling.SCALES]
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"scaling, {', '.join(known)}; all if none")
    parser.add_argument("--runs", type=int, metavar="N", help="timed runs of each way, for every row")
    parser.add_argument("--readme", action="store_true", help="also write the tables into README.md")
    given = parser.parse_args()
    wanted = [n for row in given.rows or known for n in (scaling.SCALES if row == "scaling" else [row])]
    if unknown := [name for name in wanted if name not in known]:
        parser.error(f"there is no row {unknown[0]}: choose from scaling, {', '.join(known)}")
    if given.runs is not None and given.runs < 1:
        parser.error("--runs must be at least 1")
    if given.readme and not re.search(PLACE, README.read_text(), flags=re.S):
        parser.error("README.md has no place for the table: add <!-- benchmarks --> and <!-- /benchmarks -->")
    given.rows = list(dict.fromkeys(wanted))
    return given


def main() -> None:
    given, made = arguments(), []
    for one in lines(given.rows, given.runs):
        print(one, flush=True)
        made.append(one)
    if given.readme:
        table = "\n".join(made)
        page = re.sub(PLACE, lambda m: m[1] + table + "\n" + m[2], README.read_text(), flags=re.S)
        README.write_text(page)


if __name__ == "__main__":
    main()
