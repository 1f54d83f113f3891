"""A comparison and the registry on a terminal, by rich; texts of users are never read as markup."""

from __future__ import annotations

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lenses import tables
from lenses.attribution import Claim, Verdict
from lenses.comparison import Comparison, Result
from lenses.tokens import visible

UP, DOWN = "blue", "dark_orange"
COLOURS = {
    Verdict.EXACT: "green",
    Verdict.CONVERGED: "green",
    Verdict.NOT_CONVERGED: "yellow",
    Verdict.NOT_CLAIMED: "dim",
    Verdict.BROKEN: "bold red",
}
BLOCKS = " ▏▎▍▌▋▊▉█"


def show(comparison: Comparison, console: Console) -> None:
    """Everything that `lenses compare` prints."""
    model = comparison.model
    console.print(
        Text(f"{model['name']} · {model['blocks']} blocks · {model['dtype']} on {model['device']} · ")
        + Text(f"readout gap {model['readout_gap']:.1e}")
    )
    console.print(_tokens(comparison))
    console.print(
        Text("Target: ", style="bold")
        + Text(f"{visible(comparison.target_text)} (id {comparison.target.token})", style="bold cyan")
        + Text(f" after token {comparison.target.position}: {comparison.probability:.2%}")
    )
    console.print(_table(comparison, console.width))
    for result in comparison.results:
        console.print(_receipt(result))
    for warning in comparison.warnings:
        console.print(Text("Warning: ", style="yellow") + Text(warning))


def methods(console: Console) -> None:
    """The table of `lenses methods`."""
    _print_frame(tables.methods(), console)


def models(console: Console) -> None:
    """The table of `lenses models`."""
    from lenses.catalog import MODELS

    rows = [(m.name, m.title, m.parameters, m.note, m.hub or "PyPI") for m in MODELS]
    _print_frame(pd.DataFrame(rows, columns=["name", "model", "parameters", "where from", "id"]), console)
    console.print(
        "--model also takes any Hub id (owner/model), a local folder in safetensors, or a .gguf file."
    )


def _print_frame(frame: pd.DataFrame, console: Console) -> None:
    table = Table(*frame.columns, show_lines=True)
    for row in frame.itertuples(index=False):
        table.add_row(*(Text(str(cell)) for cell in row))
    console.print(table)


def _tokens(comparison: Comparison) -> Text:
    line = Text("Tokens: ", style="bold")
    for token in comparison.prompt.tokens:
        here = token.position == comparison.target.position
        line += Text(visible(token.text), style="bold cyan" if here else "none")
        line += Text(f" {token.id}  ", style="dim")
    return line


def _table(comparison: Comparison, width: int) -> Table:
    frame = tables.wide(comparison)
    onsets = tables.onsets(comparison)
    bar = max(0, min(12, (width - 12) // len(frame.columns) - 12))
    table = Table("depth", box=None, pad_edge=False, header_style="bold")
    for result in comparison.results:
        name = result.attribution.lens
        table.add_column(f"{name}\n{result.attribution.unit.value}", justify="left", no_wrap=True)
    largest = frame.abs().max()
    for depth in frame.index:
        cells = [
            _cell(frame.loc[depth, name], largest[name], bar, onsets.get(name) == depth)
            for name in frame.columns
        ]
        table.add_row(Text("embed" if depth == 0 else str(depth), style="dim"), *cells)
    return table


def _cell(value: float, largest: float, width: int, onset: bool) -> Text:
    """A number, a bar of its size, and the mark of the onset."""
    if pd.isna(value):
        return Text("")
    eighths = round(8 * width * abs(value) / largest) if largest > 0 else 0
    bar = "█" * (eighths // 8) + (BLOCKS[eighths % 8] if eighths % 8 else "")
    text = Text(f"{tables.value(value):>8} ") + Text(bar, style=UP if value >= 0 else DOWN)
    return text + Text(" ◀ onset", style="bold magenta") if onset else text


def _receipt(result: Result) -> Text:
    colour = COLOURS[result.additivity.verdict]
    dot = "○" if result.attribution.claim is Claim.LEVEL else "●"
    name = Text(f"{dot} {result.attribution.lens}: ", style=colour)
    return name + Text(tables.receipt(result)) + Text(f"  [{result.seconds:.2f} s]", style="dim")
