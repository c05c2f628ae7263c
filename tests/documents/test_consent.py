"""Consent: what reaches a model is in the list that a person approves, and `check` prints the same list."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic_ai import models

from loopwright import run, run_sync
from loopwright.documents import Loaded, Settings, load
from loopwright.errors import ConfigurationError, DocumentError
from loopwright.evaluators import metric
from models.mock_server import serving

FILES = (".env", "notes.txt", "data/a.txt", "data/b.txt", "sub/inner.txt", "sub/data/a.txt")
ENVIRON = {"FIRST_TOKEN": "secret of FIRST_TOKEN", "SECOND_TOKEN": "secret of SECOND_TOKEN"}
SECRET = re.compile(r"secret of ([\w./]+[\w])")


@dataclass
class World:
    """A folder with a secret in each file, and a server that records what it receives."""

    folder: Path
    url: str
    received: list[str] = field(default_factory=list)

    def load(self, steps: list[dict[str, Any]], called: list[dict[str, Any]] = ()) -> Loaded:  # type: ignore[assignment]
        """Write the documents and load the first one."""
        head = {"schema": "loopwright/1", "model": "openai_compatible:any", "model_url": self.url}
        if called:
            inner = {**head, "name": "inner", "steps": called}
            (self.folder / "sub" / "inner.yaml").write_text(yaml.safe_dump(inner, sort_keys=False))
        main = self.folder / "main.yaml"
        main.write_text(yaml.safe_dump({**head, "name": "main", "steps": steps}, sort_keys=False))
        return load(main, Settings(environ=ENVIRON, root=self.folder))

    def sent(self, loaded: Loaded, value: Any = None) -> set[str]:
        """Run a document and return the names of the secrets that the server received."""
        self.received.clear()

        async def running() -> None:
            async with loaded.resources["models"]:
                await run(loaded, value)

        # A path without a known kind of file is refused when it is known.
        with suppress(ConfigurationError):
            asyncio.run(running())
        return {name for text in self.received for name in SECRET.findall(text)}


@pytest.fixture(autouse=True)
def _no_paid_model() -> None:
    """The models of these tests are on this machine."""
    models.ALLOW_MODEL_REQUESTS = True


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The folder and its server."""
    folder = tmp_path_factory.mktemp("world")
    for name in FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"secret of {name}\n")
    (folder / "link.txt").symlink_to(".env")
    received: list[str] = []

    def answer(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, str]:
        received.append(f"{body} {headers}")
        return 200, "yes"

    with serving(answer) as url, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield World(folder, f"{url}/v1", received)


def consented(loaded: Loaded, folder: Path) -> set[str]:
    """Return the secrets that the list of the question covers."""
    plan = loaded.plan()
    actions = loaded.local_actions()
    assert list(actions.files) == plan["files"] and list(actions.commands) == plan["commands"]
    covered = {
        name for name in ENVIRON if any(key.startswith(f"{name} to ") for key in plan["keys"])
    }
    for name in FILES:
        lines = {name, *(f"any file in {folder}" for folder in map(str, Path(name).parents))}
        named = any(name in command for command in plan["commands"])
        if named or lines & set(plan["files"]):
            covered.add(name)
    # Without an approval nothing of this machine may arrive.
    return covered if actions else set()


NAMES = st.sampled_from([".env", "../.env", "b.txt", "link.txt"])
LISTS = st.sampled_from(
    [" file://{} ", "file://data/{{{{ input }}}}", "file://{{{{ input }}}}", "file://{{% if true %}}{}{{% endif %}}",
     "{{{{ input }}}}"]
)  # fmt: skip
PATHS = st.sampled_from(
    [
        "{}",
        "data/{{{{ input }}}}",
        "{{{{ input }}}}",
        "{{% if true %}}{}{{% endif %}}",
        "http{{{{ input }}}}",
    ]
)


def asking(number: int, **more: Any) -> dict[str, Any]:
    """Return a step that sends its input and the outputs before it."""
    return {"name": f"ask{number}", "prompt": "{{ input }} {{ value }}", **more}


def listing(items: str) -> list[dict[str, Any]]:
    """Return a step that sends each item of a list."""
    return [{"name": "list", "each": {"items": items, "execute": {"prompt": "{{ loop.current }}"}}}]


@st.composite
def ways(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw steps that may send a file or a variable."""
    name = draw(NAMES)
    kind = draw(st.sampled_from(["list", "files", "memory", "command", "key"]))
    n = draw(st.integers(1, 10**6))
    items = draw(LISTS).format(name)
    if kind == "list":
        return listing(items)
    if kind == "memory":
        kept = {"operation": "write", "namespace": "notes", "text": "{{ loop.current }}"}
        read = {"operation": "read", "namespace": "notes", "text": "secret"}
        steps = [{"name": f"list{n}", "each": {"items": items, "execute": {"memory": kept}}}]
        return [*steps, {"name": f"read{n}", "memory": read}, asking(n)]
    if kind == "command":
        return [{"name": f"cat{n}", "shell": ["cat", name]}, asking(n)]
    more = {
        "files": {"files": [draw(PATHS).format(name)]},
        "key": {"api_key_env": draw(st.sampled_from(sorted(ENVIRON)))},
    }
    return [asking(n, **more.get(kind, {}))]


def wrapped(steps: list[dict[str, Any]], how: str) -> list[dict[str, Any]]:
    """Put steps into another one."""
    if how == "loop":
        return [{"name": "around", "loop": {"execute": {"steps": steps}, "max_iterations": 1}}]
    if how == "fallback":
        return [{"name": "around", "fallback": [{"name": "inner", "steps": steps}]}]
    if how == "parallel":
        return [{"name": "around", "parallel": [{"name": "inner", "steps": steps}]}]
    return steps


@settings(deadline=None, max_examples=40, derandomize=True)
@example(steps=listing("file://data/{{ input }}"), how="plain", called=False, value="../.env")
@example(steps=listing("file://data/{{ input }}"), how="loop", called=True, value="../../.env")
@example(
    steps=[asking(1, files=["data/{{ input }}"])], how="plain", called=True, value="../../.env"
)
@given(
    steps=ways(),
    how=st.sampled_from(["plain", "loop", "fallback", "parallel"]),
    called=st.booleans(),
    value=NAMES,
)
def test_what_a_host_receives_is_in_the_consent(
    world: World, steps: list[dict[str, Any]], how: str, called: bool, value: str
) -> None:
    """Every way by which a file or a variable can reach a host is in the list, whatever its templates say."""
    steps = wrapped(steps, how)
    try:
        if called:
            loaded = world.load(
                [{"name": "call", "workflow": "sub/inner.yaml", "input": "{{ input }}"}], steps
            )
        else:
            loaded = world.load(steps)
    except DocumentError:
        return
    covered = consented(loaded, world.folder)
    assert world.sent(loaded, value) <= covered


CASES: list[tuple[dict[str, Any], str, set[str], list[str]]] = [
    ({"each": {"items": "file://.env", "execute": {"prompt": "{{ loop.current }}"}}}, "", {".env"}, [".env"]),
    (
        {"each": {"items": "file://data/{{ input }}", "execute": {"prompt": "{{ loop.current }}"}}},
        "b.txt", {"data/b.txt"}, ["any file in data"],
    ),
    (
        {"each": {"items": "file://data/{{ input }}", "execute": {"prompt": "{{ loop.current }}"}}},
        "../.env", set(), ["any file in data"],
    ),
    ({"prompt": "?", "files": ["data/{{ input }}"]}, "a.txt", {"data/a.txt"}, ["any file in data"]),
    ({"prompt": "?", "files": ["data/{{ input }}"]}, "../.env", set(), ["any file in data"]),
    ({"prompt": "?", "files": ["link.txt"]}, "", {".env"}, [".env"]),
    ({"prompt": "{{ input }}"}, ".env", set(), []),
]  # fmt: skip


@pytest.mark.parametrize(("step", "value", "arrives", "listed"), CASES)
def test_each_way_to_a_model(
    world: World, step: dict[str, Any], value: str, arrives: set[str], listed: list[str]
) -> None:
    """A constant path is listed by its real name; a template is listed by its folder, and stays in it."""
    loaded = world.load([{"name": "way", **step}])
    assert loaded.plan()["files"] == listed
    assert bool(loaded.local_actions()) == bool(listed)
    assert world.sent(loaded, value) == arrives


def test_the_changes_that_a_judge_sees_are_listed_with_the_host(
    world: World, tmp_path: Path
) -> None:
    """One line for the changes of a workspace, and one sentence for what an agent reads."""
    text = f"""
schema: loopwright/1
name: judged
model: openai_compatible:any
model_url: {world.url}
steps:
  - name: work
    loop:
      workspace: {{kind: snapshot}}
      execute: {{agent: {{cli: claude, prompt: Fix it.}}}}
      evaluate: {{judge: {{criterion: It is good., of: changes, model: "openai:gpt-4o", model_url: https://judges.example.org}}}}
      max_iterations: 1
"""
    (tmp_path / "judged.yaml").write_text(text)
    plan = load(tmp_path / "judged.yaml", Settings(environ={})).plan()
    assert plan["files"] == ["the changes of the workspace (judges.example.org)"]
    assert plan["agents"] == ["claude sends what it reads to its own provider"]


def test_another_host_for_a_file_is_another_approval(world: World) -> None:
    """An approval of a file is for the hosts that were shown: an edited or recorded address asks again."""
    step = {"name": "way", "prompt": "?", "files": ["notes.txt"]}
    digests = {
        world.load([{**step, "model_url": url}]).local_actions().digest
        for url in (world.url, "https://one.example.org", "https://two.example.org")
    }
    assert len(digests) == 3


@pytest.mark.parametrize(
    "workspace",
    [
        {"kind": "snapshot", "setup": "touch PWNED"},
        {"kind": "snapshot", "reset": ["touch", "PWNED"]},
    ],
)
def test_commands_that_prepare_a_workspace_are_asked_about(
    tmp_path: Path, workspace: dict[str, Any]
) -> None:
    """`setup` and `reset` run on this machine, so a document with nothing else needs an approval."""
    loop = {"workspace": workspace, "execute": {"set": "x"}, "max_iterations": 1}
    document = {
        "schema": "loopwright/1",
        "name": "prepared",
        "steps": [{"name": "a", "loop": loop}],
    }
    (tmp_path / "prepared.yaml").write_text(yaml.safe_dump(document))
    actions = load(tmp_path / "prepared.yaml").local_actions()
    assert actions.commands == ("touch PWNED",)
    assert actions


def test_an_idea_that_links_out_of_the_folder_is_not_read(tmp_path: Path) -> None:
    """The file that describes a change is read in the folder only: a link to a key of the user is no idea."""
    (tmp_path / "key").write_text("secret of the user")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "IDEA.txt").symlink_to(tmp_path / "key")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        details = run_sync(metric("n", "echo 1"), None).output.details
        (folder / "IDEA.txt").unlink()
        (folder / "IDEA.txt").write_text("faster")
        assert run_sync(metric("n", "echo 1"), None).output.details == {"idea": "faster"}
    assert details == {}
