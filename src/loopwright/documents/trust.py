"""The commands, Python functions, keys and files that a document uses on this machine, and their approval.

1. A document is code: its commands and functions run with the rights of the user, and variables of the
   environment and files go where the document sends them. A document with prompts only, which use the keys of
   their providers, needs no approval.
2. An approval covers contents, not names: the documents, the Python modules beside them (and the modules there
   that these import), the files that commands name, and the host of each variable. Each file is read once, so that
   the digest, the display and the run use the same bytes. Of a file for a model it covers the path and the hosts.
3. An approval is one empty file, named after the digest.
"""

from __future__ import annotations

import ast
import hashlib
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import ConfigurationError
from .compiler import functions
from .project import GENERATED, LoadedDocument, Sent, shown_path
from .schema.document import Document, WaitedSpec
from .schema.evaluators import JudgeSpec, PairJudgeSpec
from .schema.models import CodingAgentSpec
from .schema.traverse import commands_in, functions_in, parts

__all__ = [
    "LocalActions",
    "TrustStore",
    "command_line",
    "hosts_of",
    "local_actions",
    "program_actions",
]

_MAX_BYTES = 1 << 24  # of a file that a command names; a larger file is data, not a program


@dataclass(frozen=True)
class LocalActions:
    """The command lines, functions, variables with their hosts (`keys`) and files for models of a document.

    `digest` covers them and the files of commands and functions, `contents` are the bytes of these files.
    """

    commands: tuple[str, ...]
    python: tuple[str, ...]
    keys: tuple[str, ...]
    digest: str
    files: tuple[str, ...] = ()
    contents: Mapping[Path, bytes] = field(repr=False, default_factory=dict)

    def __bool__(self) -> bool:
        return self.acts or bool(self.files)

    @property
    def acts(self) -> bool:
        """Whether it runs commands or functions, or sends variables of the environment."""
        return bool(self.commands or self.python or self.keys)


@dataclass(frozen=True)
class TrustStore:
    """The approved digests, in a folder of the user."""

    folder: Path

    def has(self, actions: LocalActions) -> bool:
        """Return whether these contents are approved."""
        with suppress(OSError):
            return (self.folder / actions.digest).is_file()
        return False

    def add(self, actions: LocalActions) -> None:
        """Record the approval of these contents.

        Raises:
            OSError: if the folder cannot be written.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.folder / actions.digest).touch(mode=0o600)


def local_actions(loaded: LoadedDocument) -> LocalActions:
    """Return the local actions of a document and of the documents that it calls.

    Functions of the caller (`Settings.agents`) need no approval and are left out.
    """
    own = set(loaded.agents.values())
    commands: list[str] = []
    references: list[str] = []
    files = _Files(loaded.contents, loaded.agreed)
    for name, document in loaded.documents.items():
        folder = Path(name).parent
        files.take(Path(name))
        commands += _commands_of(document, Path(name), files)
        for part in parts(document):
            if isinstance(part, JudgeSpec | PairJudgeSpec) and part.measured is not None:
                files.take(folder / part.measured)
        for reference in functions_in(document):
            if reference not in own:
                references.append(reference)
                _take_modules(reference.partition(":")[0], folder, files)
    # Also covers parts from other files, such as servers that a file beside the document declares.
    text = [document.model_dump_json(exclude_unset=True) for document in loaded.documents.values()]
    if loaded.sent:
        text += [repr(one) for one in loaded.sent]
        text += [f"to {host}" for model, url in loaded.models for host in hosts_of(model, url)]
    digest = _digest(files.taken, [*commands, *references, *loaded.keys, *text])
    return LocalActions(
        tuple(dict.fromkeys(commands)),
        tuple(dict.fromkeys(references)),
        loaded.keys,
        digest,
        # Without a model, nothing leaves this machine.
        files=tuple(dict.fromkeys(map(_line, loaded.sent))) if loaded.models else (),
        contents=files.taken,
    )


def command_line(command: list[str] | str) -> str:
    """Return a command as a shell would read it."""
    return command if isinstance(command, str) else shlex.join(command)


def _line(sent: Sent) -> str:
    """Return what a model may receive as a line of the question and of `check`."""
    name = sent.written if sent.path is None else shown_path(sent.path)
    hosts = dict.fromkeys(host for model, url in sent.models for host in hosts_of(model, url))
    line = f"any file in {name}" if sent.folder else name
    return f"{line} ({', '.join(hosts)})" if hosts else line


def hosts_of(model: str, url: str | None) -> list[str]:
    """Return the host of a model or a server, if there is one."""
    if url:
        return [urlsplit(url.strip()).hostname or url]
    from ..models.providers.endpoints import provider_of

    provider = provider_of(model)
    if provider is None:
        return []
    if provider.places:
        # A part that a variable sets is shown by the name of the variable.
        place = f"${provider.places[0]}"
        return [provider.base_url.removeprefix("https://").replace("{PLACE}", place)]
    host = urlsplit(provider.base_url.replace("{PLACE}", "place")).hostname
    return [host] if host else []


def program_actions(
    reference: str, folder: Path, agreed: Mapping[Path, bytes] | None = None
) -> LocalActions:
    """Return the local actions of a step of a Python program: its module, and those beside it that it imports."""
    files = _Files({}, agreed)
    _take_modules(reference.partition(":")[0], folder, files)
    digest = _digest(files.taken, [reference])
    return LocalActions((), (reference,), (), digest, contents=files.taken)


def _commands_of(document: Document, path: Path, files: _Files) -> list[str]:
    """Return the command lines of a document, and take the files that they name."""
    folder = path.parent
    lines: list[str] = []
    for command, cwd in commands_in(document):
        lines.append(command_line(command))
        # The person wrote a generated document as a command line, and its agent changes the files.
        if not path.name.startswith(GENERATED):
            files.take_all(_files_named(command, folder, cwd))
    files.take_all(_manifests(document, folder))
    for program in _programs(document, folder, files.taken):
        lines.append(shlex.join(program))
        files.take_all(_files_named(program, folder, "."))
    lines += [f"connect to {s.url}" for s in document.servers.values() if s.url]
    waits = (part.url for part in parts(document) if isinstance(part, WaitedSpec))
    urls = [one if isinstance(one, str) else one.url for one in waits if one is not None]
    return lines + [f"connect to {url}" for url in urls]


def _manifests(document: Document, folder: Path) -> Iterator[Path]:
    """Iterate over the files of the manifests that a document names."""
    for part in parts(document):
        if isinstance(part, CodingAgentSpec) and (folder / part.cli).is_file():
            yield folder / part.cli


def _programs(
    document: Document, folder: Path, contents: Mapping[Path, bytes]
) -> Iterator[list[str]]:
    """Iterate over the programs that the manifests of coding agents name."""
    for part in parts(document):
        if isinstance(part, CodingAgentSpec):
            from ..coding.agents.manifest import load_manifest

            content = contents.get(Path(os.path.realpath(folder / part.cli)))
            # An invalid manifest is reported by the compiler.
            with suppress(ConfigurationError):
                program = load_manifest(part.cli, folder, content=content).program
                # The command line of the step names this one already.
                if program != [part.cli]:
                    yield program


class _Files:
    """Files by their real paths, each read once: the loaded documents as they were loaded."""

    def __init__(self, contents: Mapping[Path, bytes], agreed: Mapping[Path, bytes] | None) -> None:
        self._contents = dict(contents) if agreed is None else agreed
        # After the approval only the approved bytes count, so that the digest stays the same.
        self._reads = agreed is None
        self.taken: dict[Path, bytes] = {}

    def take(self, file: Path) -> bytes:
        """Return the contents of a file, and record them."""
        resolved = Path(os.path.realpath(file))
        if resolved not in self.taken:
            content = self._contents.get(resolved)
            with suppress(OSError):
                if content is None and self._reads:
                    content = resolved.read_bytes()
            # A file that was deleted or added since the approval changes the digest.
            self.taken[resolved] = b"\0" if content is None else content
        return self.taken[resolved]

    def take_all(self, files: Iterable[Path]) -> None:
        """Record the contents of several files."""
        for file in files:
            self.take(file)


def _files_named(command: list[str] | str, folder: Path, cwd: str) -> Iterator[Path]:
    """Iterate over the files of the project that the words of a command name."""
    try:
        words = shlex.split(command, comments=True) if isinstance(command, str) else command
    except ValueError:  # a quotation mark without its partner, which the shell will refuse
        words = str(command).split()
    for word in words:
        with suppress(OSError, ValueError):
            file = folder / cwd / word
            # Absolute paths are installed programs, which the document's author does not control.
            if (
                file.is_file()
                and file.stat().st_size <= _MAX_BYTES
                and not Path(word).is_absolute()
            ):
                yield file


def _take_modules(name: str, folder: Path, files: _Files) -> None:
    """Take the files of a module beside a document, and of those beside it that it imports."""
    waiting = [name]
    visited: set[str] = set()
    result: set[Path] = set()
    while waiting:
        module = waiting.pop()
        if module in visited:
            continue
        visited.add(module)
        file = functions.module_path_of(module, folder)
        if file is not None and file not in result:
            result.add(file)
            package = module if file.name == "__init__.py" else module.rpartition(".")[0]
            # The parent package runs first when a submodule is imported.
            waiting += [*_imports(files.take(file), package), module.rpartition(".")[0] or module]


def _imports(source: bytes, package: str) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join(
                [*(above if node.level else ()), *([node.module] if node.module else ())]
            )
            yield base
            yield from (f"{base}.{alias.name}".lstrip(".") for alias in node.names)


def _digest(files: Mapping[Path, bytes], words: list[str]) -> str:
    digest = hashlib.sha256()
    contents = sorted((str(file), content) for file, content in files.items())
    for name, content in [*contents, *((word, b"") for word in sorted(set(words)))]:
        # The length before each part keeps different lists from having the same bytes.
        for part in (name.encode("utf-8", "surrogatepass"), content):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
