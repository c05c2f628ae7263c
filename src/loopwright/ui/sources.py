"""The target of `run`: a document, or a step of a Python module as `package.module:attribute`.

Both record how to load them again, so that `resume` needs no file name.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from ..conditions import Budget, RunLimits
from ..engine.step import Step, as_step
from ..errors import ConfigurationError, DocumentError, Problem, nearest
from ..journal import RunInfo
from ..records.codec import Json, text_of
from ..records.redaction import Redactor, secrets_in
from .inputs import variables

if TYPE_CHECKING:
    from ..documents.schema.inputs import DeclaredInputs
    from ..documents.trust import LocalActions
    from .cli.options import DocumentOptions

_PYTHON = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")


class RunSource(Protocol):
    """A loaded document or Python step; `loopwright.documents.Loaded` is one."""

    @property
    def name(self) -> str: ...
    @property
    def step(self) -> Step: ...
    @property
    def default_input(self) -> Json: ...
    @property
    def resources(self) -> Mapping[str, Any]: ...
    @property
    def budget(self) -> Budget | None: ...
    @property
    def source(self) -> dict[str, Json]: ...
    @property
    def notes(self) -> tuple[Problem, ...]: ...
    @property
    def needs_python(self) -> bool: ...
    @property
    def inputs(self) -> DeclaredInputs | None: ...
    def local_actions(self) -> LocalActions | None: ...
    def lints(self) -> list[Problem]: ...
    def missing(self, *, offline: bool = False) -> list[Problem]: ...
    def plan(self) -> dict[str, Json]: ...


@dataclass(frozen=True)
class SourceSettings(RunLimits):
    """The settings of a document from the command line; see `loopwright.documents.Settings`."""

    sets: Mapping[str, str] = field(default_factory=dict)
    model: str | None = None
    model_url: str | None = None
    replies: str | None = None
    cache: str | None = None
    transcript: str | None = None
    agents: Mapping[str, str] = field(default_factory=dict)
    lenient: bool = False
    evaluation: Mapping[str, Json] = field(default_factory=dict)
    documents: Json = None  # the recorded contents, for files that no longer exist
    recorded_only: bool = False  # no document on disk is read

    @classmethod
    def of(cls, options: DocumentOptions) -> SourceSettings:
        """Return the settings in the options of a command, with `NAME=VALUE` texts split."""
        names = {one.name for one in fields(cls)}
        same: dict[str, Any] = {
            one.name: getattr(options, one.name) for one in fields(options) if one.name in names
        }
        same["sets"] = variables(options.sets or ())
        same["agents"] = variables(options.agents or (), "--agent")
        if (cache := same.get("cache")) is not None:
            same["cache"] = "store" if cache else "off"
        return cls(**same)

    def for_documents(self) -> list[str]:
        """Return the options in use that apply to documents only."""
        used = {"--set": self.sets, "--agent": self.agents, "--lenient": self.lenient}
        return [option for option, value in used.items() if value]


@dataclass(frozen=True)
class PythonStep:
    """A step of a Python module."""

    name: str
    step: Step
    source: dict[str, Json]
    budget: Budget | None = None
    default_input: Json = None
    resources: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[Problem, ...] = ()
    needs_python: bool = True
    inputs: None = None  # a function declares its input by its types
    kind: str = "step"  # of what the name stands for; workers load nothing but steps by their names

    def local_actions(self) -> LocalActions | None:
        """Return None: naming a module's attribute is approval enough."""

    def lints(self) -> list[Problem]:
        """Return no remarks; they are for documents."""
        return []

    def missing(self, *, offline: bool = False) -> list[Problem]:
        """Return nothing, because the models of a Python step are unknown before it runs."""
        del offline
        return []

    def plan(self) -> dict[str, Json]:
        """Return its name, its kind and its iteration limit."""
        limit = getattr(self.step, "limit", None)
        bounds = [f"{self.name}: at most {limit} iterations"] if isinstance(limit, int) else []
        return {"name": self.name, "steps": [repr_of(self.step)], "bounds": bounds}


@dataclass(frozen=True)
class ProgramStep(PythonStep):
    """A step that a Python program named when it ran. Its code is imported after approval."""

    actions: LocalActions | None = None

    def local_actions(self) -> LocalActions | None:
        """Return the module with those beside it that it imports."""
        return self.actions

    def plan(self) -> dict[str, Json]:
        """Return what the question for an approval shows."""
        return {
            "commands": [],
            "python": [self.source["program"]],
            "keys": [],
            "hosts": [],
            "environment": [],
        }


def repr_of(step: Step) -> str:
    """Return a step's name and kind."""
    return f"{step.name} ({type(step).__name__})"


def load_source(
    what: str,
    settings: SourceSettings,
    *,
    execute: bool = True,
    root: str = "",
    contents: Mapping[Path, bytes] | None = None,
) -> RunSource:
    """Load a document by its file, or a Python step by `package.module:attribute`.

    Without `execute`, a document's functions are located but their modules are not run. `root` is the
    first folder on the import path (default: the current one). With `contents`, the approved files,
    nothing else is loaded.

    Raises:
        DocumentError, ConfigurationError: if it cannot be loaded.
    """
    # A file named "a:b" is a document, although it looks like a Python path.
    match = _PYTHON.fullmatch(what)
    if match and not Path(what).exists():
        return _python(match[1], match[2], settings, root or str(Path.cwd()))
    if not Path(what).is_file() and settings.documents is None:
        raise ConfigurationError(_missing(what))
    if what.endswith(".py"):
        raise ConfigurationError(
            f"{what} is a Python file, not a document. Name a step in it: {Path(what).stem}:NAME"
        )
    loaded: RunSource = documents_module().document_of(
        what, settings, execute=execute, root=root, contents=contents
    )
    return loaded


def input_rows(file: str) -> list[tuple[str, str]]:
    """Return the inputs that a document declares, each with its description, for the help of a command.

    Raises:
        ConfigurationError: if there is no such document; of a wrong one, the first problem is returned.
    """
    try:
        inputs = load_source(file, SourceSettings(), execute=False).inputs
    except DocumentError as error:
        return [("", str(error).splitlines()[0])]
    if inputs is None:
        return [("", "It declares none.")]
    rows = []
    for name, spec in inputs.specs.items():
        kind = "|".join(spec.texts()) or spec.type
        state = "required" if spec.required else f"default: {text_of(spec.default)}"
        rows.append((name, f"{spec.description}  [{kind}; {state}]".strip()))
    return rows


def documents_module() -> ModuleType:
    """Return `ui.documents`. A Python step needs no documents, and they take a second to load."""
    from . import documents

    return documents


def load_again(
    info: RunInfo,
    settings: SourceSettings,
    *,
    execute: bool = True,
    contents: Mapping[Path, bytes] | None = None,
    anew: bool = False,
) -> RunSource:
    """Load the source of a recorded run; settings of this command replace the recorded ones.

    Args:
        info: the run.
        settings: the settings of this command.
        execute: whether the modules of a document's functions are run.
        contents: the approved files, in place of those on disk.
        anew: whether it is for a new run, which may have other inputs.

    Raises:
        ConfigurationError: if a Python program started the run, or for values of inputs that it has recorded.
        DocumentError: if the document is missing or wrong.
    """
    recorded_source = info.source
    root = text_of(recorded_source.get("root"))
    if "python" in recorded_source:
        names = ("model", "model_url", "replies", "cache")
        options: dict[str, Any] = {
            name: getattr(settings, name) or recorded_source.get(name) for name in names
        } | _limits(settings, recorded_source)
        # `execute` has no meaning here: the user named the module, and importing it is the only way to load it.
        python = load_source(recorded_source["python"], replace(settings, **options), root=root)
        return _measured(python, recorded_source)
    if "program" in recorded_source:
        reference = recorded_source["program"]
        if used := settings.for_documents():
            raise ConfigurationError(f"{used[0]} is for documents; {reference} is a Python step")
        step, actions = documents_module().program_of(
            reference, root, execute=execute, contents=contents
        )
        program = {key: recorded_source[key] for key in ("program", "root")}
        return ProgramStep(
            reference, step or as_step(_nothing), program if anew else dict(recorded_source),
            settings.budget_of_limits(),
            resources=_Models(settings), actions=actions,
        )  # fmt: skip
    if "file" not in recorded_source:
        call = "run_sync(step, …" if anew else f"resume_sync(step, {info.run_id!r}"
        raise ConfigurationError(
            f"{info.run_id} was started by a Python program, which is the only one that has its step. "
            f"{'Run it again' if anew else 'Resume it'} there: {call}, journal=…)"
        )
    settings_of_resume = SourceSettings(
        sets={**recorded_source.get("sets", {}), **settings.sets},
        model=settings.model or recorded_source.get("model"),
        model_url=settings.model_url or recorded_source.get("model_url"),
        replies=settings.replies or recorded_source.get("replies"),
        cache=settings.cache or recorded_source.get("cache"),
        transcript=settings.transcript,
        agents={**recorded_source.get("agents", {}), **settings.agents},
        lenient=settings.lenient or bool(recorded_source.get("lenient")),
        evaluation={**recorded_source.get("eval", {}), **settings.evaluation},
        documents=recorded_source.get("documents"),
        recorded_only=settings.recorded_only,
        **_limits(settings, recorded_source),
    )
    source = load_source(
        recorded_source["file"], settings_of_resume, execute=execute, root=root, contents=contents
    )
    if not anew:
        refuse_inputs(info, source, settings)
    return _measured(source, recorded_source)


def refuse_inputs(info: RunInfo, source: RunSource, settings: SourceSettings) -> None:
    """Raise ConfigurationError for values of declared inputs, because a recorded run keeps its own."""
    if source.inputs is not None and settings.sets:
        raise ConfigurationError(
            f"--set: {info.run_id} keeps its recorded inputs. To run it with others, use loopwright again {info.run_id}"
        )


def _nothing(value: Json) -> None:
    """Stand for a step that is not imported yet."""


def _limits(settings: SourceSettings, recorded_source: Mapping[str, Json]) -> dict[str, Any]:
    """Return the limits of the command, else the recorded ones; 0 is a value, which is refused later."""
    return {
        name: recorded_source.get(name) if value is None else value
        for name, value in settings.limits().items()
    }


def _measured(source: RunSource, recorded_source: Mapping[str, Json]) -> RunSource:
    """Return the measurement of a judge if that was the run, else the source itself."""
    if (bench := recorded_source.get("bench")) is None:
        return source
    measurement: RunSource = documents_module().measurement_of(source, bench)
    return measurement


def _python(module: str, attribute: str, settings: SourceSettings, root: str) -> PythonStep:
    name = f"{module}:{attribute}"
    if options := settings.for_documents():
        raise ConfigurationError(f"{options[0]} is for documents; {name} is a Python step")
    # The run's root, and not the folder of this command, so that `resume` imports the same module.
    if root not in sys.path:
        sys.path.insert(0, root)  # the import path of a console script lacks the current folder
    try:
        imported = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # the user's module can raise anything
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise ConfigurationError(f"{module} cannot be imported: {why}") from error
    target = _attribute(imported, name, attribute)
    step = as_step(target)
    kind = "step" if step is target else type(target).__name__
    source: dict[str, Json] = {"python": name, "root": root}
    source |= {name: value for name, value in settings.limits().items() if value is not None}
    replies = settings.replies and os.path.realpath(
        settings.replies
    )  # for a resume in another folder
    models = {
        "model": settings.model,
        "model_url": settings.model_url,
        "replies": replies,
        "cache": settings.cache,
    }
    source |= {key: value for key, value in models.items() if value}
    resources = _Models(settings)
    if settings.replies:  # a missing file is reported even if the step calls no model
        resources.load()
    budget = settings.budget_of_limits()
    return PythonStep(step.name, step, source, budget, resources=resources, kind=kind)


_OF_MODELS = ("models", "model", "model_url")


class _Models(Mapping[str, Any]):
    """The models of a Python step, loaded at the first model call."""

    def __init__(self, settings: SourceSettings) -> None:
        self._given = settings
        self._models: Mapping[str, Any] | None = None

    def load(self) -> Mapping[str, Any]:
        """Return the models, loading them once."""
        if self._models is None:
            self._models = documents_module().models_of(self._given)
        return self._models

    def __getitem__(self, name: str) -> Any:
        if name == "redactor":  # every run needs it, also one without models
            return Redactor(secrets_in(os.environ))
        if name == "cache" and self._given.cache:
            return self._given.cache
        if name not in _OF_MODELS:  # a name that the engine looks up in every run loads no models
            raise KeyError(name)
        return self.load()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.load())

    def __len__(self) -> int:
        return 1  # not empty; the count is not worth loading the models


def _attribute(module: Any, name: str, attribute: str) -> Any:
    value = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            public = [word for word in dir(value) if not word.startswith("_")]
            raise ConfigurationError(f"{name}: there is no {part!r}{nearest(part, public)}")
        value = getattr(value, part)
    # A class is callable too, but calling it makes an object and not an output.
    if isinstance(value, type) or not (callable(value) or hasattr(value, "fingerprint")):
        kind = "a class" if isinstance(value, type) else f"a {type(value).__name__}"
        raise ConfigurationError(
            f"{name}: {kind} is not a step. Name a Loop, a Workflow or a function."
        )
    return value


def _missing(what: str) -> str:
    path = Path(what)
    if not what:
        return "the name of the document is empty; name a document, or package.module:attribute"
    if path.is_dir():
        return f"{what} is a folder. Name a document in it."
    if path.exists():  # a pipe or a device
        return f"{what} is not a regular file, and a document is read more than once; save it in a file"
    folder = path.parent
    siblings = [str(folder / entry.name) for entry in folder.iterdir()] if folder.is_dir() else []
    hint = nearest(str(path), siblings)
    return f"there is no file {what!r}{hint or '; name a document, or package.module:attribute'}"
