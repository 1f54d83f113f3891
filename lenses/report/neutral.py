"""Text that a spreadsheet would run as a formula, made harmless, and back again.

Law: `original(neutral(text)) == text` for every text, and no `neutral` text begins like a formula.
Source: OWASP, "CSV Injection".
"""

from __future__ import annotations

import re

_FORMULA = r"[=+\-@\t\r\n＝＋－＠]"
_WOULD_RUN = re.compile(rf"'*\s*{_FORMULA}")
_MADE_HARMLESS = re.compile(rf"''*\s*{_FORMULA}")


def neutral(text: str) -> str:
    """The text with an apostrophe before it where a spreadsheet might run it, or where that is ambiguous."""
    return f"'{text}" if _WOULD_RUN.match(text) else text


def original(text: str) -> str:
    """The text that `neutral` was given."""
    return text[1:] if _MADE_HARMLESS.match(text) else text
