"""Take the screenshots of the documentation: `make docs-images`.

Runs examples in a temporary folder, opens the page in chromium and saves the pictures to `docs/images`.
Fails if an element that a picture should show is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
FLAGS = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
RUNS = (
    "examples/job_matching/job_matching.yaml --run-id job-search",
    "examples/make_tests_pass/make_tests_pass.yaml --run-id repair",
    (
        "examples/interview_analysis/interview_analysis.yaml --run-id interview"
        " --input-file examples/interview_analysis/transcript.txt"
        " --replies examples/interview_analysis/replies.yaml"
    ),
    (
        "examples/polish_text/polish.yaml --run-id polish-text --input-file examples/polish_text/draft.txt"
        " --replies examples/polish_text/replies.yaml"
    ),
    (
        "examples/prompt_search/prompt_search.yaml --run-id prompt-search --seed 2"
        " --replies examples/prompt_search/replies.yaml"
    ),
    "examples/tune_training/tune_training.yaml --run-id tune-training",
    "examples/bin_packing/bin_packing.yaml --run-id bin-packing --seed 3",
)
# The folder of the pictures is a temporary one; its name would differ in each picture.
SHORTEN = """folder => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(folder, '~');
}"""
SELECTOR_SECONDS = 15


@dataclass(frozen=True)
class Picture:
    """One screenshot: its file, the page, the window, and the elements that it must show."""

    name: str
    path: str
    width: int
    height: int
    shows: tuple[str, ...]


PICTURES = (
    Picture(
        "page-runs",
        "/",
        1180,
        520,
        ("#runs tbody tr:nth-child(4)", ".spark", "select[name=status]"),
    ),
    Picture(
        "page-run",
        "/runs/job-search",
        1180,
        1180,
        ("#run", ".chart .uplot", "tr.iteration"),
    ),
    Picture(
        "page-phone",
        "/runs/polish-text",
        390,
        844,
        ("#run", ".chart", "tr.iteration"),
    ),
    *(
        Picture(name, f"/runs/{name}", 1180, 800, ("#run", ".chart", "tr.iteration"))
        for name in ("prompt-search", "tune-training", "bin-packing")
    ),
)


def environment(folder: Path) -> dict[str, str]:
    """Return an environment without settings and approvals of the user."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOOPWRIGHT")}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    return {**kept, "PATH": path, "XDG_STATE_HOME": str(folder / "state"), "PYTHONUTF8": "1"}


def record(folder: Path) -> None:
    """Run the examples that the pictures show."""
    shutil.copytree(
        ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns(".loopwright")
    )
    for words in RUNS:
        command = [sys.executable, "-m", "loopwright", "run", *words.split(), "--yes"]
        ended = subprocess.run(
            command, cwd=folder, env=environment(folder), capture_output=True, timeout=1800
        )
        if ended.returncode not in (0, 3):  # 3: it used its iterations
            raise SystemExit(f"{words}: {ended.stderr.decode()}")


@contextmanager
def page_server(folder: Path) -> Iterator[str]:
    """Run `loopwright ui` and hand on its address."""
    command = [sys.executable, "-m", "loopwright", "ui", "--no-open"]
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def take(browser: Any, address: str, picture: Picture, folder: Path) -> None:
    """Save one picture; a missing element is an error of playwright that names it."""
    base, _, token = address.partition("/?token=")
    window = browser.new_page(
        viewport={"width": picture.width, "height": picture.height}, color_scheme="light"
    )
    window.goto(f"{base}/?token={token}")
    window.goto(f"{base}{picture.path}")
    for selector in picture.shows:
        window.wait_for_selector(selector, state="attached", timeout=SELECTOR_SECONDS * 1000)
    window.evaluate(SHORTEN, str(folder))
    window.screenshot(path=IMAGES / f"{picture.name}.png")
    window.close()


def main() -> int:
    """Take every picture."""
    from playwright.sync_api import (
        sync_playwright,
    )  # a development tool, not installed with the package

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("there is no chromium: install it to take pictures", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "project"
        folder.mkdir()
        record(folder)
        with page_server(folder) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            for picture in PICTURES:
                take(browser, address, picture, folder)
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
