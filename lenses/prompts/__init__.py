"""Lists of prompts: the bytes of a file in, its rows out, and the bad ones say what is wrong where.

    from lenses import prompts

    found = prompts.read(data, "capitals.csv")
    found.described()   # CSV, UTF-8, commas, header in line 1, columns prompt, target: 20 rows
    found.good, found.bad, found.notes

How a file is read is found out from its bytes and its name, told in `manner` and `notes`, and can be
chosen with `Manner`. Text stays as it was typed.
"""

from lenses.prompts.reading import ENDINGS, read
from lenses.prompts.rows import AS_FOUND, Manner, PromptList, Row

__all__ = ["AS_FOUND", "ENDINGS", "Manner", "PromptList", "Row", "read"]
