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

from ..conditions import UNITS, Budget
from ..engine.composites import limited
from ..engine.context import Step
from ..errors import (
    ConfigurationError,
    DocumentError,
    LoopwrightWarning,
    Problem,
    listed,
    nearest,
)
from ..records.codec import Json
from .check.lints import lints, merge_repeats
from .check.plan import plan
from .check.readiness import missing
from .check.trust import LocalActions, local_actions
from .compiler.compilation import LANGUAGES, Compilation, Location
from .compiler.compiler import KINDS, compile_document
from .compiler.models import resources
from .dialects.detect import Dialect, parse
from .project import LoadedDocument, Project, Recorded, Settings, shown_path
from .schema.document import Document
from .schema.fields import SETTINGS
from .schema.validate import NOTHING_LEFT_OUT
from .steps.steps import DocumentWorkflow, RootWorkflow
from .yaml.reader import Source, read

__all__ = ["Loaded", "Project", "Settings", "find", "load"]


ENDINGS = (".yaml", ".yml", ".json")
MAX_FILES = 1000  # of a folder that are looked into
MAX_FOLDERS = 200  # that a hint is looked for in


def find(name: str, folders: Collection[Path], root: Path, calling: Collection[Path] = ()) -> Path:
    """Return the real path of the document that `name` means.

    `name` is a file; or, from one of `folders` (tried in order), the stem of a file or the
    `name:` in it, after a path of folders if it has slashes. A document that is itself `calling`
    is meant only if no other is. `root` is the folder that no document leaves.

    Raises:
        ConfigurationError: if there is none, if there are several, or if it leads out of `root`.
    """
    if Path(name).is_absolute() or ".." in Path(name).parts or not name.strip():
        raise ConfigurationError(f"{name!r} is outside the project folder")
    for folder in folders:
        if (folder / name).is_file():
            return _inside(folder / name, root, name)
    for folder in folders:
        result = sorted({_inside(file, root, name) for file in _documents_named(folder / name)})
        result = [file for file in result if file not in calling] or result
        if len(result) > 1:
            files = ", ".join(file.name for file in result)
            raise ConfigurationError(f"{name!r} is ambiguous: {files}; use a file name")
        if result:
            return result[0]
    where = "beside this one" + (" or from the project folder" if "/" in name else "")
    raise ConfigurationError(f"there is no document {name!r} {where}{_hint(name, folders)}")


def _hint(name: str, folders: Collection[Path]) -> str:
    """Return what could be meant: a file of that stem somewhere else, or the nearest stem."""
    expected = Path(name).stem
    same: dict[Path, str] = {}
    for folder in folders:
        for file in _below(folder):
            if expected in (file.stem, file.name):
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
        if count == MAX_FOLDERS:
            return


def _inside(file: Path, root: Path, name: str) -> Path:
    resolved = Path(os.path.realpath(file))
    if not resolved.is_relative_to(os.path.realpath(root)):
        raise ConfigurationError(f"{name!r} is outside the project folder")
    return resolved


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    result = (file for file in folder.iterdir() if file.suffix in ENDINGS and file.is_file())
    return sorted(result)[:MAX_FILES]


def _documents_named(wanted: Path) -> Iterator[Path]:
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
        self, caller: Compilation, name: str, path: Location, value: frozenset[str]
    ) -> DocumentWorkflow | None:
        """Compile the document that a step calls, for the names that it supplies."""
        project = self.project
        folders = list(dict.fromkeys([caller.folder, project.root, project.project]))
        result = project.settings.recorded.meant(project.open[-1], name) or caller.attempt(
            path, lambda: find(name, folders, project.project, project.open)
        )
        if result is None:
            return None
        project.calls[str(project.open[-1]), name] = str(result)
        if result in project.open:
            circle = " -> ".join(
                p.name for p in [*project.open[project.open.index(result) :], result]
            )
            caller.problem(path, f"documents call each other in a cycle: {circle}")
            return None
        if len(project.open) >= MAX_NESTING:
            caller.problem(
                path, f"calls between documents are nested more than {MAX_NESTING} levels deep"
            )
            return None
        try:
            dialect, source, document = self.file(result)
        except DocumentError as error:
            project.problems += error.problems
            return None
        project.open.append(result)
        try:
            compiled = self.compile(
                dialect, source, document, result.parent, value, caller.defaults
            )
        finally:
            project.open.pop()
        return None if source.file in project.gaps else compiled

    def compile(
        self,
        dialect: Dialect,
        source: Source,
        document: Document,
        folder: Path,
        value: frozenset[str],
        inherited: Mapping[str, Json] = MappingProxyType({}),
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
        result = compile_document(document, compilation, value)
        project.problems += compilation.problems
        if result is not None:
            project.notes += dialect.translator.remarks(document, source, self._called)
        if len(project.open) == 1:
            project.settable = _settable(document, compilation)
        return result

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
    result = resources(document, settings, project)
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
        resources=result,
        notes=merge_repeats(project.notes),
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
    place = Path.cwd()
    return place if Path(os.path.realpath(root)).is_relative_to(os.path.realpath(place)) else root


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
            what = f"--set: the document does not use the variable {name!r}{hint or '; it takes no variables'}"
            project.problems.append(
                Problem(next(iter(project.sources.values())).file, 0, 0, "", what)
            )


def _source(path: str | Path, settings: Settings, project: Project) -> dict[str, Json]:
    """Return how the document can be loaded again, with the contents for when its files are gone."""
    files = {str(file): content for file, content in project.contents.items()}
    values = {
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
    return {key: value for key, value in values.items() if value}


def _budget(document: Document, settings: Settings) -> Budget | None:
    result: dict[str, Json] = {}
    for name, unit in UNITS.items():
        value = (getattr(document.budget, unit, None), getattr(settings, name))
        if caps := [cap for cap in value if cap is not None]:
            result[unit] = min(caps)
    return Budget(**result) if result else None
