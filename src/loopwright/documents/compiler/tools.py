"""Commands of a document: a list or a constant script, into which values go by environment and standard input only.

Tools and servers of a document, and what its steps do with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...engine.step import Step
from ...errors import listed, nearest
from ...models.endpoints import origin_of
from ...prompts.tool_prompt import Selected, ToolStep
from ...templates.variables import TemplatedValue, rendered
from ...tools.base import NAME, Tool
from ...tools.command import CommandTool, command_tool
from ...tools.function import tool
from ...tools.mcp.server import mcp_server
from ...tools.shell import MAX_OUTPUT, shell
from ..schema.document import Action, Document
from ..schema.tools import ServerSpec, ToolSpec
from ..schema.traverse import variables_of
from .compilation import Compilation, Path_

__all__ = ["command_value", "compile_command", "compile_tool_step", "compile_tools", "tools_named"]


def compile_command(compilation: Compilation, spec: Action, name: str, at: Path_) -> Step | None:
    """Return the step of a command, or None with a problem."""
    _hands_on(compilation, spec.pass_env, f"the command of {name}")
    path = (*at, "shell")
    command = spec.shell or []
    texts = [command] if isinstance(command, str) else list(command)
    for i, text in enumerate(texts):
        if "{{" in text or "{%" in text:
            place = path if isinstance(command, str) else (*path, i)
            compilation.problem(
                place,
                "a template inside command text would let a value become a command; "
                "pass values by env or stdin",
            )
            return None
    env = {k: command_value(compilation, (*at, "env", k), v) for k, v in spec.env.items()}
    stdin = None if spec.stdin is None else command_value(compilation, (*at, "stdin"), spec.stdin)
    cwd = compilation.inside(spec.cwd or ".", (*at, "cwd"))
    if spec.output not in (None, "text", "json", "result"):
        compilation.problem((*at, "output"), f"{spec.output!r} is none of text, json, result")
        return None
    return compilation.attempt(
        path,
        lambda: shell(
            command,
            name=name,
            env=env,
            pass_env=spec.pass_env,
            stdin=stdin,
            cwd=cwd,
            output=spec.output or "text",
            idempotent=bool(spec.idempotent),
            allow_exit=tuple(spec.allow_exit),
            max_output=spec.max_output or MAX_OUTPUT,
            usage=spec.usage,
        ),
    )


def _hands_on(compilation: Compilation, names: Iterable[str], place: str) -> None:
    """Keep which variables go to a command: whoever runs the document is asked about it."""
    compilation.project.keys += [f"{variable} to {place}" for variable in names]


def command_value(compilation: Compilation, path: Path_, text: Any) -> Any:
    """Compile a templated value to a function of (value, ctx), as commands take them."""
    found = compilation.filled(path, text)
    if not found.names and found.source == text and "{" not in str(text):
        return text
    return _Value(found)


class _Value:
    """A templated value of a command: called with (value, ctx)."""

    def __init__(self, part: TemplatedValue) -> None:
        self.part = part
        self.source = part.source

    def __call__(self, value: Any, ctx: Any) -> Any:
        return rendered(self.part, ctx, value)


def compile_tools(document: Document, compilation: Compilation) -> dict[str, Any]:
    """Return the tools and servers of a document by name; those that are wrong are problems."""
    made: dict[str, Any] = {}
    for name, spec in document.servers.items():
        if _named(compilation, ("servers", name), name):
            made[name] = _server(compilation, name, spec, ("servers", name))
    for name, one in document.tools.items():
        at: Path_ = ("tools", name)
        if name in document.servers:
            compilation.problem(at, f"{name!r} is a server already; give the tool another name")
        elif _named(compilation, at, name):
            made[name] = _tool(compilation, name, one, at)
    return made


def _named(compilation: Compilation, at: Path_, name: str) -> bool:
    if NAME.fullmatch(name):
        return True
    compilation.problem(at, f"{name!r} cannot be called; use 1 to 64 letters, digits, - and _")
    return False


def _server(compilation: Compilation, name: str, spec: ServerSpec, at: Path_) -> Any:
    cwd = compilation.inside(spec.cwd or ".", (*at, "cwd"))
    place = origin_of(spec.url) if spec.url else f"the server {name}"
    compilation.project.keys += [f"{variable} to {place}" for variable in variables_of(spec)]
    return compilation.attempt(
        at,
        lambda: mcp_server(
            name, spec.command or (), url=spec.url or "", env=spec.env, pass_env=spec.pass_env,
            cwd=cwd if spec.command else None, headers=spec.headers,
            token_env=spec.token_env or "", only=spec.only, idempotent=spec.idempotent,
            approve=spec.approve, timeout=spec.timeout, start_timeout=spec.start_timeout,
        ),
    )  # fmt: skip


def _tool(compilation: Compilation, name: str, spec: ToolSpec, at: Path_) -> Any:
    told: dict[str, Any] = {
        "idempotent": spec.idempotent, "approve": spec.approve, "timeout": spec.timeout,
        "description": spec.description or "",
    }  # fmt: skip
    if spec.commands is not None:
        _hands_on(compilation, spec.pass_env, f"the tool {name}")
        allowed = spec.commands
        cwd = compilation.inside(spec.cwd or ".", (*at, "cwd"))
        return compilation.attempt(
            at,
            lambda: command_tool(
                name, allowed, env=spec.env, pass_env=spec.pass_env, cwd=cwd, **told
            ),
        )
    found = compilation.function((*at, "python"), spec.python or "")
    if found is None or not compilation.project.execute:
        return found and Tool(name)  # only looked at: it is never called
    return compilation.attempt((*at, "python"), lambda: tool(found, name=name, **told))


def tools_named(
    compilation: Compilation, names: list[str], at: Path_, *, alone: bool = False
) -> list[Any] | None:
    """Return the tools that a step names: a tool, a server, or `server.tool`; None with a problem.

    `alone` says that `at` holds one name, not a list of them.
    """
    found: list[Any] = []
    chosen: dict[str, list[str]] = {}
    before = len(compilation.problems)
    for i, name in enumerate(names):
        place = at if alone else (*at, i)
        owner, dot, inner = name.partition(".")
        one = compilation.tools.get(owner if dot else name)
        if one is None:
            known = (owner if dot else name) in compilation.declared
            if not known and not compilation.gaps.head:
                hint = nearest(name, compilation.declared) or _known(name, compilation.declared)
                compilation.problem(place, f"there is no tool or server {name!r}{hint}")
        elif not dot:
            found.append(one)
        elif not hasattr(one, "tools"):
            compilation.problem(place, f"{owner!r} is a tool; only servers have tools inside")
        else:
            chosen.setdefault(owner, []).append(inner)
    found += [Selected(compilation.tools[owner], inner) for owner, inner in chosen.items()]
    return None if len(compilation.problems) > before else found


def _known(name: str, names: Mapping[str, Any] | frozenset[str]) -> str:
    return listed(name, sorted(names), lead="there are") or "; declare it in tools:"


def compile_tool_step(
    compilation: Compilation, spec: Action, name: str, at: Path_
) -> ToolStep | None:
    """Compile one call of a tool; None with a problem."""
    path = (*at, "tool")
    assert spec.tool is not None
    found = tools_named(compilation, [spec.tool], path, alone=True)
    if not found:
        return None
    (one,) = found
    if hasattr(one, "tools") and not isinstance(one, Selected):
        compilation.problem(path, f"{spec.tool!r} is a server; name a tool of it: {spec.tool}.NAME")
        return None
    if spec.pass_env:
        if not isinstance(one, CommandTool):
            compilation.problem(
                (*at, "pass_env"),
                f"pass_env belongs to commands, and {spec.tool!r} is none; a server has a pass_env "
                "of its own, and a Python function sees all variables",
            )
            return None
        commands = one
        _hands_on(compilation, spec.pass_env, f"the tool {spec.tool} in {name}")
        one = compilation.attempt((*at, "pass_env"), lambda: commands.passing(spec.pass_env))
        if one is None:
            return None
    arguments = None
    if spec.arguments is not None:
        arguments = compilation.filled((*at, "arguments"), spec.arguments)
    return ToolStep(one, name=name, arguments=arguments)
