"""A Ray cluster: started on this machine or joined, kept quiet, and what it has room for."""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

# A worker runs in the environment that lenses runs in: Ray must not make another one of it.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")

import ray
import ray.data
import ray.exceptions

from lenses.errors import BadOption, BadRun

MOST_OF_A_CPU = 0.75
"""What a worker asks of Ray at most, so that there is always room for the tasks that read.

Workers that take every CPU starve those tasks, and a run then waits for ever without a word.
"""
CPUS_A_WORKER = 4
"""CPUs for each worker where no number of workers is given."""


@dataclass(frozen=True)
class Workers:
    """How many workers, what each asks of Ray, and with how many threads it computes."""

    count: int
    cpus: float
    gpus: float
    threads: int


@contextmanager
def joined(address: str | None) -> Iterator[None]:
    """A cluster: that of an address, else the one that this process is in, else one that is
    started on this machine, and ends here.

    Raises `BadOption` where none answers at the address, and makes of whatever Ray raises inside a `BadRun`.
    """
    for library in ("ray", "ray.data"):
        logging.getLogger(library).setLevel(logging.CRITICAL)  # what ends a run comes as an exception
    context = ray.data.DataContext.get_current()
    before = context.enable_progress_bars, context.print_on_execution_start
    context.enable_progress_bars = context.print_on_execution_start = False
    ours = not ray.is_initialized()
    with _only_python_on_stderr() if ours else nullcontext():
        if ours:
            _start(address)
        try:
            yield
        except ray.exceptions.RayError as error:
            raise BadRun(
                f"Ray ended the run: {said(error)}; what is done is kept: mend that, and run the same with "
                "--resume to go on"
            ) from error
        finally:
            context.enable_progress_bars, context.print_on_execution_start = before
            if ours:
                ray.shutdown()


def _start(address: str | None) -> None:
    try:
        ray.init(address or "local", configure_logging=False, log_to_driver=False, include_dashboard=False)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        where = f"no Ray cluster answers at {address}" if address else "Ray can't be started here"
        raise BadOption(f"{where} ({_first_line(error)}): see `ray status`, or leave --engine out") from None


@contextmanager
def _only_python_on_stderr() -> Iterator[None]:
    """Keep what Ray's C++ parts write past Python off the terminal; its errors also come as exceptions."""
    before, kept = sys.stderr, os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        with open(kept, "w", encoding=before.encoding, errors="backslashreplace", buffering=1) as screen:
            os.dup2(nothing, 2)
            sys.stderr = screen
            try:
                yield
            finally:
                screen.flush()
                os.dup2(kept, 2)
    finally:
        sys.stderr = before
        os.close(nothing)


def placed(count: int | None, gpus: float | None) -> Workers:
    """The workers that were asked for, or as many as fit: one a GPU, or one for four CPUs without any.

    Raises `BadOption` for what the cluster can never hold, where Ray would wait for ever.
    """
    nodes = [Node(one.get("CPU", 0), one.get("GPU", 0)) for one in _resources()]
    cpus, there = int(sum(node.cpus for node in nodes)), sum(node.gpus for node in nodes)
    if cpus < 1:
        raise BadOption("the Ray cluster has no CPU to work with: see `ray status`")
    share = gpus if gpus is not None else float(bool(there))
    why = f"the Ray cluster has {there:g} GPUs" if share else f"the Ray cluster has {cpus} CPUs"
    most = sum(node.holds(share) for node in nodes)
    wanted = count or (most if share else max(1, cpus // CPUS_A_WORKER))
    if wanted > most or not most:
        asked = f"{wanted or 1} workers" + (f" with {share:g} GPUs each" if share else "")
        raise BadOption(
            f"{why}, which is not enough for {asked}: ask for at most {most} with --workers, or for fewer "
            "GPUs with --gpus-per-worker"
        )
    hosts = [node for node in nodes if node.holds(share)]
    each = min(max(0.0, node.cpus - 1) / min(node.holds(share), wanted) for node in hosts)
    beside = math.ceil(wanted / len(hosts))  # Ray Data spreads its workers over the machines
    threads = min(int(node.cpus) // min(node.holds(share), beside) for node in hosts)
    return Workers(wanted, math.floor(100 * min(MOST_OF_A_CPU, each)) / 100, share, max(1, threads))


@dataclass(frozen=True)
class Node:
    """A machine of the cluster."""

    cpus: float
    gpus: float

    def holds(self, share: float) -> int:
        """How many workers with such a share of a GPU each it has room for; without one, one a CPU."""
        return math.floor(self.gpus / share + 1e-9) if share else int(self.cpus)


def _resources() -> list[dict[str, float]]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def said(error: BaseException) -> str:
    """One line of what Ray says of an error: its innermost cause, without the trace of a worker."""
    while error.__cause__ is not None:
        error = error.__cause__
    if not isinstance(error, ray.exceptions.RayTaskError):
        return _first_line(error)
    if isinstance(error.cause, ray.exceptions.UserCodeException):  # its own cause is in the trace alone
        return _innermost(str(error))
    return _first_line(error.cause)


def _innermost(trace: str) -> str:
    """What the first exception of a chain says, by Python's own way of printing one."""
    lines = trace.partition("\n\nThe above exception was")[0].splitlines()
    start = max((k for k, line in enumerate(lines) if line[:1].isspace()), default=-1) + 1
    kind, _, text = lines[start].partition(": ") if start < len(lines) else ("", "", "")
    return text or kind or "it does not say why"


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
