"""Files to things that run: which dialect a document is, what it calls, and what goes with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..codec import Json
from ..composites import limited
from ..conditions import Budget
from ..errors import DocumentError, Problem
from .compiling import Compiler, compile_document
from .dialects import parse
from .lookup import find
from .native import Document
from .resources import resources
from .source import Source
from .steps import DocumentWorkflow, Rooted
from .walking import functions_in

if TYPE_CHECKING:
    from .trust import Deeds

__all__ = ["Loaded", "Project", "Settings", "load"]

MAX_NESTING = 8


@dataclass(frozen=True)
class Settings:
    """What the caller of a document decides.

    `sets` are variables by name, `model` overrides `provider:model` of the document, `replies` is a
    file of scripted replies and `transcript` one that model calls are appended to, `environ` is where
    keys are looked up, `allowed_hosts` are hosts that are not public and may be called, `root` is the
    folder that nothing leaves (default: the document's own), `execute` imports functions (without it
    they are only looked up), `agents` names functions for step types that need an outside backend.
    `strict` makes problems of what is only noted in foreign documents, `lenient` takes fragments of
    them and leaves unknown placeholders as they are.
    """

    sets: Mapping[str, str] = field(default_factory=dict)
    model: str | None = None
    model_url: str | None = None
    replies: str | None = None
    transcript: str | None = None
    max_usd: float | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    allowed_hosts: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    root: Path | None = None
    execute: bool = True
    agents: Mapping[str, str] = field(default_factory=dict)
    strict: bool = False
    lenient: bool = False


@dataclass(frozen=True)
class Loaded:
    """A document that is ready to run.

    `source` says how to load it again and is kept with the run, `resources` go to `run`, `documents` are the native forms
    of this document and of all that it calls, by file; `sources` have their places, `calls` the file that a file means
    by a name.
    """

    name: str
    step: Any
    source: dict[str, Json]
    default_input: Json = None
    budget: Budget | None = None
    resources: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[Problem, ...] = ()
    documents: Mapping[str, Document] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    calls: Mapping[tuple[str, str], str] = field(default_factory=dict)
    agents: Mapping[str, str] = field(default_factory=dict)

    def deeds(self) -> Deeds:
        """Return what it would do on this machine by commands and Python; empty if nothing."""
        from .trust import deeds_of

        return deeds_of(self)

    @property
    def needs_python(self) -> bool:
        """Whether a document names a function, which is imported before it can run."""
        return any(True for document in self.documents.values() for _ in functions_in(document))

    def lints(self) -> list[Problem]:
        """Return what is allowed and seldom meant, each with its place and the remedy."""
        from .lints import lints

        return lints(self)

    def plan(self) -> dict[str, Json]:
        """Return what would run: steps, models, commands, hosts, environment names, bounds, worst-case calls."""
        from .plan import plan

        return plan(self)


@dataclass
class Project:
    """The documents of one load: the root folder that nothing leaves, and what is already compiled."""

    settings: Settings
    root: Path
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    documents: dict[str, Document] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    calls: dict[tuple[str, str], str] = field(default_factory=dict)
    open: list[Path] = field(default_factory=list)

    @property
    def execute(self) -> bool:
        """Whether functions are imported."""
        return self.settings.execute

    def inside(
        self, folder: Path, name: str, compiler: Compiler, path: tuple[str | int, ...]
    ) -> str:
        """Return a folder as an absolute path inside the root; outside of it is a problem."""
        found = Path(os.path.realpath(folder / name))
        if not found.is_relative_to(os.path.realpath(self.root)):
            compiler.problem(path, f"{name!r} leads out of the project folder")
        return str(found)

    def file(self, path: Path) -> tuple[Source, Document]:
        """Read a document of any dialect as a native one.

        Raises:
            DocumentError: with every problem found.
        """
        try:
            raw = path.read_bytes()
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise DocumentError(
                [Problem(_shown(path), 0, 0, "", f"cannot be read: {why}")]
            ) from error
        source, document = parse(raw, _shown(path), self)
        self.documents[str(path)] = document
        self.sources[str(path)] = source
        return source, document

    def child(
        self, caller: Compiler, name: str, path: tuple[str | int, ...], given: frozenset[str]
    ) -> DocumentWorkflow | None:
        """Compile the document that a step calls, for the names that it supplies."""
        folders = list(dict.fromkeys([caller.folder, self.root]))
        found = caller.attempt(path, lambda: find(name, folders, self.root, self.open))
        if found is None:
            return None
        self.calls[str(self.open[-1]), name] = str(found)
        if found in self.open:
            circle = " -> ".join(p.name for p in [*self.open[self.open.index(found) :], found])
            caller.problem(path, f"documents call each other in a circle: {circle}")
            return None
        if len(self.open) >= MAX_NESTING:
            caller.problem(path, f"documents call each other more than {MAX_NESTING} deep")
            return None
        try:
            source, document = self.file(found)
        except DocumentError as error:
            self.problems += error.problems
            return None
        self.open.append(found)
        try:
            return self.compiled(source, document, found.parent, given, caller.defaults)
        finally:
            self.open.pop()

    def compiled(
        self,
        source: Source,
        document: Document,
        folder: Path,
        given: frozenset[str],
        inherited: Mapping[str, Any] = MappingProxyType({}),
    ) -> DocumentWorkflow | None:
        """Compile a document; its problems are kept. One that names no model is asked as its caller is."""
        names = (
            "model",
            "models",
            "temperature",
            "max_tokens",
            "model_url",
            "api_key_env",
            "call_timeout",
        )
        defaults = {name: getattr(document, name) for name in names}
        if document.model is None and document.models is None:
            defaults |= {k: v for k, v in inherited.items() if defaults.get(k) is None}
        lenient = document.templates == "loop_node"
        compiler = Compiler(source, folder, self, defaults=defaults, lenient=lenient)
        made = compile_document(document, compiler, given)
        self.problems += compiler.problems
        return made


def _shown(path: Path) -> str:
    """Return a path as the user would write it: relative to where he is, if it is below."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def load(path: str | Path, settings: Settings | None = None) -> Loaded:
    """Load a document, native or foreign, with all that it calls.

    Raises:
        DocumentError: with every problem found, each with its place.
    """
    settings = settings or Settings()
    file = Path(os.path.realpath(path))
    project = Project(settings, settings.root or file.parent)
    source, document = project.file(file)
    project.open.append(file)
    workflow = project.compiled(source, document, file.parent, frozenset(settings.sets))
    if settings.strict:
        project.problems += project.notes
    if project.problems or workflow is None:
        raise DocumentError(dict.fromkeys(project.problems))
    found = resources(document, settings, project)
    if project.problems:
        raise DocumentError(project.problems)
    step: Any = Rooted(workflow, settings.sets) if settings.sets else workflow
    if document.timeout is not None:
        step = limited(step, document.timeout)
    return Loaded(
        document.name,
        step,
        _source(path, settings),
        document.input,
        _budget(document, settings),
        found,
        tuple(dict.fromkeys(project.notes)),
        project.documents,
        project.sources,
        project.calls,
        settings.agents,
    )


def _source(path: str | Path, settings: Settings) -> dict[str, Json]:
    given = {
        "file": os.path.realpath(path),
        "sets": dict(settings.sets),
        "model": settings.model,
        "model_url": settings.model_url,
        "replies": settings.replies and os.path.realpath(settings.replies),
        "max_usd": settings.max_usd,
        "root": settings.root and str(settings.root),
        "agents": dict(settings.agents),
        "allowed_hosts": list(settings.allowed_hosts),
        "lenient": settings.lenient,
        "strict": settings.strict,
    }
    return {key: value for key, value in given.items() if value}


def _budget(document: Document, settings: Settings) -> Budget | None:
    spec = document.budget
    usd = [cap for cap in (spec.usd if spec else None, settings.max_usd) if cap is not None]
    calls, tokens = (spec.calls, spec.tokens) if spec else (None, None)
    if calls is None and tokens is None and not usd:
        return None
    return Budget(calls, tokens, min(usd, default=None))
