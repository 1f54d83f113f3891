"""A run's files: one HTML for people without Python, and the same numbers for those with.

from lenses import report

findings = finish(report.making(decoder, prompts.read(data, "capitals.csv"), lenses, folder))
again = report.read(data)     # a report.json, as if just computed
report.write(folder, again)   # report.html, .json, .xlsx, results.parquet, .csv, summary.csv
"""

from lenses.report.archive import Archived, read
from lenses.report.making import estimating, making, readable
from lenses.report.validation_files import VALIDATION_FILES, write_validation
from lenses.report.writing import FILES, Run, write, writing

__all__ = [
    "FILES", "VALIDATION_FILES", "Archived", "Run", "estimating", "making", "read", "readable", "write",
    "write_validation", "writing",
]  # fmt: skip
