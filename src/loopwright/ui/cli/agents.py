"""`agents`: the coding agents that this machine has, their manifests, and a trial of one.

A trial gives the agent a small task in a new folder, which may cost a few cents. The exit code is 1 if the trial
fails, or a named agent is not installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast

import typer
import yaml

from ...coding.agents import Manifest, agent, load_manifest, manifest_names
from ...engine.run import run_sync
from ...errors import ConfigurationError, nearest
from ...records import Result
from ...tools.sandbox import sandbox_problem
from .. import formatting as texts
from ..read_limits import seconds
from .options import AsJson
from .output import Output

_ACTIONS = ("list", "show", "try")
_SECONDS = 20.0  # for the version of one program
_TASK = (
    "Create a file with the name answer.txt in the current folder. Its content is the word done, "
    "and nothing else. Do not do anything else."
)


class Installed(TypedDict):
    """One row of the list."""

    name: str
    title: str
    installed: bool
    version: str
    tested: list[str]
    keys: list[str]
    install: str


def agents(
    action: Annotated[
        str, typer.Argument(metavar="[list|show|try]", help="Action.  [default: list]")
    ] = "list",
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="An agent, or the path of a manifest.")
    ] = "",
    model: Annotated[
        str, typer.Option("--model", metavar="NAME", help="Model, of the agent in a trial.")
    ] = "",
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="DURATION", help="Limit on time, of a trial.")
    ] = "3m",
    as_json: AsJson = False,
) -> int:
    """List coding agents and whether a sandbox works, show a manifest, or try an agent on a small task.

    Examples:
        loopwright agents
        loopwright agents show claude
        loopwright agents try claude --timeout 5m
    """
    if action not in _ACTIONS:
        hint = nearest(action, _ACTIONS) or f"; use one of {', '.join(_ACTIONS)}"
        raise ConfigurationError(f"agents: {action!r} is not an action{hint}")
    if action != "list" and not name:
        raise ConfigurationError(
            f"agents {action}: name an agent: {', '.join(manifest_names())}, or the path of a manifest"
        )
    with Output(as_json=as_json) as output:
        if action == "list":
            return _list(output, as_json=as_json)
        manifest = load_manifest(name)
        if action == "show":
            data = manifest.model_dump(exclude_defaults=True)
            if as_json:
                output.write_result(json.dumps(data, ensure_ascii=False) + "\n")
            else:
                output.write_result(
                    yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)
                )
            return 0
        return _try(manifest, model, seconds("--timeout", timeout), output, as_json=as_json)


def _list(output: Output, *, as_json: bool) -> int:
    rows: list[Installed] = []
    for manifest in map(load_manifest, manifest_names()):
        found = shutil.which(manifest.program[0]) is not None
        rows.append(
            {
                "name": manifest.name,
                "title": manifest.title,
                "installed": found,
                "version": _version(manifest) if found else "",
                "tested": list(manifest.tested),
                "keys": [key for key in manifest.keys if os.environ.get(key)],
                "install": manifest.install,
            }
        )
    problem = sandbox_problem()
    if as_json:
        data = {"agents": rows, "sandbox": {"works": not problem, "problem": problem}}
        output.write_result(json.dumps(data, ensure_ascii=False) + "\n")
    for row in rows:
        state = (
            (row["version"] or "installed", "green")
            if row["installed"]
            else ("not installed", "dim")
        )
        keys = f"keys: {', '.join(row['keys'])}" if row["keys"] else "no key in the environment"
        detail = keys if row["installed"] else row["install"]
        output.write((f"{row['name']:9}", "bold"), f" {row['title']:12} ", state, f"  {detail}")
    answer = (problem, "yellow") if problem else ("bubblewrap works", "green")
    output.write(("sandbox  ", "bold"), " ", answer, wrap=True)
    return 0


def _version(manifest: Manifest) -> str:
    words = [*manifest.program, *manifest.version]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = done.stdout.split("\n")
    return texts.one_line(lines[0])[:60] if done.returncode == 0 else ""


def _try(manifest: Manifest, model: str, timeout: float, output: Output, *, as_json: bool) -> int:
    with tempfile.TemporaryDirectory(
        prefix="loopwright-try-", ignore_cleanup_errors=True
    ) as folder:
        step = agent(
            manifest, _TASK, model=model, timeout=timeout, workspace="here", cwd=folder, output="result",
        )  # fmt: skip
        result = run_sync(step)
        file = Path(folder, "answer.txt")
        content = file.read_text("utf-8", "replace")[:200].strip() if file.is_file() else ""
    done = result.satisfied and content == "done"
    if as_json:
        error = (
            None
            if result.error is None
            else {"kind": result.error.kind, "message": result.error.message}
        )
        data = {"agent": manifest.name, "ok": done, "result": result.output, "error": error}
        output.write_result(json.dumps(data, ensure_ascii=False) + "\n")
    else:
        output.write(
            (manifest.name, "bold"),
            ": ",
            ("works", "green") if done else ("failed", "red"),
            f": {_sentence(result, content)}",
            wrap=True,
        )
        for warning in result.warnings:
            output.write((texts.one_line(warning), "yellow"), wrap=True)
    return 0 if done else 1


def _sentence(result: Result, content: str) -> str:
    if result.error is not None:
        return texts.one_line(f"{result.error.kind}: {result.error.message}")
    output = cast("dict[str, Any]", result.output)
    facts = [
        f"version {output['version']}" if output["version"] else "",
        texts.duration(output["seconds"]),
    ]
    facts.append(texts.spent(result.usage) if result.usage else "no usage reported")
    if content != "done":
        facts.append("it did not write the file; its permissions may be too low")
    return ", ".join(fact for fact in facts if fact)
