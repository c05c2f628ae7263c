"""A project folder with runs, the real `loopwright ui` over it, and a browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

from warm_python import WarmProcess, warm_python

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--process-per-site", "--disable-extensions", "--in-process-gpu",
]  # fmt: skip
STEPS = (Path(__file__).parent / "steps_of_runs.py").read_text("utf-8")
DOCUMENT = """
schema: loopwright/1
name: count_words
input: one
steps:
  - name: refine
    loop:
      execute: {python: "steps:write"}
      evaluate: {check: {min_words: 3}}
      adapt: {python: "steps:longer"}
      until: [passed, {max_iterations: 6}]
"""
POEM = """
schema: loopwright/1
name: poem
inputs:
  topic: {description: What it is about.}
  tone: {choices: [calm, dry], default: calm}
  lines: {type: integer, default: 4}
  rhyme: {type: boolean, default: false}
steps:
  - {name: all, set: "{{ input.topic }} {{ input.tone }} {{ input.lines }} {{ input.rhyme }}"}
"""


@dataclass
class Server:
    """The page of a folder: its address, and what a browser needs to enter."""

    url: str
    process: WarmProcess
    folder: Path
    base: str = ""
    token: str = ""
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.base, _, self.token = self.url.partition("/?token=")

    def ask(self, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
        """Ask by a program: the status and the text."""
        given = {"authorization": f"Bearer {self.token}", **headers}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            given |= {"content-type": "application/json", "x-loopwright": "1"}
        request = urllib.request.Request(self.base + path, data, given)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def events(self, path: str, last: int | None = None) -> IO[bytes]:
        """Open a stream; whoever opens it closes it."""
        headers = {"authorization": f"Bearer {self.token}"}
        if last is not None:
            headers["last-event-id"] = str(last)
        request = urllib.request.Request(self.base + path, headers=headers)
        opened: IO[bytes] = urllib.request.urlopen(request, timeout=60)
        return opened


def environ(folder: Path) -> dict[str, str]:
    """Return an environment in which nothing of the caller's is told to the command line."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LOOPWRIGHT")}
    return {**kept, "XDG_STATE_HOME": str(folder / "state"), "PYTHONUTF8": "1"}


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Call the command line in a folder."""
    return warm_python().run(
        ["-m", "loopwright", *words], cwd=folder, env=environ(folder), timeout=120
    )


@contextmanager
def serving(folder: Path, *options: str, **extra: str) -> Iterator[Server]:
    """Run `loopwright ui` in a folder; `extra` are further variables of its environment."""
    with (folder / "ui.log").open("w") as log:
        words = ["-m", "loopwright", "ui", "--no-open", *options]
        process = warm_python().start(words, cwd=folder, env=environ(folder) | extra, stderr=log)
        assert process.stdout is not None
        try:
            yield Server(process.stdout.readline().strip(), process, folder)
        finally:
            process.terminate()
            process.wait(20)
            process.stdout.close()


def prepared(folder: Path) -> Path:
    """Fill a folder with steps, a document that was agreed to, and runs of each kind."""
    (folder / "steps.py").write_text(STEPS, "utf-8")
    (folder / "count.yaml").write_text(DOCUMENT, "utf-8")
    (folder / "poem.yaml").write_text(POEM, "utf-8")
    (folder / "other.yaml").write_text(DOCUMENT.replace("count_words", "other"), "utf-8")
    words = ["-c", "import steps; steps.make()"]
    made = warm_python().run(words, cwd=folder, env=environ(folder), timeout=120)
    assert made.returncode == 0, made.stderr
    assert call(folder, "run", "count.yaml", "--yes", "--run-id", "counted").returncode == 0
    return folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs; a test that changes a run is the only one that does it to that run."""
    return prepared(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="session")
def server(folder: Path) -> Iterator[Server]:
    """The page of that folder."""
    with serving(folder) as made:
        yield made


@pytest.fixture(scope="module")  # its event loop runs in this thread: async tests want it gone
def browser() -> Iterator[Any]:
    """A window of chromium; without one these tests are skipped loudly, and fail under CI."""
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("there is no chromium: the page was not tested in a browser")
        pytest.skip("NOT TESTED: the page in a browser, there is no chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield made.new_context(reduced_motion="reduce")
        made.close()


@contextmanager
def visiting(
    browser: Any,
    server: Server,
    *,
    width: int = 1280,
    refused: bool = False,
    at: str = "/",
) -> Iterator[Any]:
    """Open a page as a person would; nothing may appear on its console or be asked elsewhere."""
    page = browser.new_page()
    page.set_viewport_size({"width": width, "height": 900})
    wrong: list[str] = []

    def said(message: Any) -> None:
        told = f"console {message.type}: {message.text}"
        known = refused and "the server responded with a status of 40" in told
        if message.type in ("error", "warning") and not known:
            wrong.append(told)

    page.on("console", said)
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("request", lambda r: None if r.url.startswith(server.base) else wrong.append(r.url))
    page.on("response", lambda r: wrong.append(f"{r.status} {r.url}") if r.status >= 500 else None)
    page.set_default_timeout(60_000)
    page.goto(f"{server.base}{at}?token={server.token}")
    page.wait_for_selector("#runs, #run, form.start")
    yield page
    page.close()
    assert wrong == []


def counted(page: Any, selector: str, count: int) -> None:
    """Wait until there are so many of something."""
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_have_count(count, timeout=60_000)
