"""Every command of the examples' README does what is shown under it, typed as it stands there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from examples.programs import ENVIRONMENT, EXAMPLES
from models.mock_server import serving

README = (EXAMPLES / "README.md").read_text(encoding="utf-8")
SERVER = "http://127.0.0.1:8080"  # where the README's model of one's own answers
NPM = EXAMPLES.parent / "tests" / "npm"  # where an example's server is, next to the examples
TIMES = re.compile(r"\d{8}-\d{6}-\w{6}|\b[\d.]+ m?s\b")

# Their own tests run these, and compare what they print with the README.
ELSEWHERE = (
    "python examples/make_tests_pass/make_tests_pass.py",
    "python examples/learn_from_runs/learn_from_runs.py",
    "python examples/wait_for_ci/wait_for_ci.py",
)
pytestmark = pytest.mark.slow


class Block(NamedTuple):
    """Commands that are typed one after the other, and what the README shows under them."""

    commands: list[str]
    shown: str

    def __str__(self) -> str:
        return self.commands[-1]


def blocks() -> Iterator[Block]:
    for text in re.findall(r"^```console\n(.*?)^```$", README, re.MULTILINE | re.DOTALL):
        lines = text.splitlines()
        commands = [line[2:] for line in lines if line.startswith("$ ")]
        block = Block(commands, "\n".join(line for line in lines if not line.startswith("$ ")))
        if str(block) not in ELSEWHERE:
            yield block


def timeless(text: str) -> str:
    lines = (line.rstrip() for line in text.splitlines())
    return TIMES.sub("…", "\n".join(lines)).strip()


def valid(schema: dict[str, Any]) -> Any:
    """Return a value that meets a schema as far as the examples' schemas go."""
    kind = schema.get("type")
    if "enum" in schema:
        return schema["enum"][0]
    if kind == "object":
        return {name: valid(item) for name, item in schema.get("properties", {}).items()}
    if kind == "array":
        return [valid(schema["items"])] * 2
    if kind in ("integer", "number"):
        return schema.get("maximum", 90)
    return "It is said at length, and then once more. " * 6


def reply(body: dict[str, Any], _: dict[str, str]) -> tuple[int, str]:
    """Answer as a model would that always does as it is told."""
    wanted = body.get("response_format", {}).get("json_schema", {}).get("schema")
    return 200, json.dumps(valid(wanted)) if wanted else "Operators: convert your files for 2.4."


@pytest.mark.parametrize("block", list(blocks()), ids=str)
def test_the_commands_of_the_readme_run_as_they_stand(block: Block, tmp_path: Path) -> None:
    """They end with 0, or with 3 where a limit is the point, and print what is shown."""
    if "folder_questions" in str(block) and not (NPM / "node_modules").exists():
        what = "the npm servers are missing: run `make npm` (needs node 20 and npm)"
        pytest.fail(what) if os.environ.get("CI") else pytest.skip(what)
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns(".loopwright"))
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "npm").symlink_to(NPM)
    with serving(reply) as url:
        script = "\n".join(["set -e", *block.commands]).replace(SERVER, url)
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=90,
        )
    assert done.returncode in (0, 3), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert timeless(done.stdout).startswith(timeless(block.shown)), done.stdout


def test_every_example_is_in_the_overview_and_has_its_section() -> None:
    """The table names each example once, under a heading that there is, and forgets no folder."""
    table = README.partition("\n## ")[0]
    linked = re.findall(r"^\| \[[^\]]+\]\(#([a-z0-9-]+)\)", table, re.MULTILINE)
    headings = re.findall(r"^## (.*)$", README, re.MULTILINE)
    anchors = [re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in headings]
    assert [anchor for anchor in anchors if anchor != "a-first-look"] == linked
    named = {path.name for path in EXAMPLES.iterdir() if not path.name.startswith((".", "_"))}
    for name in named - {"README.md"}:
        assert f"{name}/" in README or f"({name})" in README or f"/{name}" in README, name


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_every_file_that_the_readme_links_to_is_there(target: str) -> None:
    """A link leads to a file or a folder of the examples."""
    assert (EXAMPLES / target).exists()
