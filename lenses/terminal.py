"""A comparison and the registry on a terminal, by rich; texts of users are never read as markup."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lenses import depth_tables, registry
from lenses.attribution import Claim, Verdict
from lenses.catalog import MODELS
from lenses.receipt import receipt
from lenses.receipt import value as shown
from lenses.tokens import visible

if TYPE_CHECKING:
    from pathlib import Path

    from lenses.depth_map import DepthMap
    from lenses.findings import Findings
    from lenses.onsets import Onsets
    from lenses.outcome import Comparison, Result
    from lenses.summary import Summary
    from lenses.validating import Validated

UP, DOWN = "blue", "dark_orange"
COLOURS = {
    Verdict.EXACT: "green",
    Verdict.CONVERGED: "green",
    Verdict.NOT_CONVERGED: "yellow",
    Verdict.NOT_CLAIMED: "dim",
    Verdict.BROKEN: "bold red",
}
BLOCKS = " ▏▎▍▌▋▊▉█"
FAILURES = 5
DEPTH, ONSET = 7, " ◀ onset"
"""The width of the column of depths, and the mark of an onset."""
HEIGHTS = "·▁▂▃▄▅▆▇█"


def show(comparison: Comparison, console: Console) -> None:
    """Everything that `lenses compare` prints."""
    console.print(_model(comparison.model))
    console.print(_tokens(comparison))
    console.print(
        Text("Target: ", style="bold")
        + Text(f"{visible(comparison.target_text)} (id {comparison.target.token})", style="bold cyan")
        + Text(f" after token {comparison.target.position}: {comparison.probability:.2%}")
    )
    for table in _tables(comparison, console.width):
        console.print(table)
    for result in comparison.results:
        console.print(_receipt(result))
    if comparison.setting_in is not None:
        _onsets(comparison.setting_in, console)
    for warning in comparison.warnings:
        console.print(Text("Warning: ", style="yellow") + Text(warning))


def depth_map(found: DepthMap, console: Console) -> None:
    """Everything that `lenses map` prints: one line a token, its depths as a strip of shades."""
    console.print(_model(found.model))
    largest = float(np.nanmax(np.abs(found.values), initial=0))
    console.print(
        Text(f"{found.title}, {found.lens.unit.value}, depth {found.depths[0]} to {found.depths[-1]}: ")
        + _strip([largest], largest) + Text(f" = {shown(largest)}, ") + _strip([-largest], largest)
        + Text(f" = {shown(-largest)}")
    )  # fmt: skip
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("token", "then", "p", "depths", "most"):
        table.add_column(name, justify="right" if name == "p" else "left", no_wrap=True)
    for column in found.columns:
        here, a = found.prompt.tokens[column.position], column.attribution
        written = found.answer_from is not None and column.position + 1 >= found.answer_from
        table.add_row(
            Text(visible(here.text)),
            Text(visible(column.target.text), style="bold cyan" if written else "cyan"),
            Text(f"{column.target.probability:.2%}"),
            _strip(a.values, largest),
            Text(f"depth {a.depths[np.nan_to_num(np.abs(a.values)).argmax()]}", style="dim"),
        )
    console.print(table)
    for warning in found.warnings:
        console.print(Text("Warning: ", style="yellow") + Text(warning))


def report(found: Findings, folder: Path, console: Console) -> None:
    """What `lenses report` says when it is done: the findings in sentences, and where the files are."""
    from lenses import aggregates

    for sentence in aggregates.sentences(found):
        console.print(Text(sentence), soft_wrap=True)
    _failures(found, "summary.csv", console)
    console.print(Text("Open ", style="bold") + Text(str(folder / "report.html"), style="bold cyan"))


def distributed(found: Summary, folder: Path, console: Console) -> None:
    """What `lenses report --engine ray` says when it is done, and how to get the files that it leaves out."""
    from lenses.summary import sentences

    for sentence in sentences(found.counts):
        console.print(Text(sentence), soft_wrap=True)
    _first(found.failures, found.counts.failed, "summary/", console)
    console.print(Text("Open ", style="bold") + Text(str(folder / "report.html"), style="bold cyan"))
    where = f"{folder / 'results'} and {folder / 'summary'}"
    more = "For report.json, report.xlsx and the CSV files of a single list: the same without Ray, --resume."
    console.print(Text(f"All numbers are in {where} (Parquet). {more}"), soft_wrap=True)


def fitted(record: dict[str, Any], folder: Path, console: Console) -> None:
    """How far a tuned lens is from the model at each depth, and where it is kept."""
    losses = record["loss"]
    table = Table("depth", *losses, title="KL to the model's final distribution, nats, held-out text")
    for depth, row in enumerate(zip(*losses.values(), strict=True)):
        table.add_row(str(depth), *(f"{loss:.3f}" for loss in row))
    console.print(table)
    console.print(
        Text(f"Kept in {folder}, and in your cache, where the lens tuned-lens finds it by itself."),
        soft_wrap=True,
    )


def validation(found: Validated, folder: Path, console: Console) -> None:
    """What `lenses validate` says when it is done: the results in sentences, and where the files are."""
    from lenses import validation_words

    for sentence in validation_words.sentences(found):
        console.print(Text(sentence), soft_wrap=True)
    _failures(found.findings, "validation.json", console)
    console.print(Text("Open ", style="bold") + Text(str(folder / "validation.html"), style="bold cyan"))


def methods(console: Console) -> None:
    """The table of `lenses methods`."""
    _print_rows(registry.table(), console)


def models(console: Console) -> None:
    """The table of `lenses models`."""
    columns = {"name": "name", "model": "title", "parameters": "parameters", "where from": "note"}
    rows = [{k: getattr(m, v) for k, v in columns.items()} | {"id": m.hub or "PyPI"} for m in MODELS]
    _print_rows(rows, console)
    console.print("--model also takes any Hub id (owner/model), a safetensors folder, or a .gguf file.")


def _failures(found: Findings, all_in: str, console: Console) -> None:
    """The first rows that failed, each with its reason."""
    _first(found.failed, len(found.failed), all_in, console)


def _first(failed: Any, count: int, all_in: str, console: Console) -> None:
    for row in failed.head(FAILURES).to_dict("records"):
        console.print(Text(f"Row {row['row']}: ", style="yellow") + Text(row["failure"]), soft_wrap=True)
    if (more := count - FAILURES) > 0:
        console.print(Text(f"… and {more} more failures, all in {all_in}"))


def _print_rows(rows: list[dict[str, str]], console: Console) -> None:
    table = Table(*rows[0], show_lines=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row.values()))
    console.print(table)


def _model(model: dict[str, Any]) -> Text:
    return Text(
        f"{model['name']} · {model['blocks']} blocks · {model['dtype']} on {model['device']} · "
        f"readout gap {model['readout_gap']:.1e}"
    )


def _strip(values: Iterable[float], largest: float) -> Text:
    """One shaded cell a value: its colour is the sign, its height the size."""
    strip = Text()
    for value in values:
        step = round(8 * abs(value) / largest) if largest > 0 and not math.isnan(value) else 0
        strip.append(HEIGHTS[step], style=UP if value >= 0 else DOWN)
    return strip


def _tokens(comparison: Comparison) -> Text:
    line = Text("Tokens: ", style="bold")
    for token in comparison.prompt.tokens:
        here = token.position == comparison.target.position
        line += Text(visible(token.text), style="bold cyan" if here else "none")
        line += Text(f" {token.id}  ", style="dim")
    return line


def _onsets(found: Onsets, console: Console) -> None:
    """The onset by every definition, how far other choices move it, and when it means little."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("onset by", "depth", "fewer depths", "other baselines"):
        table.add_column(name, no_wrap=True)
    words = depth_tables.setting_in(found)[["title", "at", "by_depths", "by_baseline"]]
    for title, at, *ranges in words.to_numpy().tolist():
        table.add_row(Text(title), Text(at, style="bold magenta"), *map(Text, ranges))
    console.print(table)
    for warning in found.warnings:
        console.print(Text("Onset: ", style="yellow") + Text(warning))


def _tables(comparison: Comparison, width: int) -> list[Table]:
    """The values by depth: one table, or several below one another where the terminal is narrow."""
    onsets, left = comparison.onsets(), 0
    beside: list[list[Result]] = []
    for result in comparison.results:
        needs = _needs(result, result.attribution.lens in onsets)
        if needs > left:
            beside.append([])
            left = width - DEPTH
        beside[-1].append(result)
        left -= needs
    return [_table(results, onsets, width) for results in beside]


def _needs(result: Result, onset: bool) -> int:
    """How many characters a lens's column takes without bars."""
    a = result.attribution
    return 2 + max(len(a.lens), len(a.unit.value), 9 + len(ONSET) * onset)


def _table(results: list[Result], onsets: dict[str, int | None], width: int) -> Table:
    columns = {
        r.attribution.lens: dict(zip(r.attribution.depths.tolist(), r.attribution.values, strict=True))
        for r in results
    }
    taken = DEPTH + sum(_needs(r, r.attribution.lens in onsets) for r in results)
    bar = max(0, min(12, (width - taken) // len(results)))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("depth", no_wrap=True, min_width=5)
    for result in results:
        name = result.attribution.lens
        table.add_column(f"{name}\n{result.attribution.unit.value}", justify="left", no_wrap=True)
    largest = {name: np.nanmax(np.abs([*values.values()])) for name, values in columns.items()}
    for depth in sorted(set().union(*columns.values())):
        cells = [
            _cell(values.get(depth, math.nan), largest[name], bar, onsets.get(name) == depth)
            for name, values in columns.items()
        ]
        table.add_row(Text("embed" if depth == 0 else str(depth), style="dim"), *cells)
    return table


def _cell(value: float, largest: float, width: int, onset: bool) -> Text:
    """A number, a bar of its size, and the mark of the onset."""
    if math.isnan(value):
        return Text("")
    eighths = round(8 * width * abs(value) / largest) if largest > 0 else 0
    bar = "█" * (eighths // 8) + (BLOCKS[eighths % 8] if eighths % 8 else "")
    text = Text(f"{shown(value):>8} ") + Text(bar, style=UP if value >= 0 else DOWN)
    return text + Text(ONSET, style="bold magenta") if onset else text


def _receipt(result: Result) -> Text:
    colour = COLOURS[result.additivity.verdict]
    dot = "○" if result.attribution.claim is Claim.LEVEL else "●"
    name = Text(f"{dot} {result.attribution.lens}: ", style=colour)
    return name + Text(receipt(result)) + Text(f"  [{result.seconds:.2f} s]", style="dim")
