"""The servers of `workflow/v2.0`: a document names them, and a file beside it defines how they are started.

This is the file that clients of the Model Context Protocol share: `server_config.json`, `mcp.json`,
`.mcp.json` or `config.yaml`, with `mcpServers` (or `servers`) by name:
`{"command": "npx", "args": […], "env": {…}}` or `{"url": "https://…", "headers": {…}}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from ....errors import nearest
from ....records.codec import Json
from .schema import ExecutionSettings, StepV2

__all__ = ["FILES", "Servers", "rounds_of"]

FILES = ("server_config.json", "mcp.json", ".mcp.json", "config.yaml")
ROUNDS = 10  # the dialect's default for replies with tool calls in one step
_MAX_BYTES = 1 << 20  # of the file, the limit of documents
ServerReport = Callable[[tuple[str | int, ...], str], None]


class Servers:
    """The servers that steps name, from the file beside the document or in the project's root.

    `native` are the servers in use, as fields of native documents, by name.
    """

    def __init__(self, folders: list[Path], report: ServerReport) -> None:
        self.native: dict[str, dict[str, Json]] = {}
        self._report = report
        self._folders = folders
        self._defined: dict[str, Json] | None = None
        self._file = ""

    def tools(self, names: list[str], at: tuple[str | int, ...]) -> list[str]:
        """Return the servers that are defined; the others are problems."""
        result = []
        for i, name in enumerate(dict.fromkeys(names)):
            problem = self._find(name)
            if problem:
                self._report((*at, i), problem)
            else:
                result.append(name)
        return result

    def _find(self, name: str) -> str:
        """Add a server by its name; return the problem, or ""."""
        if name in self.native:
            return ""
        if self._defined is None:
            self._defined = self._read()
        if name not in self._defined:
            if not self._file:
                return (
                    f"no file defines the server {name!r}; add {FILES[0]} beside "
                    f'the document: {{"mcpServers": {{"{name}": {{"command": …, "args": […]}}}}}}'
                )
            entries = ", ".join(list(self._defined)[:12]) or "none"
            hint = nearest(name, self._defined) or f"; it has: {entries}"
            return f"{self._file} has no server {name!r}{hint}"
        try:
            self.native[name] = _native(self._defined[name])
        except ValueError as error:
            return f"{self._file}: {name}: {error}"
        return ""

    def _read(self) -> dict[str, Json]:
        for folder in self._folders:
            for file in (folder / name for name in FILES):
                if file.is_file() and file.stat().st_size <= _MAX_BYTES:
                    result = _servers_in(file)
                    if result is not None:
                        self._file = file.name
                        return result
        return {}


def _servers_in(file: Path) -> dict[str, Json] | None:
    try:
        value = yaml.safe_load(file.read_bytes())  # JSON is valid YAML
    except (OSError, yaml.YAMLError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(value, Mapping):
        return None
    for key in ("mcpServers", "servers"):
        if isinstance(value.get(key), Mapping):
            return {str(name): one for name, one in value[key].items()}
    return None


def _native(value: Json) -> dict[str, Json]:
    """Return a server in the form of native documents.

    Raises:
        ValueError: With the problem.
    """
    if not isinstance(value, Mapping):
        raise ValueError("expected a mapping with command or url")
    url = value.get("url")
    if isinstance(url, str):
        headers = _texts(value, "headers")
        return {"url": url, **({"headers": headers} if headers else {})}
    command, args = value.get("command"), value.get("args") or []
    words = command if isinstance(command, list) else [command]
    if not all(isinstance(word, str) and word for word in words) or not isinstance(args, list):
        raise ValueError('expected "command", a program, and "args", a list; or "url"')
    env = _texts(value, "env")
    return {"command": [*words, *map(str, args)], **({"env": env} if env else {})}


def _texts(values: Mapping[str, Json], key: str) -> dict[str, str]:
    result = values.get(key) or {}
    if not isinstance(result, Mapping):
        raise ValueError(f"{key}: expected a mapping of texts")
    return {str(name): str(value) for name, value in result.items()}


def rounds_of(step: StepV2, execution: ExecutionSettings) -> int:
    """Return the maximum of replies with tool calls in a step."""
    return step.max_iterations or execution.max_iterations or ROUNDS
