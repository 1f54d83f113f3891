"""Texts that stand for something else in their file, so that the reader of a row can tell."""

from __future__ import annotations


class Figure(str):
    """The text of a number, a date, or of true or false."""

    __slots__ = ()


class Nested(str):
    """The JSON of a list or an object within a row."""

    __slots__ = ()


class Fault(str):
    """The error that a cell shows, or the formula whose value its workbook does not hold."""

    __slots__ = ()
