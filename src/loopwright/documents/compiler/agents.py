"""Coding agents of documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...coding.agents.manifest import Manifest, load_manifest
from ...coding.agents.step import AgentStep, agent
from ..schema.agents import CodingAgentSpec
from ..schema.document import Action
from ..yaml.source import Location
from .compilation import Compilation
from .tools import command_value, compile_sandbox

__all__ = ["compile_agent"]

# The options that are passed on as they are, if the document sets them.
_PLAIN = (
    "model", "session", "permissions", "max_turns", "max_usd", "timeout", "idle_timeout", "pass_env", "home",
    "args", "billing", "count_notional", "stream", "workspace", "idempotent",
)  # fmt: skip


def compile_agent(
    compilation: Compilation, action: Action, name: str, at: Location
) -> AgentStep | None:
    """Compile a task for a coding agent; None if it has problems."""
    assert action.agent is not None
    spec, path = action.agent, (*at, "agent")
    prompt = compilation.template((*path, "prompt"), spec.prompt)
    env = {k: command_value(compilation, (*path, "env", k), v) for k, v in spec.env.items()}
    for i, word in enumerate(spec.args):
        if "{{" in word or "{%" in word:
            message = "args cannot contain template values; pass values through env or the prompt"
            compilation.problem((*path, "args", i), message)
    manifest = _manifest(compilation, spec, path)
    if spec.cwd is not None or spec.workspace == "here":
        # A document of somebody else must not work in other folders.
        cwd = compilation.inside(spec.cwd or ".", (*path, "cwd"))
    if manifest is None:
        return None
    # The user approves which variables the program receives. A manifest could have the name of another program.
    names = manifest.keys if spec.pass_env is None else spec.pass_env
    compilation.project.keys += [f"{variable} to the agent {spec.cli}" for variable in names]
    # A path may be one of the workspace, which a setup makes.
    if "/" not in manifest.program[0] and "PATH" not in spec.env:
        compilation.project.needs.append((compilation.source.problem((*path, "cli"), ""), manifest))
    options: dict[str, Any] = {
        key: value
        for key in _PLAIN
        if key in spec.model_fields_set and (value := getattr(spec, key)) is not None
    }
    options["sandbox"] = compile_sandbox(compilation, spec.sandbox)
    output = spec.output if isinstance(spec.output, str) else spec.output["schema"]
    price = None if spec.price is None else {"input": spec.price.input, "output": spec.price.output}
    if spec.cwd is not None or spec.workspace == "here":
        options["cwd"] = cwd
    step = compilation.attempt(
        path,
        lambda: agent(manifest, prompt, name=name, env=env, output=output, price=price, **options),
    )
    if step is not None:
        compilation.project.coding.append((compilation.source.problem(path, ""), step))
    return step


def _manifest(compilation: Compilation, spec: CodingAgentSpec, path: Location) -> Manifest | None:
    if "/" in spec.cli or spec.cli.endswith((".yaml", ".yml")):
        # Reported here, because a file outside the project is not read.
        before = len(compilation.problems)
        file = Path(compilation.inside(spec.cli, (*path, "cli")))
        if len(compilation.problems) > before:
            return None
        return compilation.attempt(
            (*path, "cli"), lambda: load_manifest(str(file), content=_content(compilation, file))
        )
    return compilation.attempt((*path, "cli"), lambda: load_manifest(spec.cli))


def _content(compilation: Compilation, file: Path) -> bytes | None:
    """Return the content of a manifest, read once: the approval covers the bytes that the run uses."""
    contents = compilation.project.contents
    # A missing file is reported by the reader of manifests.
    if file not in contents and (file.is_file() or compilation.project.settings.recorded.has(file)):
        contents[file] = compilation.project.content(file)
    return contents.get(file)
