"""The files of numbers: tidy results, one line a prompt, and both as a workbook.

Text that a spreadsheet would run is neutral in the CSV files and plain text in the workbook; the
Parquet file holds it as it is.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from lenses.errors import BadRun
from lenses.findings import COLUMNS, Findings, Outcome
from lenses.report.neutral import neutral

RESULTS = pa.schema(
    [
        ("row", pa.int64()), ("id", pa.string()), ("group", pa.string()), ("prompt", pa.string()),
        ("target", pa.string()), ("lens", pa.string()), ("depth", pa.int64()), ("unit", pa.string()),
        ("value", pa.float64()),
    ]
)  # fmt: skip
CHUNK, TEXT = 500, 16 << 20
"""Prompts, and characters of text in their lines, that are written at once."""
SHEET_LINES = 100_000
"""Lines of results in the workbook; more would take minutes to open."""
LINE_END = "\r\n"  # by which a lone carriage return is quoted as well
CELL = 32_767
"""Characters that a spreadsheet's cell holds."""
CUT = " … (cut: a cell holds no more; the CSV and Parquet files have all)"


def tidy(one: Outcome) -> pd.DataFrame:
    """A prompt's numbers, one line a lens and depth, in the columns of `results.csv`."""
    assert one.comparison is not None
    frames = []
    for result in one.comparison.results:
        a = result.attribution
        frames.append(
            pd.DataFrame({"lens": a.lens, "depth": a.depths, "unit": a.unit.value, "value": a.values})
        )
    frame = pd.concat(frames, ignore_index=True)
    row = one.row
    about = [row.row, row.id, row.group, row.prompt, one.comparison.target_text]
    return frame.assign(**dict(zip(RESULTS.names[:5], about, strict=True)))[RESULTS.names]


class Results:
    """Writes `results.parquet` and `results.csv` prompt by prompt: use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._csv = open(folder / "results.csv", "w", encoding="utf-8", newline="")  # noqa: SIM115
        self._parquet = pq.ParquetWriter(folder / "results.parquet", RESULTS, compression="zstd")
        self._waiting: list[pd.DataFrame] = []
        self._text = 0
        self._csv.write(",".join(RESULTS.names) + LINE_END)

    def __enter__(self) -> Results:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._write()
        self._parquet.close()
        self._csv.close()

    def add(self, one: Outcome) -> None:
        """One prompt's lines, if it has any."""
        if one.comparison is not None:
            self._waiting.append(tidy(one))
            row, lines = one.row, len(self._waiting[-1])
            self._text += lines * sum(map(len, (row.prompt, row.id, row.group, one.comparison.target_text)))
        if len(self._waiting) >= CHUNK or self._text >= TEXT:
            self._write()

    def _write(self) -> None:
        if not self._waiting:
            return
        frame = pd.concat(self._waiting, ignore_index=True)
        self._parquet.write_table(pa.Table.from_pandas(frame, RESULTS, preserve_index=False))
        _neutral(frame).to_csv(self._csv, header=False, index=False, lineterminator=LINE_END)
        self._waiting, self._text = [], 0


def summary(findings: Findings) -> pd.DataFrame:
    """One line a prompt in the columns of `summary.csv`, then the file's own columns.

    A column of the file that is called like one of ours gets “(file)” behind its name.
    """
    frame = findings.rows[list(COLUMNS)].copy()
    own = dict.fromkeys(name for extra in findings.rows["extra"] for name in extra)
    for name in own:
        taken = name
        while taken in frame:
            taken = f"{taken} (file)"
        frame[taken] = [extra.get(name, "") for extra in findings.rows["extra"]]
    return frame


def write_summary(path: Path, findings: Findings) -> None:
    """`summary.csv`: every row of the input has exactly one line, failed or not."""
    frame = _neutral(summary(findings)).rename(columns=neutral)
    frame.to_csv(path, index=False, lineterminator=LINE_END, encoding="utf-8")


def write_workbook(path: Path, findings: Findings) -> None:
    """`report.xlsx`: the summary, and the results up to `SHEET_LINES` lines."""
    import xlsxwriter

    options = {"strings_to_formulas": False, "strings_to_urls": False, "nan_inf_to_errors": False}
    results = _results(findings)
    try:
        with xlsxwriter.Workbook(str(path), options) as book:
            head = book.add_format({"bold": True, "bottom": 1})
            _sheet(book.add_worksheet("summary"), summary(findings), head)
            _sheet(book.add_worksheet("results"), results, head)
            _sheet(book.add_worksheet("about"), _about(findings, results), head)
    except xlsxwriter.exceptions.FileCreateError as error:
        raise BadRun(
            f"{path} can't be written ({error}): close it where it is open, and run again with --resume"
        ) from error


def _about(findings: Findings, results: pd.DataFrame) -> pd.DataFrame:
    """What the sheets hold, and how much of it."""
    whole, kept = len(findings.explained), results["row"].nunique()
    said = f"all {whole} prompts that could be explained"
    if kept < whole:
        said = f"the first {kept} of {whole} prompts; all of them are in results.csv and results.parquet"
    lines = {
        "prompt list": findings.settings["file"]["name"],
        "model": str(findings.model["name"]),
        "summary": f"one line for each of {len(findings.rows)} rows of the list",
        "results": f"one line for each prompt, method and depth: {said}",
    }
    return pd.DataFrame({"what": list(lines), "said": list(lines.values())})


def _results(findings: Findings) -> pd.DataFrame:
    """The tidy results out of the findings, whole prompts, up to `SHEET_LINES` lines."""
    about = findings.rows.set_index("row")[["id", "group", "prompt", "target"]]
    most = SHEET_LINES // max(1, sum(len(lens.depths) for lens in findings.lenses))
    kept = findings.explained["row"].head(most)
    frames = []
    for order, lens in enumerate(findings.lenses):
        chosen = np.isin(lens.rows, kept)
        rows = np.repeat(lens.rows[chosen], len(lens.depths))
        frame = pd.DataFrame({"row": rows, "lens": lens.lens, "unit": lens.unit.value, "order": order})
        frame["depth"] = np.tile(lens.depths, int(chosen.sum()))
        frames.append(frame.assign(value=lens.values[chosen].reshape(-1)))
    if not frames:
        return pd.DataFrame(columns=RESULTS.names)
    frame = pd.concat(frames).sort_values(["row", "order"], kind="stable").join(about, on="row")
    return frame[RESULTS.names]


def _sheet(sheet: Any, frame: pd.DataFrame, head: Any) -> None:
    """A frame as a sheet: numbers as numbers, text as text that nothing runs, blanks as blanks."""
    for place, name in enumerate(frame.columns):
        sheet.write_string(0, place, _fitting(str(name)), head)
        for line, value in enumerate(frame[name].tolist(), start=1):
            if isinstance(value, str):
                if value:
                    sheet.write_string(line, place, _fitting(value))
            elif not pd.isna(value) and np.isfinite(value):
                sheet.write_number(line, place, value)
    sheet.freeze_panes(1, 0)
    sheet.autofilter(0, 0, max(1, len(frame)), max(0, len(frame.columns) - 1))
    for place, name in enumerate(frame.columns):
        sheet.set_column(place, place, 40 if name in ("prompt", "warnings", "failure") else 12)


def _fitting(text: str) -> str:
    return text if len(text) <= CELL else text[: CELL - len(CUT)] + CUT


def _neutral(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with its text neutral; numbers stay as they are."""
    changed = {
        name: frame[name].map(neutral, na_action="ignore")
        for name in frame.columns
        if not pd.api.types.is_numeric_dtype(frame[name])
    }
    return frame.assign(**changed)
