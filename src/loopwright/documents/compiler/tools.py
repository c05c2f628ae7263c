"""Commands, tools, servers and workspaces of documents, and the steps that use them.

A command is a list or a constant script: values reach it through the environment and standard input only.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ...coding import workspace
from ...engine.context import Context
from ...engine.step import Step
from ...errors import listed, nearest
from ...records.codec import Json
from ...templates.variables import TemplatedValue, rendered
from ...tools.base import NAME, Tool, tool
from ...tools.commands import MAX_OUTPUT, CommandTool, command_tool, shell
from ...tools.mcp import McpServer, mcp_server
from ...tools.sandbox import Sandbox
from ..schema.document import Action, Document, WorkspaceKind, WorkspaceSpec
from ..schema.fields import SandboxSpec, SandboxWord, ServerSpec, ToolSpec
from ..schema.traverse import variables_of
from ..yaml.reader import Location
from .compilation import Compilation

if TYPE_CHECKING:
    from ...coding.workspace import Workspace
    from ...prompts.tool_prompt import Selected, ToolStep

__all__ = [
    "command_value",
    "compile_command",
    "compile_sandbox",
    "compile_tool_step",
    "compile_tools",
    "compile_workspace",
    "is_constant",
    "record_variables",
    "resolve_tools",
]


def compile_command(compilation: Compilation, spec: Action, name: str, at: Location) -> Step | None:
    """Compile a command; None if it has problems."""
    record_variables(compilation, spec.pass_env, f"the command of {name}")
    path = (*at, "shell")
    command = spec.shell or []
    constant = is_constant(compilation, command, path)
    env = {k: command_value(compilation, (*at, "env", k), v) for k, v in spec.env.items()}
    stdin = None if spec.stdin is None else command_value(compilation, (*at, "stdin"), spec.stdin)
    # A document of somebody else must not run commands in other folders.
    cwd = compilation.inside(spec.cwd or ".", (*at, "cwd"))
    if spec.output not in (None, "text", "json", "result"):
        compilation.problem(
            (*at, "output"), f"the output of a command is text, json or result, not {spec.output!r}"
        )
        return None
    if not constant:
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
            sandbox=compile_sandbox(compilation, spec.sandbox),
        ),
    )


def compile_sandbox(
    compilation: Compilation, spec: SandboxSpec | SandboxWord | None, *, network: bool = True
) -> Sandbox:
    """Return the sandbox of a command; `network` is the default."""
    if spec is None or isinstance(spec, str):
        return Sandbox(spec or "none", network=network)
    # Also a path outside of the project: hiding it takes something away.
    hide, show = (
        [str(compilation.folder / Path(name).expanduser()) for name in names]
        for names in (spec.hide, spec.show)
    )
    return Sandbox(
        spec.mode,
        network=network if spec.network is None else spec.network,
        wrap=spec.wrap,
        hide=hide,
        show=show,
    )


def is_constant(compilation: Compilation, command: list[str] | str, at: Location) -> bool:
    """Return whether a command has no template, and report the first one.

    A value, such as the output of a model, must not become part of a command.
    """
    for i, text in enumerate([command] if isinstance(command, str) else command):
        if "{{" in text or "{%" in text:
            message = "commands cannot contain template values; pass values through env or stdin"
            compilation.problem(at if isinstance(command, str) else (*at, i), message, own=True)
            return False
    return True


def record_variables(compilation: Compilation, names: Iterable[str], place: str) -> None:
    """Record the variables that a command receives, for the approval of the user."""
    compilation.project.keys += [f"{variable} to {place}" for variable in names]


def command_value(compilation: Compilation, path: Location, text: str) -> str | _Value:
    """Compile a value of a command: constant text, or a function of (value, ctx)."""
    template = compilation.template(path, text)
    # A constant is part of the fingerprint as plain text, not as a template.
    if not template.names and template.source == text and "{" not in text:
        return text
    return _Value(template)


class _Value:
    """A templated value of a command: called with (value, ctx)."""

    def __init__(self, part: TemplatedValue) -> None:
        self.part = part
        self.source = part.source

    def __call__(self, value: Json, ctx: Context) -> Json:
        return rendered(self.part, ctx, value)


def compile_tools(
    document: Document, compilation: Compilation
) -> dict[str, Tool | McpServer | None]:
    """Return the tools and servers of a document by name, without those that have problems."""
    result: dict[str, Tool | McpServer | None] = {}
    for name, spec in document.servers.items():
        if _check_name(compilation, ("servers", name), name):
            result[name] = _server(compilation, name, spec, ("servers", name))
    for name, one in document.tools.items():
        at: Location = ("tools", name)
        if name in document.servers:
            compilation.problem(at, f"{name!r} is already the name of a server; rename the tool")
        # Providers accept only these characters in the names of tools.
        elif _check_name(compilation, at, name):
            result[name] = _tool(compilation, name, one, at)
    return result


def _check_name(compilation: Compilation, at: Location, name: str) -> bool:
    if NAME.fullmatch(name):
        return True
    compilation.problem(
        at, f"{name!r} is not a valid tool name; use 1 to 64 letters, digits, - and _"
    )
    return False


def _server(
    compilation: Compilation, name: str, spec: ServerSpec, at: Location
) -> McpServer | None:
    from ...models.providers.endpoints import origin_of

    cwd = compilation.inside(spec.cwd or ".", (*at, "cwd"))
    place = origin_of(spec.url) if spec.url else f"the server {name}"
    # The user approves which variables a server receives.
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


def _tool(compilation: Compilation, name: str, spec: ToolSpec, at: Location) -> Tool | None:
    options: dict[str, Json] = {
        "idempotent": spec.idempotent, "approve": spec.approve, "timeout": spec.timeout,
        "description": spec.description or "",
    }  # fmt: skip
    if spec.commands is not None:
        record_variables(compilation, spec.pass_env, f"the tool {name}")
        allowed = spec.commands
        cwd = compilation.inside(spec.cwd or ".", (*at, "cwd"))
        return compilation.attempt(
            at,
            lambda: command_tool(
                name, allowed, env=spec.env, pass_env=spec.pass_env, cwd=cwd, **options
            ),
        )
    function = compilation.function((*at, "python"), spec.python or "")
    if function is None:
        return None
    if isinstance(function, Tool):
        return function.renamed(
            name, **{k: v for k, v in options.items() if k in spec.model_fields_set}
        )
    if not compilation.project.execute:
        # A check imports no Python; this tool is never called.
        return Tool(name)
    return compilation.attempt((*at, "python"), lambda: tool(function, name=name, **options))


def resolve_tools(
    compilation: Compilation, names: list[str], at: Location, *, alone: bool = False
) -> list[Tool | McpServer | Selected] | None:
    """Return the tools that a step names: tools, servers, or `server.tool`; None if there are problems.

    With `alone`, `at` is the place of one name, not of a list.
    """
    result: list[Tool | McpServer | Selected] = []
    chosen: dict[str, list[str]] = {}
    before = len(compilation.problems)
    for i, name in enumerate(names):
        place = at if alone else (*at, i)
        owner, dot, inner = name.partition(".")
        one = compilation.tools.get(owner if dot else name)
        if one is None:
            defined = (owner if dot else name) in compilation.declared
            if not defined and not compilation.gaps.head:
                known = sorted(compilation.declared)
                hint = nearest(name, known) or listed(name, known, lead="there are")
                hint = hint or "; declare it in tools:"
                compilation.problem(place, f"there is no tool or server {name!r}{hint}", own=True)
        elif not dot:
            result.append(one)
        elif isinstance(one, Tool):
            compilation.problem(
                place, f"{owner!r} is a tool, not a server; only servers contain tools"
            )
        else:
            chosen.setdefault(owner, []).append(inner)
    if chosen:
        from ...prompts.tool_prompt import Selected

    # One selection for each server, so that its list of tools is requested once.
    result += [Selected(compilation.tools[owner], inner) for owner, inner in chosen.items()]
    return None if len(compilation.problems) > before else result


def compile_tool_step(
    compilation: Compilation, spec: Action, name: str, at: Location
) -> ToolStep | None:
    """Compile one call of a tool; None if it has problems."""
    from ...prompts.tool_prompt import ToolStep

    path = (*at, "tool")
    assert spec.tool is not None
    tools = resolve_tools(compilation, [spec.tool], path, alone=True)
    if not tools:
        return None
    (one,) = tools
    if isinstance(one, McpServer):
        compilation.problem(
            path, f"{spec.tool!r} is a server; name one of its tools: {spec.tool}.NAME"
        )
        return None
    if spec.pass_env:
        if not isinstance(one, CommandTool):
            compilation.problem(
                (*at, "pass_env"),
                f"pass_env applies to commands, and {spec.tool!r} is not a command; a server has its own "
                "pass_env, and a Python function sees all variables",
            )
            return None
        commands = one
        record_variables(compilation, spec.pass_env, f"the tool {spec.tool} in {name}")
        passing = compilation.attempt((*at, "pass_env"), lambda: commands.passing(spec.pass_env))
        if passing is None:
            return None
        one = passing
    arguments = None
    if spec.arguments is not None:
        arguments = compilation.template((*at, "arguments"), spec.arguments)
    return ToolStep(one, name=name, arguments=arguments)


def compile_workspace(
    compilation: Compilation, spec: WorkspaceSpec | WorkspaceKind | None, at: Location
) -> Workspace | None:
    """Return the workspace of a document or loop; None without one, or with problems."""
    if spec is None:
        return None
    value = WorkspaceSpec(kind=spec) if isinstance(spec, str) else spec
    path = compilation.inside(value.path, (*at, "path"))
    if value.refine_from is not None and not compilation.project.recorded:
        rule = "best" if value.refine_from == "accepted" else value.refine_from
        what = (
            f"is a key of the loop now, not of the workspace; write refine_from: {rule} in the loop"
        )
        compilation.problem((*at, "refine_from"), what, key=True)
    from ...coding.workspace.store import problem_with_git

    compilation.need(at, problem_with_git)
    compilation.need_folder(at if isinstance(spec, str) else (*at, "path"), Path(path))
    for name in ("setup", "reset"):
        command = getattr(value, name)
        if command and not is_constant(compilation, command, (*at, name)):
            return None
    options = {
        name: getattr(value, name)
        for name in WorkspaceSpec.model_fields
        if name not in ("path", "merge", "refine_from")
    }
    return compilation.attempt(
        at, lambda: workspace.Workspace(path, merge=value.merge or "", **options)
    )
