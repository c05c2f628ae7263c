"""Load documents of any dialect: find them, read and compile them, convert them, and collect what a run needs.

A name refers to a file, the stem of a file, or the `name:` inside it. A conversion prints a document as native YAML in
the style of people.
"""

from __future__ import annotations

import os
import re
import textwrap
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from ..conditions import Budget, tightest
from ..engine.budgets import Limits, MemoryPermits, SharedLimits, strictest
from ..engine.composites import with_timeout
from ..engine.loop import Loop
from ..engine.step import Step
from ..errors import ConfigurationError, DocumentError, LoopwrightWarning, Problem, listed, nearest
from ..records.codec import Json
from ..records.redaction import Redactor, secrets_in
from .compiler.compilation import COMPILER, NATIVE, Compilation, Location, extension, named
from .compiler.steps import KINDS, compile_document
from .detect import REPEATABLE, Dialect, parse
from .lints import lints, merge_repeats
from .plan import missing, plan
from .project import SCRIPTED, LateModels, LoadedDocument, Project, Recorded, Settings, shown_path
from .schema.document import ACTIONS, Document
from .schema.fields import SETTINGS
from .schema.inputs import DeclaredInputs
from .schema.traverse import models_in, parts, variables_in
from .schema.validate import NOTHING_LEFT_OUT
from .steps import DocumentWorkflow, RootWorkflow
from .trust import LocalActions, local_actions
from .yaml.bounds import resolve
from .yaml.reader import Source, read

__all__ = [
    "Loaded",
    "Project",
    "Settings",
    "check",
    "convert",
    "find",
    "load",
    "to_native_yaml",
]

# The order in which people write the fields of a step; the others follow in their order.
_FIRST = ("name", "description", "needs", "if", *ACTIONS)
_HEAD = ("schema", "name", "description", "version", "templates", "input", "inputs", "env")
_LAST = ("otherwise",)
_TEXT = "tag:yaml.org,2002:str"
_SHORT = 72  # characters of a list of names that stays on one line
# Control characters, and characters that only some editors treat as the end of a line.
_ODD = re.compile(
    "[^\t\n -~\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|[\u2028\u2029]"
)


class _Printer(yaml.SafeDumper):
    """Prints values by the YAML 1.2 core schema, which `yaml.reader` reads."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent the items of a list below their key."""
        # PyYAML would write the items of a list at the level of their key.
        del indentless
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Json) -> bool:
        """Write no aliases: a reader of the result expects values, not references."""
        del data
        return True


def _text(printer: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Return a text as a block if it has several lines, quoted if it would be read as another value."""
    return printer.represent_scalar(_TEXT, text, style=_style(text))


def _style(text: str) -> str | None:
    if _ODD.search(text):
        return '"'
    if "\n" in text:
        # A block that keeps several last line breaks would include the empty line between two steps.
        return "|" if text.strip("\n") and not text.endswith("\n\n") else '"'
    # By our own scalars (YAML 1.2), not by PyYAML's: "yes" and "1:30" are texts here.
    try:
        return None if resolve(text) == text else '"'
    except ValueError:
        return '"'


def _list(printer: yaml.SafeDumper, items: list[Json]) -> yaml.SequenceNode:
    """Return a list of a few names on one line."""
    names = all(isinstance(item, str) and "\n" not in item for item in items)
    short = names and sum(len(item) + 2 for item in items) <= _SHORT
    return printer.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=short)


_Printer.add_representer(str, _text)
_Printer.add_representer(list, _list)


def to_native_yaml(document: Document) -> str:
    """Return a document as native YAML, in block style and with long texts as blocks.

    Args:
        document: A document, such as one of `Loaded.documents`.

    Returns:
        YAML that loads as the same document.

    Example:
        >>> from loopwright.documents.schema.document import Document
        >>> document = Document.model_validate(
        ...     {"schema": "loopwright/1", "name": "x", "steps": [{"name": "a", "set": 1}]}
        ... )
        >>> print(to_native_yaml(document))
        schema: loopwright/1
        name: x
        <BLANKLINE>
        steps:
          - name: a
            set: 1
        <BLANKLINE>
    """
    dumped = document.model_dump(by_alias=True, exclude_unset=True)
    data = {key: dumped[key] for key in (*_HEAD, *dumped) if key in dumped}
    if "eval" in data:
        data["eval"] = {**data["eval"], "task": _step(data["eval"]["task"])}
        return _printed(data)
    steps = [_printed([_step(step)]) for step in data.pop("steps")]
    output = {"output": data.pop("output")} if "output" in data else {}
    printed = "\n".join(textwrap.indent(step, "  ", _has_more) for step in steps)
    end = f"\n{_printed(output)}" if output else ""
    return f"{_printed(data)}\nsteps:\n{printed}{end}"


def _has_more(line: str) -> bool:
    return line != "\n"


def _printed(data: Json) -> str:
    printed: str = yaml.dump(
        # An unlimited width: folded lines would change the text of prompts.
        data, Dumper=_Printer, sort_keys=False, allow_unicode=True, width=1_000_000,
        default_flow_style=False,
    )  # fmt: skip
    return printed


def _step(action: dict[str, Json]) -> dict[str, Json]:
    """Return a step with its fields, and those of inner steps, in the usual order."""
    inner: dict[str, Json] = {
        key: [_step(step) for step in action[key]]
        for key in ("steps", "parallel", "fallback")
        if action.get(key)
    }
    for key in ("loop", "each"):
        if action.get(key):
            inner[key] = {**action[key], "execute": _step(action[key]["execute"])}
    fields = {**action, **inner}
    middle = [key for key in fields if key not in (*_FIRST, *_LAST)]
    return {key: fields[key] for key in (*_FIRST, *middle, *_LAST) if key in fields}


SUFFIXES = (".yaml", ".yml", ".json")
# A document may lie in a home folder: both limits bound the time of a search there.
MAX_FILES = 1000  # files of one folder that are searched
MAX_FOLDERS = 200  # folders that are searched for a hint


def find(name: str, folders: Collection[Path], root: Path, calling: Collection[Path] = ()) -> Path:
    """Return the real path of the document that a name refers to.

    The name is a file, or the stem of a file or the `name:` inside it, after a path of folders if it has slashes.

    Args:
        name: The name in the document that calls.
        folders: The folders to search, in this order.
        root: The folder that the result must be in.
        calling: The documents that are calling. They are a result only if no other document matches.

    Raises:
        ConfigurationError: If no document or several documents match, or if the document is outside `root`.
    """
    # A document comes from others: its names must not reach files outside the project.
    if Path(name).is_absolute() or ".." in Path(name).parts or not name.strip():
        raise ConfigurationError(f"{name!r} is outside the project folder")
    for folder in folders:
        if (folder / name).is_file():
            return _inside(folder / name, root, name)
    for folder in folders:
        matches = sorted({_inside(file, root, name) for file in _documents_named(folder / name)})
        # A document and the one that it calls may have the same `name:`, for example in two folders.
        matches = [file for file in matches if file not in calling] or matches
        if len(matches) > 1:
            files = ", ".join(file.name for file in matches)
            raise ConfigurationError(f"{name!r} is ambiguous: {files}; use a file name")
        if matches:
            return matches[0]
    where = "beside this one" + (" or from the project folder" if "/" in name else "")
    raise ConfigurationError(f"there is no document {name!r} {where}{_hint(name, folders)}")


def _hint(name: str, folders: Collection[Path]) -> str:
    """Return a document of the same stem elsewhere, or the nearest stem, for a message."""
    stem = Path(name).stem
    same: dict[Path, str] = {}
    for folder in folders:
        for file in _below(folder):
            if stem in (file.stem, file.name):
                same.setdefault(file, str(file.relative_to(folder)))
    if same:
        files = " or ".join(sorted(same.values(), key=lambda file: (file.count(os.sep), file))[:3])
        return f"; did you mean {files}?"
    stems = {file.stem for folder in folders for file in _files((folder / name).parent)}
    return nearest(name, stems)


def _below(folder: Path) -> Iterator[Path]:
    """Iterate over the documents below a folder, without hidden folders."""
    for count, (path, folders, names) in enumerate(os.walk(folder)):
        # In place, so that `os.walk` does not enter the folders that are left out.
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f != "node_modules")
        yield from (Path(path, name) for name in names if name.endswith(SUFFIXES))
        if count == MAX_FOLDERS:
            return


def _inside(file: Path, root: Path, name: str) -> Path:
    # Real paths: a symbolic link may lead out of the project.
    path = Path(os.path.realpath(file))
    if not path.is_relative_to(os.path.realpath(root)):
        raise ConfigurationError(f"{name!r} is outside the project folder")
    return path


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    files = (file for file in folder.iterdir() if file.suffix in SUFFIXES and file.is_file())
    return sorted(files)[:MAX_FILES]


def _documents_named(path: Path) -> Iterator[Path]:
    """Iterate over the files whose stem or whose `name:` is the last part of a path."""
    for file in _files(path.parent):
        if file.stem == path.name or _has_name(file, path.name):
            yield file


def _has_name(file: Path, name: str) -> bool:
    try:
        raw = file.read_bytes()
        # Most files of a folder are other documents, and parsing each would take seconds.
        if name.encode() not in raw:
            return False
        value = read(raw, file.name, repeatable=REPEATABLE).value
    except (OSError, DocumentError):
        return False
    return isinstance(value, Mapping) and value.get("name") == name


MAX_NESTING = 8  # levels of documents that call documents, the documented limit


@dataclass(frozen=True)
class Loaded(LoadedDocument):
    """A document that is ready to run.

    `run` and `resume` take it as a step: its `step` runs with its `resources` and `source`, and with
    `default_input` and `budget` unless you set others.

    Attributes:
        name: The name of the document.
        step: The step to run.
        source: How to load the document again, as JSON. A durable run records it.
        default_input: The `input` of the document.
        budget: The budget of the document and of the settings, whichever is lower.
        resources: The models, prices and transcript, for `run(resources=…)`.
        notes: Problems that do not prevent a run, each with its place.
        documents: The native form of this document and of each document that it calls, by file.

    Example:
        >>> import asyncio, pathlib, tempfile
        >>> from loopwright import run
        >>> from loopwright.documents import load
        >>> file = pathlib.Path(tempfile.mkdtemp(), "hello.yaml")
        >>> _ = file.write_text("schema: loopwright/1\\nname: hello\\nsteps: [{name: greet, set: 'Hello {{ input }}'}]")
        >>> loaded = load(file)
        >>> asyncio.run(run(loaded, "Ada")).output
        'Hello Ada'
    """

    def local_actions(self) -> LocalActions:
        """Return the commands, Python functions and keys that the document uses on this machine."""
        return local_actions(self)

    def lints(self) -> list[Problem]:
        """Return notes on valid but unusual parts of the document, each with its place and a remedy."""
        return lints(self)

    def missing(self, *, offline: bool = False) -> list[Problem]:
        """Return what the document needs and this machine lacks.

        These are keys, packages, local servers, the programs of coding agents, folders and git.

        Args:
            offline: Do not connect to local servers. Default: False.
        """
        return missing(self, self.environ, offline=offline)

    def input_schema(self) -> dict[str, Json]:
        """Return the JSON Schema of the input of a run.

        Returns:
            That of an object with the declared inputs. Without them any JSON value is valid, and its default is
            the `input` of the document.

        Example:
            >>> import pathlib, tempfile
            >>> from loopwright.documents import load
            >>> file = pathlib.Path(tempfile.mkdtemp(), "hello.yaml")
            >>> _ = file.write_text(
            ...     "schema: loopwright/1\\nname: hello\\ninputs: {who: {description: Whom to greet.}}\\n"
            ...     "steps: [{name: greet, set: 'Hello {{ input.who }}'}]"
            ... )
            >>> load(file).input_schema()["properties"]
            {'who': {'type': 'string', 'description': 'Whom to greet.'}}
        """
        if self.inputs is not None:
            return self.inputs.schema()
        return {} if self.default_input is None else {"default": self.default_input}

    def plan(self) -> dict[str, Json]:
        """Return the plan of the document as JSON.

        Returns:
            An object with `name`, `steps`, `models`, `commands`, `python`, `files`, `agents`, `hosts`,
            `environment`, `keys`, `documents`, `bounds`, `worst_case_calls` (the maximum of model calls) and `notes`,
            and `inputs` if it declares some.
        """
        return plan(self)


# The fields of a document that its prompts and judges inherit.
_INHERITED = (
    "model", "models", "temperature", "max_tokens", "model_url", "api_key_env", "call_timeout", "answer_timeout",
    *SETTINGS,
)  # fmt: skip


@dataclass(frozen=True)
class _Loader:
    """Reads and compiles the documents of a project, each for the documents that call it."""

    project: Project

    def file(self, path: Path) -> tuple[Dialect, Source, Document]:
        """Read a document of any dialect as a native one.

        Raises:
            DocumentError: with every problem of the document.
        """
        project = self.project
        raw = project.contents[path] = project.content(path)
        dialect, source, document = parse(raw, shown_path(path), project)
        project.documents[str(path)] = document
        project.sources[str(path)] = source
        return dialect, source, document

    def call(
        self, caller: Compilation, name: str, path: Location, names: frozenset[str]
    ) -> DocumentWorkflow | None:
        """Compile the document that a step calls, for the names that the step supplies."""
        project = self.project
        folders = list(dict.fromkeys([caller.folder, project.root, project.project]))
        # A recorded run continues with the file that it called, even if that file was deleted.
        file = project.settings.recorded.called(project.open[-1], name) or caller.attempt(
            path, lambda: find(name, folders, project.project, project.open), own=True
        )
        if file is None:
            return None
        project.calls[str(project.open[-1]), name] = str(file)
        if file in project.open:
            cycle = [*project.open[project.open.index(file) :], file]
            names_of_cycle = " -> ".join(part.name for part in cycle)
            caller.problem(path, f"documents call each other in a cycle: {names_of_cycle}")
            return None
        if len(project.open) >= MAX_NESTING:
            message = f"calls between documents are nested more than {MAX_NESTING} levels deep"
            caller.problem(path, message)
            return None
        try:
            dialect, source, document = self.file(file)
        # The problems of a called document are reported together with those of its caller.
        except DocumentError as error:
            project.problems += error.problems
            return None
        project.open.append(file)
        try:
            workflow = self.compile(dialect, source, document, names, caller=caller)
        finally:
            project.open.pop()
        return None if source.file in project.gaps else workflow

    def compile(
        self,
        dialect: Dialect,
        source: Source,
        document: Document,
        names: frozenset[str],
        *,
        caller: Compilation | None = None,
    ) -> DocumentWorkflow | None:
        """Compile the open document; a document without a model inherits the settings of its caller."""
        if document.inputs:  # the caller gives inputs instead of variables
            names = frozenset(name for name in names if name.partition(".")[0] == "loop")
        defaults = {name: getattr(document, name) for name in _INHERITED}
        # Model and settings belong together: a document with a model of its own inherits no key or address.
        if document.model is None and document.models is None:
            inherited = {} if caller is None else caller.defaults
            defaults |= {k: v for k, v in inherited.items() if defaults.get(k) is None}
        project = self.project
        compilation = Compilation(
            source,
            folder=project.open[-1].parent,
            project=project,
            kinds=KINDS,
            call=self.call,
            defaults=defaults,
            templates=NATIVE if document.templates == "native" else extension(document.templates),
            gaps=project.gaps.get(source.file, NOTHING_LEFT_OUT),
            in_workspace=caller is not None and caller.in_workspace,
            refine_from=None if caller is None else caller.refine_from,
            inputs=frozenset() if source.file in project.gaps else frozenset(document.inputs),
        )
        workflow = compile_document(document, compilation, names)
        project.problems += compilation.problems
        if workflow is not None:
            project.notes += dialect.translator.remarks(document, source, self._called)
        # Variables of `--set` belong to the first document only; it passes them on through `with`.
        if len(project.open) == 1:
            # `given.NAME` is the long form of a variable's name in templates.
            named = compilation.optional.union(*(names for _, names in compilation.used))
            used = {name.removeprefix("given.") for name in named}
            reserved = ("loop", "steps", "loops", "env", "value", "input", "workflow", "strategy")
            # The output of a step hides a variable of its name.
            steps = {part.__dict__.get("name") for part in parts(document)}
            own = {*reserved, "given", *steps}
            variables = {name for name in used if name.partition(".")[0] not in own}
            project.settable = frozenset({*variables, *document.env})
        return workflow

    def _called(self, name: str) -> Document | None:
        """Return the document that the open document calls by a name."""
        file = self.project.calls.get((str(self.project.open[-1]), name))
        return self.project.documents.get(file) if file is not None else None


def load(path: str | Path, settings: Settings | None = None) -> Loaded:
    """Load a document of any dialect with all documents that it calls.

    Nothing runs and no model is called. Python functions are imported unless `settings.execute` is False.

    Args:
        path: The file, YAML or JSON, at most 1 MiB.
        settings: The decisions of the caller, such as variables, model and budget. Default: `Settings()`.

    Returns:
        The document, ready to run.

    Raises:
        DocumentError: with every problem of the documents, each with its file, line, column and remedy.

    Example:
        >>> import pathlib, tempfile
        >>> from loopwright.documents import Settings, load
        >>> file = pathlib.Path(tempfile.mkdtemp(), "hello.yaml")
        >>> _ = file.write_text("schema: loopwright/1\\nname: hello\\nsteps: [{name: greet, set: 'Hello {{ who }}'}]")
        >>> load(file, Settings(sets={"who": "Ada"})).name
        'hello'
    """
    settings = settings or Settings()
    file = Path(os.path.realpath(path))
    root = settings.root or file.parent
    project = Project(settings, root, _project(root, settings))
    loader = _Loader(project)
    dialect, source, document = loader.file(file)
    project.open.append(file)
    # A loop warns when it is created. `lints` reports the same with the place in the document.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LoopwrightWarning)
        workflow = loader.compile(dialect, source, document, frozenset(settings.sets))
    inputs = None
    # A part that was left out may use the variable.
    if not project.gaps and document.inputs:
        inputs = _inputs(document, source.file, settings, project)
    elif not project.gaps:
        _refuse_unused(settings, project)
    # Notes become errors, for continuous integration.
    if settings.strict:
        project.problems += project.notes
    if project.problems or workflow is None:
        problems = project.problems
        if project.gaps:  # several passes reported them
            # The documents in the order in which they were read.
            files = list(dict.fromkeys(problem.file for problem in problems))
            problems = sorted(problems, key=lambda p: (files.index(p.file), p.line, p.column))
        # Two passes may report the same problem; a dict removes repeats and keeps the order.
        raise DocumentError(dict.fromkeys(problems))
    project.problems += _unpriced(workflow, _budget(document, settings), project)
    run_resources = _resources(document, settings, project)
    limits = _limits(project)
    if limits:
        run_resources = {**run_resources, "permits": SharedLimits(MemoryPermits(), limits)}
    if project.problems:
        raise DocumentError(project.problems)
    step: Step = workflow
    if settings.sets and inputs is None:
        step = RootWorkflow(workflow, settings.sets)
    if document.timeout is not None:
        step = with_timeout(step, document.timeout)
    if inputs is not None:
        object.__setattr__(step, "complete_input", inputs.complete)
    if not settings.former:
        recorded = Recorded(
            {str(name): content for name, content in project.contents.items()}, project.calls
        )
        before = replace(settings, former=True, recorded=recorded, strict=False)
        object.__setattr__(step, "former", lambda: load(path, before).step.fingerprint)
    return Loaded(
        name=document.name,
        step=step,
        source=_source(path, settings, project),
        default_input=document.input,
        budget=_budget(document, settings),
        limits=limits,
        resources=run_resources,
        notes=merge_repeats(project.notes),
        documents=project.documents,
        sources=project.sources,
        calls=project.calls,
        agents=settings.agents,
        asks=() if settings.replies is not None else tuple(project.asks),
        needs=tuple(project.needs),
        models=tuple(
            (model, ask.base_url)
            for _, ask in project.asks
            for model in ask.models
            if model != SCRIPTED
        ),
        environ=settings.environ,
        contents=project.contents,
        keys=tuple(dict.fromkeys(project.keys)),
        agreed=settings.agreed,
        sent=tuple(dict.fromkeys(project.sent)),
        inputs=inputs,
        cases=project.cases,
    )


def check(path: str | Path, settings: Settings | None = None) -> tuple[Problem, ...]:
    """Check a document of any dialect, and the documents that it calls, without running anything.

    Args:
        path: The file, YAML or JSON, at most 1 MiB.
        settings: The decisions of the caller. Default: those of `loopwright check`, which imports no Python
            function and knows the providers of models.

    Returns:
        Every problem, each with its file, line, column and remedy. Empty if the document is valid.

    Example:
        >>> import pathlib, tempfile
        >>> from loopwright.documents import check
        >>> file = pathlib.Path(tempfile.mkdtemp(), "hello.yaml")
        >>> _ = file.write_text("schema: loopwright/1\\nname: hello\\nsteps: [{name: greet, sett: Hello}]")
        >>> [(problem.line, problem.path) for problem in check(file)]
        [(3, 'steps[0].sett')]
    """
    try:
        load(path, settings or Settings(execute=False, environ=os.environ, providers=None))
    except DocumentError as error:
        return tuple(error.problems)
    return ()


def convert(path: str | Path, settings: Settings | None = None) -> str:
    """Convert a document of any dialect to the native dialect. It runs the same.

    Args:
        path: The file, YAML or JSON, at most 1 MiB.
        settings: The decisions of the caller. Default: `Settings(execute=False)`, which imports no Python
            function.

    Returns:
        The native document as YAML. The documents that it calls are not part of it.

    Raises:
        DocumentError: With every problem of the document.

    Example:
        >>> import pathlib, tempfile
        >>> from loopwright.documents import convert
        >>> file = pathlib.Path(tempfile.mkdtemp(), "hello.yaml")
        >>> _ = file.write_text("schema: loopwright/1\\nname: hello\\nsteps: [{set: Hello, name: greet}]")
        >>> print(convert(file).splitlines()[-1].strip())
        set: Hello
    """
    loaded = load(path, settings or Settings(execute=False))
    return to_native_yaml(next(iter(loaded.documents.values())))


def _project(root: Path, settings: Settings) -> Path:
    """Return the folder to search for documents: the caller's, else the current folder if it contains the root."""
    if settings.project or settings.root:
        return settings.project or root
    current = Path.cwd()
    inside = Path(os.path.realpath(root)).is_relative_to(os.path.realpath(current))
    return current if inside else root


def _refuse_unused(settings: Settings, project: Project) -> None:
    """Report the variables of the caller that the document does not use."""
    # A misspelt name would otherwise have no effect, without a message.
    names = project.settable
    for name in settings.sets:
        if name not in names and not any(used.startswith(f"{name}.") for used in names):
            hint = nearest(name, names) or listed(name, sorted(names), lead="it takes")
            message = f"--set: the document does not use the variable {name!r}"
            file = next(iter(project.sources.values())).file
            problem = Problem(file, 0, 0, "", f"{message}{hint or '; it takes no variables'}")
            project.problems.append(problem)


def _inputs(document: Document, file: str, settings: Settings, project: Project) -> DeclaredInputs:
    """Return the inputs of a document with the values of the caller; those that are not valid are problems."""
    inputs, given = DeclaredInputs(document.name, document.inputs), dict[str, Json]()
    for name, text in settings.sets.items():
        try:
            given[name] = inputs.value(name, text, text=True)
        except ConfigurationError as error:
            project.problems.append(Problem(file, 0, 0, "", f"--set: {error}"))
    return replace(inputs, given=given)


def _source(path: str | Path, settings: Settings, project: Project) -> dict[str, Json]:
    """Return the settings to load the document again, with its contents in case its files are deleted."""
    files = {str(file): content for file, content in project.contents.items()}
    fields = {
        "file": os.path.realpath(path),
        "dialect": project.dialect,
        # Inputs are recorded as the input of the run.
        "sets": {} if project.documents[os.path.realpath(path)].inputs else dict(settings.sets),
        "model": settings.model,
        "model_url": settings.model_url,
        "replies": settings.replies and os.path.realpath(settings.replies),
        "cache": settings.cache,
        **settings.limits(),
        "root": settings.root and str(settings.root),
        "agents": dict(settings.agents),
        "allowed_hosts": list(settings.allowed_hosts),
        "lenient": settings.lenient,
        "strict": settings.strict,
        "eval": _evaluation(project.documents[os.path.realpath(path)], settings),
        # A run must be able to continue after its document was edited or deleted.
        "documents": Recorded(files, project.calls).to_json(),
    }
    # Only what was set: the recorded object stays valid when a new setting is added.
    return {key: value for key, value in fields.items() if value}


def _evaluation(document: Document, settings: Settings) -> dict[str, Json]:
    """Return how the evaluation of a document runs and what its result must reach; nothing without one."""
    if (spec := document.eval) is None:
        return {}
    gate = {} if spec.gate is None else spec.gate.model_dump(exclude_none=True)
    gate |= settings.evaluation.get("gate", {})
    own = {"file": spec.dataset.file, "at_once": spec.at_once, "repeat": spec.repeat}
    return {**own, **settings.evaluation, **({"gate": gate} if gate else {})}


def _limits(project: Project) -> dict[str, Limits]:
    """Return the limits of all documents of a project, of each name the strictest."""
    result: dict[str, Limits] = {}
    for document in project.documents.values():
        limits = {
            name: Limits(limit.cap or 0, limit.rate or 0, limit.per)
            for name, limit in document.limits.items()
        }
        result = strictest(result, limits)
    return result


def _unpriced(step: Step, budget: Budget | None, project: Project) -> list[Problem]:
    """Return the problems of coding agents whose cost is unknown under a budget in US dollars."""
    if not project.coding:
        return []
    from ..coding.agents.step import unpriced

    capped = {id(part) for part in _under_usd(step, budget)}
    return [
        replace(place, message=unpriced(agent.name, agent.manifest))
        for place, agent in project.coding
        if id(agent) in capped and not agent.prices_known
    ]


def _under_usd(step: Step, budget: Budget | None, *, capped: bool = False) -> Iterator[Step]:
    """Iterate over the steps that a budget in US dollars limits: their own, or one around them."""
    capped = capped or (budget is not None and budget.usd is not None)
    if capped:
        yield step
    for part in step.parts():
        own = part.budget if isinstance(part, Loop) else None
        yield from _under_usd(part, own, capped=capped)


def _resources(document: Document, settings: Settings, project: Project) -> Mapping[str, Json]:
    """Return the resources of a run; those for models only now if the document names a model or asks one."""

    def made() -> dict[str, Json]:
        result: dict[str, Json] = named(f"{COMPILER}.prompts:resources")(
            document, settings, project
        )
        return result

    documents = project.documents.values()
    if project.asks or settings.model or settings.replies is not None:
        return made()
    if any(item.prices or any(True for _ in models_in(item)) for item in documents):
        return made()
    variables = {name for item in documents for name in variables_in(item)}
    redactor = Redactor(secrets_in(settings.environ, variables))
    own = {"redactor": redactor or None, "cache": settings.cache}
    return LateModels({name: value for name, value in own.items() if value is not None}, made)


def _budget(document: Document, settings: Settings) -> Budget | None:
    # A caller may lower the budget of a document but not raise it.
    return tightest(document.budget, settings.budget_of_limits())
