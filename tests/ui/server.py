"""A running app and a real browser, for the browser tests and the benchmark."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

HOME = Path(__file__).parent.parent.parent
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
]  # fmt: skip
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def serving(script: Path = HOME / "app.py", **environment: str) -> Iterator[str]:
    """The address of a server of its own process that runs the script."""
    with serving_process(script, **environment) as (address, _):
        yield address


@contextmanager
def serving_process(
    script: Path = HOME / "app.py", **environment: str
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The same, with the process."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--server.headless", "true",
               "--server.port", str(port)]  # fmt: skip
    kept = {k: v for k, v in os.environ.items() if k != "HF_HUB_OFFLINE"}
    process = subprocess.Popen(
        command, cwd=HOME, env={**kept, "HF_HUB_OFFLINE": "1", **environment},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        address = f"http://localhost:{port}"
        _wait(f"{address}/_stcore/health", process)
        yield address, process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def browsing() -> Iterator[Browser]:
    """A headless Chromium; raises where there is none."""
    if CHROMIUM is None:
        raise RuntimeError("there is no chromium on the path: install it (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def _wait(address: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert process.poll() is None, "the server ended"
        try:
            urllib.request.urlopen(address, timeout=5)
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(f"{address} does not answer")
