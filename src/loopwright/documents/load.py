"""Files to things that run: which dialect a document is, what it calls, and what goes with it.

Which file a document means when it names another one.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..conditions import UNITS, Budget
from ..engine.composites import limited
from ..engine.step import Step
from ..errors import (
    ConfigurationError,
    DocumentError,
    LoopwrightWarning,
    Problem,
    listed,
    nearest,
)
from ..records.codec import Json
from .check.lints import lints
from .check.plan import plan
from .check.readiness import missing
from .check.remarks import once
from .check.trust import LocalActions, local_actions
from .compiler.compilation import Compilation, Path_
from .compiler.compiler import compile_document
from .compiler.models import resources
from .compiler.registry import KINDS
from .compiler.template_languages import LANGUAGES
from .dialects.detect import parse
from .dialects.dialect import Dialect
from .project import LoadedDocument, Project, Settings, shown_path
from .recorded import Recorded
from .schema.document import Document
from .schema.partial import NOTHING_LEFT_OUT
from .schema.settings import SETTINGS
from .steps.steps import DocumentWorkflow, RootWorkflow
from .yaml.reader import Source, read

__all__ = ["Loaded", "Project", "Settings", "find", "load"]


ENDINGS = (".yaml", ".yml", ".json")
MOST_FILES = 1000  # of a folder that are looked into
MOST_FOLDERS = 200  # that a hint is looked for in


def find(name: str, folders: Collection[Path], root: Path, calling: Collection[Path] = ()) -> Path:
    """Return the real path of the document that `name` means.

    `name` is a file; or, from one of `folders` (tried in order), the stem of a file or the
    `name:` in it, after a path of folders if it has slashes. A document that is itself `calling`
    is meant only if no other is. `root` is the folder that no document leaves.

    Raises:
        ConfigurationError: if there is none, if there are several, or if it leads out of `root`.
    """
    if Path(name).is_absolute() or ".." in Path(name).parts or not name.strip():
        raise ConfigurationError(f"{name!r} leads out of the project folder")
    for folder in folders:
        if (folder / name).is_file():
            return _inside(folder / name, root, name)
    for folder in folders:
        found = sorted({_inside(file, root, name) for file in _named(folder / name)})
        found = [file for file in found if file not in calling] or found
        if len(found) > 1:
            files = ", ".join(file.name for file in found)
            raise ConfigurationError(f"{name!r} may be any of {files}; name the file")
        if found:
            return found[0]
    where = "beside this one" + (" or from the project folder" if "/" in name else "")
    raise ConfigurationError(f"there is no document {name!r} {where}{_hint(name, folders)}")


def _hint(name: str, folders: Collection[Path]) -> str:
    """Return what could be meant: a file of that stem somewhere else, or the nearest stem."""
    wanted = Path(name).stem
    same: dict[Path, str] = {}
    for folder in folders:
        for file in _below(folder):
            if wanted in (file.stem, file.name):
                same.setdefault(file, str(file.relative_to(folder)))
    if same:
        files = " or ".join(sorted(same.values(), key=lambda file: (file.count(os.sep), file))[:3])
        return f"; did you mean {files}?"
    stems = {file.stem for folder in folders for file in _files((folder / name).parent)}
    return nearest(name, stems)


def _below(folder: Path) -> Iterator[Path]:
    """Iterate over the documents below a folder, but for hidden ones; the first folders only."""
    for count, (path, folders, names) in enumerate(os.walk(folder)):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f != "node_modules")
        yield from (Path(path, name) for name in names if name.endswith(ENDINGS))
        if count == MOST_FOLDERS:
            return


def _inside(file: Path, root: Path, name: str) -> Path:
    real = Path(os.path.realpath(file))
    if not real.is_relative_to(os.path.realpath(root)):
        raise ConfigurationError(f"{name!r} leads out of the project folder")
    return real


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    found = (file for file in folder.iterdir() if file.suffix in ENDINGS and file.is_file())
    return sorted(found)[:MOST_FILES]


def _named(wanted: Path) -> Iterator[Path]:
    """Iterate over the files whose stem, or whose `name:`, is the last part of a path."""
    for file in _files(wanted.parent):
        if file.stem == wanted.name or _name_in(file, wanted.name):
            yield file


def _name_in(file: Path, name: str) -> bool:
    try:
        raw = file.read_bytes()
        if name.encode() not in raw:
            return False
        value = read(raw, file.name, repeatable=frozenset({"steps", "loops"})).value
    except (OSError, DocumentError):
        return False
    return isinstance(value, Mapping) and value.get("name") == name


MAX_NESTING = 8


@dataclass(frozen=True)
class Loaded(LoadedDocument):
    """A document that is ready to run, and what can be said of it before it runs; see `LoadedDocument`."""

    def deeds(self) -> LocalActions:
        """Return what it would do on this machine by commands, Python and keys; empty if nothing."""
        return local_actions(self)

    def lints(self) -> list[Problem]:
        """Return what is allowed and seldom meant, each with its place and the remedy."""
        return lints(self)

    def missing(self, *, offline: bool = False) -> list[Problem]:
        """Return what it needs and this machine lacks: keys, packages, servers that answer."""
        return missing(self, self.environ, offline=offline)

    def plan(self) -> dict[str, Json]:
        """Return what would run: steps, models, commands, hosts, environment names, bounds, worst-case calls."""
        return plan(self)


@dataclass(frozen=True)
class _Loader:
    """Reads and compiles the documents of a project, each for those that call it."""

    project: Project

    def file(self, path: Path) -> tuple[Dialect, Source, Document]:
        """Read a document of any dialect as a native one.

        Raises:
            DocumentError: with every problem found.
        """
        project = self.project
        raw = project.contents[path] = project.content(path)
        dialect, source, document = parse(raw, shown_path(path), project)
        project.documents[str(path)] = document
        project.sources[str(path)] = source
        return dialect, source, document

    def call(
        self, caller: Compilation, name: str, path: Path_, given: frozenset[str]
    ) -> DocumentWorkflow | None:
        """Compile the document that a step calls, for the names that it supplies."""
        project = self.project
        folders = list(dict.fromkeys([caller.folder, project.root, project.project]))
        found = project.settings.recorded.meant(project.open[-1], name) or caller.attempt(
            path, lambda: find(name, folders, project.project, project.open)
        )
        if found is None:
            return None
        project.calls[str(project.open[-1]), name] = str(found)
        if found in project.open:
            circle = " -> ".join(
                p.name for p in [*project.open[project.open.index(found) :], found]
            )
            caller.problem(path, f"documents call each other in a circle: {circle}")
            return None
        if len(project.open) >= MAX_NESTING:
            caller.problem(path, f"documents call each other more than {MAX_NESTING} deep")
            return None
        try:
            dialect, source, document = self.file(found)
        except DocumentError as error:
            project.problems += error.problems
            return None
        project.open.append(found)
        try:
            made = self.compile(dialect, source, document, found.parent, given, caller.defaults)
        finally:
            project.open.pop()
        return None if source.file in project.gaps else made

    def compile(
        self,
        dialect: Dialect,
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
            "answer_timeout",
            *SETTINGS,
        )
        defaults = {name: getattr(document, name) for name in names}
        if document.model is None and document.models is None:
            defaults |= {k: v for k, v in inherited.items() if defaults.get(k) is None}
        project, templates = self.project, LANGUAGES[document.templates]
        gaps = project.gaps.get(source.file, NOTHING_LEFT_OUT)
        compilation = Compilation(
            source,
            folder,
            project,
            KINDS,
            self.call,
            defaults=defaults,
            templates=templates,
            gaps=gaps,
        )
        made = compile_document(document, compilation, given)
        project.problems += compilation.problems
        if made is not None:
            project.notes += dialect.remarks(document, source, self._called)
        if len(project.open) == 1:
            project.settable = _settable(document, compilation)
        return made

    def _called(self, name: str) -> Document | None:
        """Return the document that the one which is being compiled means by a name."""
        file = self.project.calls.get((str(self.project.open[-1]), name))
        return self.project.documents.get(file) if file is not None else None


def load(path: str | Path, settings: Settings | None = None) -> Loaded:
    """Load a document, native or foreign, with all that it calls.

    Raises:
        DocumentError: with every problem found, each with its place.
    """
    settings = settings or Settings()
    file = Path(os.path.realpath(path))
    root = settings.root or file.parent
    project = Project(settings, root, _project(root, settings))
    loader = _Loader(project)
    dialect, source, document = loader.file(file)
    project.open.append(file)
    with warnings.catch_warnings():  # `lints` says of a document what Python warns of a loop
        warnings.simplefilter("ignore", LoopwrightWarning)
        workflow = loader.compile(dialect, source, document, file.parent, frozenset(settings.sets))
    if not project.gaps:  # what is left out may have used them
        _refuse_unused(settings, project)
    if settings.strict:
        project.problems += project.notes
    if project.problems or workflow is None:
        raise DocumentError(dict.fromkeys(_in_order(project)))
    found = resources(document, settings, project)
    if project.problems:
        raise DocumentError(project.problems)
    step: Step = RootWorkflow(workflow, settings.sets) if settings.sets else workflow
    if document.timeout is not None:
        step = limited(step, document.timeout)
    return Loaded(
        name=document.name,
        step=step,
        source=_source(path, settings, project),
        default_input=document.input,
        budget=_budget(document, settings),
        resources=found,
        notes=once(project.notes),
        documents=project.documents,
        sources=project.sources,
        calls=project.calls,
        agents=settings.agents,
        asks=() if settings.replies is not None else tuple(project.asks),
        environ=settings.environ,
        contents=project.contents,
        keys=tuple(dict.fromkeys(project.keys)),
        agreed=settings.agreed,
    )


def _in_order(project: Project) -> list[Problem]:
    """Return the problems in the order in which they are written, if they were found in several passes."""
    if not project.gaps:
        return project.problems
    files = list(dict.fromkeys(problem.file for problem in project.problems))
    return sorted(project.problems, key=lambda p: (files.index(p.file), p.line, p.column))


def _project(root: Path, settings: Settings) -> Path:
    """Return the folder that documents are looked for in: the caller's, else the current one around the root."""
    if settings.project or settings.root:
        return settings.project or root
    here = Path.cwd()
    return here if Path(os.path.realpath(root)).is_relative_to(os.path.realpath(here)) else root


def _settable(document: Document, compilation: Compilation) -> frozenset[str]:
    """Return the names of variables that a document's templates use, and of its constants."""
    used = {name.removeprefix("given.") for _, names in compilation.used for name in names}
    apart = ("loop", "steps", "loops", "env", "value", "input", "workflow", "strategy")
    return frozenset(
        {name for name in used if name.partition(".")[0] not in apart} | {*document.env}
    )


def _refuse_unused(settings: Settings, project: Project) -> None:
    """Report the variables from outside that nothing in the document uses."""
    names = project.settable
    for name in settings.sets:
        if name not in names and not any(used.startswith(f"{name}.") for used in names):
            hint = nearest(name, names) or listed(name, sorted(names), lead="it takes")
            what = (
                f"--set: nothing in the document uses {name!r}{hint or '; it takes no variables'}"
            )
            project.problems.append(
                Problem(next(iter(project.sources.values())).file, 0, 0, "", what)
            )


def _source(path: str | Path, settings: Settings, project: Project) -> dict[str, Json]:
    """Return how the document can be loaded again, with the contents for when its files are gone."""
    files = {str(file): content for file, content in project.contents.items()}
    given = {
        "file": os.path.realpath(path),
        "dialect": project.dialect,
        "sets": dict(settings.sets),
        "model": settings.model,
        "model_url": settings.model_url,
        "replies": settings.replies and os.path.realpath(settings.replies),
        **{name: getattr(settings, name) for name in UNITS},
        "root": settings.root and str(settings.root),
        "agents": dict(settings.agents),
        "allowed_hosts": list(settings.allowed_hosts),
        "lenient": settings.lenient,
        "strict": settings.strict,
        "documents": Recorded(files, project.calls).to_json(),
    }
    return {key: value for key, value in given.items() if value}


def _budget(document: Document, settings: Settings) -> Budget | None:
    found: dict[str, Any] = {}
    for name, unit in UNITS.items():
        given = (getattr(document.budget, unit, None), getattr(settings, name))
        if caps := [cap for cap in given if cap is not None]:
            found[unit] = min(caps)
    return Budget(**found) if found else None
