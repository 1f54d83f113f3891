"""A list of prompts on a Ray cluster: Ray Data hands the rows to workers, each with the model in memory.

Law: the same outcomes as on one machine (within the roundings of other batches), whichever worker
computes a row and however often one dies; a run goes on here that was begun there, and the other way
round. Ray is an extra: `pip install 'lensledger[ray]'`.
"""

from __future__ import annotations

from importlib.util import find_spec

from lenses.errors import BadOption


def require() -> None:
    """Raises `BadOption` where Ray is not installed."""
    if find_spec("ray") is None:
        raise BadOption("--engine ray needs Ray, which is not installed: pip install 'lensledger[ray]'")
