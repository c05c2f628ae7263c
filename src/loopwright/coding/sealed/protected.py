"""Which files a check depends on, so that an agent must not change them.

1. A protected file that differs from the base is replaced by that of the base, and the iteration is `touched`.
2. A new test is not tampering: it stays in the workspace, and the check does not run it.
3. A new file that configures or shadows the test program is tampering, and so is a link out of the project.
4. What the check is, its base says: the names in its command, in its Makefile and in its settings.
5. The Makefile of the base is read as text, and never run. The files that the target of the command names, in its
   prerequisites and its recipe, belong to the check. What a rule builds, and what a Makefile includes, is known by its
   name, whether it exists or not.
6. Of a settings file of which only some parts belong to a check, these parts are compared and put back.
"""

from __future__ import annotations

import fnmatch
import functools
import json
import os
import posixpath
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha1, sha256

from ...records.codec import Json
from .measure import RUNNERS, Runner, runner_of

__all__ = [
    "MakeNames",
    "Protection",
    "TreeChange",
    "TreeEntry",
    "digest_of",
    "folders_above",
    "make_names",
    "parts_of",
    "started",
    "with_parts",
]

_MAKE = re.compile(r"(?:.*/)?g?make")
_FILES = ("GNUmakefile", "makefile", "Makefile")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_INTERPRETER = re.compile(
    r"python[0-9.]*|(ba|da|z|k)?sh|node|deno|bun|ruby|perl|php|tsx|uv|poetry|run|npx|env|exec|time|nice"
)
_VARIABLE = re.compile(r"(?:export\s+|override\s+)*([^\s:#=]+?)\s*(?:\+|\?|:{1,3})?=\s*(.*)")
_INCLUDE = re.compile(r"[-s]?include\s+(.*)")
_RULE = re.compile(r"([^:#=]+?)\s*&?::?(?!=)\s*([^;]*)(?:;(.*))?")
_REFERENCE = re.compile(r"\$[({]([^(){}$]*)[)}]")
_BREAK = re.compile(r"[\s;&|()<>\"'`,=]+")
_SOURCE = re.compile(r".*\.(?:c|cc|cpp|cxx|h|hh|hpp|hxx|m|mm|f|f90|rs|go|java|kt|swift|zig|d)")
_HEADER = re.compile(r".*\.h(?:h|pp|xx)?")
_MAIN = re.compile(rb"\bmain\s*\(")
_TESTING = re.compile(rb"assert|expect|test|check|fail", re.IGNORECASE)
_DEPTH = 10  # of references in references


@dataclass
class MakeNames:
    """The names that the targets of a command lead to.

    Args:
        files: the files of the base that belong to the check.
        deeper: the sources of the base from which a rule behind the target builds something.
        built: the names that a rule makes.
        words: the prerequisites, and the programs that the recipes start.
        includes: the patterns of included files.
    """

    files: set[str] = field(default_factory=set)
    deeper: set[str] = field(default_factory=set)
    built: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)
    includes: set[str] = field(default_factory=set)


@dataclass
class _Rule:
    prerequisites: list[str] = field(default_factory=list)
    recipe: list[str] = field(default_factory=list)


class _Makefile:
    """The rules and variables of one Makefile."""

    def __init__(self, text: str) -> None:
        self.variables: dict[str, str] = {"MAKE": "make"}
        self.rules: dict[str, _Rule] = {}
        self.includes: list[str] = []
        self.first = ""
        rules: list[_Rule] = []
        for line in text.replace("\\\r\n", " ").replace("\\\n", " ").splitlines():
            if line.startswith("\t"):
                for rule in rules:
                    rule.recipe.append(line.strip().lstrip("@-+"))
            elif (line := line.strip()) and not line.startswith("#"):
                rules = self._read(line) or rules

    def _read(self, line: str) -> list[_Rule]:
        if (found := _INCLUDE.fullmatch(line)) is not None:
            self.includes += found[1].split()
        elif (found := _VARIABLE.fullmatch(line)) is not None:
            self.variables[found[1]] = f"{self.variables.get(found[1], '')} {found[2]}".strip()
        elif (found := _RULE.fullmatch(line.partition(" #")[0])) is not None:
            names = self.expanded(found[1]).split()
            if names and not self.first and not names[0].startswith("."):
                self.first = names[0]
            rules = [self.rules.setdefault(name, _Rule()) for name in names]
            for rule in rules:
                rule.prerequisites += found[2].replace("|", " ").split()
                rule.recipe += [found[3].strip().lstrip("@-+")] if found[3] else []
            return rules
        return []

    def expanded(self, text: str) -> str:
        """Return a text with the values of variables; of a function, with its words."""
        for _ in range(_DEPTH):
            replaced = _REFERENCE.sub(
                lambda found: self.variables.get(found[1], found[1].partition(" ")[2]), text
            )
            if replaced == text:
                break
            text = replaced
        return text


def make_names(
    command: str,
    base: Iterable[str],
    read: Callable[[str], bytes],
    is_test: Callable[[str], bool],
    within: str = "",
) -> MakeNames:
    """Return the names to which the calls of `make` in a command lead.

    Args:
        command: the command as a script.
        base: the paths of the base.
        read: returns the content of one of them.
        is_test: whether the name of a path is that of a test.
        within: the folder in which the command runs.
    """
    paths, found = frozenset(base), MakeNames()
    for words in _calls(command):
        folder, file, targets = _options(words)
        folder = posixpath.join(within, folder)
        names = [file] if file else _FILES
        path = next((p for name in names if (p := _joined(folder, name)) in paths), None)
        if path is not None:
            made = _Makefile(read(path).decode("utf-8", "replace"))
            found.files.add(path)
            for name in (word for line in made.includes for word in made.expanded(line).split()):
                found.includes.add(_joined(folder, name))
            _collect(made, targets or [made.first], folder, paths, found)
    own = _Makefile("")
    own.rules[command] = _Rule(recipe=[command])
    # Of the command itself only what looks like a test: its other words may be what is tested.
    _collect(own, [command], within, paths, found, direct=False)
    # What is compiled together with a test is what is tested: it must stay open for the agent. Of the sources of
    # a program that the target needs, only what looks like a test belongs to the check.
    sources = {path for path in found.files if _is_code(path, paths)}
    tests = {path for path in sources if is_test(path) or _MAIN.search(read(path))}
    for path in found.deeper:
        text = b"" if is_test(path) else read(path)
        if is_test(path) or (_MAIN.search(text) and _TESTING.search(text)):
            tests.add(path)
    found.files = ((found.files - sources) if tests else found.files) | tests
    return found


def _collect(
    made: _Makefile,
    targets: Iterable[str],
    folder: str,
    paths: frozenset[str],
    found: MakeNames,
    *,
    direct: bool = True,
) -> None:
    """Collect the names of targets, and of the rules on which they depend.

    Args:
        made: the rules.
        targets: the names of the targets.
        folder: the folder of the Makefile.
        paths: the paths of the base.
        found: where the names are added.
        direct: whether what the targets name belongs to the check, and not only what looks like a test.
    """
    pending, seen = [(name, direct) for name in targets], set[str]()
    sources = {path for path in paths if _SOURCE.fullmatch(path)}
    while pending:
        name, direct = pending.pop()
        rule = made.rules.get(name)
        if rule is None or name in seen:
            continue
        seen.add(name)
        found.built.add(_joined(folder, name))
        needed = made.expanded(" ".join(rule.prerequisites)).split()
        lines = (line.replace("$@", name).replace("$^", " ".join(needed)) for line in rule.recipe)
        recipe = [made.expanded(line.replace("$<", " ".join(needed[:1]))) for line in lines]
        for word in [*needed, *(word for line in recipe for word in _BREAK.split(line))]:
            if not word or word.startswith("-"):
                continue
            place = _joined(folder, word)
            matching = {place} & paths or set(fnmatch.filter(paths, place) if "*" in place else ())
            if direct and matching:
                found.files |= matching
                continue
            # An object or a program may be built by a rule of make itself, from a source of that name.
            found.deeper |= matching & sources or {
                path for path in sources if _stem(path) == _stem(place)
            }
        script = "\n".join(recipe)
        found.words |= {_joined(folder, word) for word in [*needed, *started(script)]}
        # A target that is no file, such as `test: unit`, is as good as its prerequisites.
        pending += [(word, direct and not rule.recipe) for word in needed]
        again = [target for words in _calls(script) for target in _options(words)[2]]
        pending += [(target, direct) for target in again]


def _calls(script: str) -> Iterator[list[str]]:
    """Iterate over the calls of make in a script, each as the words after it."""
    for part in re.split(r"[;&|\n]+", script):
        try:
            words = shlex.split(part)
        except ValueError:
            continue  # a quotation without an end: the shell will refuse it, too
        for place, word in enumerate(words):
            if _MAKE.fullmatch(word):
                yield words[place + 1 :]
                break


def _options(words: list[str]) -> tuple[str, str, list[str]]:
    """Return the folder, the file and the targets of a call of make."""
    folder, file, targets = "", "", list[str]()
    rest = iter(words)
    for word in rest:
        if word in ("-C", "--directory", "-f", "--file"):
            value = next(rest, "")
            folder, file = (value, file) if word in ("-C", "--directory") else (folder, value)
        elif word.startswith(("-C", "-f")) and len(word) > 2:
            folder, file = (word[2:], file) if word[1] == "C" else (folder, word[2:])
        elif not word.startswith("-") and "=" not in word:
            targets.append(word)
    return folder, file, targets


def _is_code(path: str, paths: Iterable[str]) -> bool:
    """Return whether a path is a source, or the header of one; a header on its own may be data of a test."""
    if not _HEADER.fullmatch(path):
        return bool(_SOURCE.fullmatch(path))
    return any(
        _stem(one) == _stem(path)
        for one in paths
        if _SOURCE.fullmatch(one) and not _HEADER.fullmatch(one)
    )


def _stem(path: str) -> str:
    return posixpath.splitext(posixpath.basename(path))[0]


def _joined(folder: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(folder, name))


def started(script: str) -> Iterator[str]:
    """Iterate over the programs that a script starts, and the files that it hands to an interpreter.

    >>> list(started("cd app && python -u grade.py answers.txt; ./check.sh | grep -q green state"))
    ['cd', 'python', 'grade.py', 'check.sh', 'grep']
    """
    lexer = shlex.shlex(script, posix=True, punctuation_chars=";&|\n")
    lexer.whitespace, lexer.whitespace_split = " \t\r", True
    begins = True
    try:
        for word in lexer:
            if not word.strip(";&|\n"):
                begins = True
            elif begins and not word.startswith("-") and not _ASSIGNMENT.match(word):
                # The other words may be the files that are checked.
                yield word.removeprefix("./")
                begins = bool(_INTERPRETER.fullmatch(word.rpartition("/")[2]))
    except ValueError:
        return  # a quotation without an end: the shell will refuse it, too


_TABLE_HEADER = re.compile(r"\s*\[\[?[^\[\]]+\]\]?\s*(?:#.*)?")
_INDENT = re.compile(r"\n([ \t]+)\"")


def parts_of(path: str, content: bytes | None, names: Sequence[str]) -> Json:
    """Return the named parts of a settings file; of one that cannot be read, all of it.

    >>> parts_of("package.json", b'{"name": "calc", "scripts": {"test": "node --test"}}', ["scripts", "jest"])
    {'scripts': {'test': 'node --test'}}
    """
    if content is None:
        return {}
    text = content.decode("utf-8", "replace")
    try:
        value = _read(path, text)
    except (ValueError, RecursionError):
        return text  # it differs from any that can be read
    parts = {name: _part(value, name.split(".")) for name in names}
    return {name: part for name, part in parts.items() if part is not None}


def with_parts(path: str, content: bytes, base: bytes | None, names: Sequence[str]) -> bytes | None:
    """Return a settings file with the named parts of the base, or None if only the whole file can be put back."""
    text = content.decode("utf-8", "replace")
    former = (base or b"").decode("utf-8", "replace")
    try:
        replaced = (
            _with_tables(text, former, names)
            if path.endswith(".toml")
            else _with_keys(text, former, names)
        )
        result = _read(path, replaced)
        rest, wanted = _read(path, text), _read(path, former) if former else {}
    except (ValueError, RecursionError, AttributeError):
        return None
    # Without a writer for TOML, a form that the lines do not show is noticed here.
    same = all(_part(result, n.split(".")) == _part(wanted, n.split(".")) for n in names)
    if not same or _without(result, names) != _without(rest, names):
        return None
    # A file without another change keeps its form.
    return base if base is not None and result == wanted else replaced.encode()


def _read(path: str, text: str) -> Json:
    return tomllib.loads(text) if path.endswith(".toml") else json.loads(text)


def _part(value: Json, names: Sequence[str]) -> Json:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _without(value: Json, names: Sequence[str]) -> Json:
    """Return a value without the named parts, and without tables that have nothing else."""
    if not isinstance(value, Mapping):
        return value
    heads = {name.partition(".")[0]: name.partition(".")[2] for name in names}
    inner = {
        head: [n[len(head) + 1 :] for n in names if n.startswith(f"{head}.")] for head in heads
    }
    kept = {
        key: _without(item, inner[key]) if key in heads else item
        for key, item in value.items()
        if key not in names
    }
    return {key: item for key, item in kept.items() if key not in heads or item != {}}


def _with_keys(text: str, former: str, names: Sequence[str]) -> str:
    value: dict[str, Json] = json.loads(text)
    wanted = json.loads(former) if former else {}
    for name in names:
        value.pop(name, None) if name not in wanted else value.update({name: wanted[name]})
    indent = _INDENT.search(text)
    end = "\n" if text.endswith("\n") else ""
    return json.dumps(value, indent=indent[1] if indent else None, ensure_ascii=False) + end


def _with_tables(text: str, former: str, names: Sequence[str]) -> str:
    kept = "".join(table for name, table in _tables(text) if not _is_section_below(name, names))
    put_back = "".join(table for name, table in _tables(former) if _is_section_below(name, names))
    gap = "\n" if put_back and kept and not kept.endswith("\n") else ""
    return f"{kept}{gap}{put_back}"


def _is_section_below(name: str, names: Sequence[str]) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in names)


def _tables(text: str) -> Iterator[tuple[str, str]]:
    """Iterate over the tables of a TOML file: the dotted name of each, and its lines with the header."""
    name, lines, quote = "", list[str](), ""
    for line in text.splitlines(keepends=True):
        if not quote and _TABLE_HEADER.fullmatch(line.rstrip("\r\n")):
            yield name, "".join(lines)
            name, lines = _name_of(line), []
        for sign in ('"""', "'''"):
            if quote in ("", sign) and line.count(sign) % 2:
                quote = "" if quote else sign
        lines.append(line)
    yield name, "".join(lines)


def _name_of(header: str) -> str:
    """Return the dotted name of a table, which may be quoted in its header."""
    value: Json = tomllib.loads(header)
    names = []
    while isinstance(value, Mapping) and value:
        name, value = next(iter(value.items()))
        names.append(name)
        value = value[0] if isinstance(value, list) else value
    return ".".join(names)


# Read by every Python before any code of the tests, wherever they are on the import path: modules and packages,
# also compiled ones. Python looks for the folders of metadata without regard to case.
_PYTHON = (
    "sitecustomize.*", "sitecustomize/", "usercustomize.*", "usercustomize/", "*.pth", "*.egg-info/",
    "*.dist-info/", "egg-info/",
)  # fmt: skip
_LOCKS = (
    "uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "package-lock.json", "yarn.lock", "pnpm-lock.yaml",
    "bun.lock", "bun.lockb", "Cargo.lock", "go.sum", "Gemfile.lock", "composer.lock",
)  # fmt: skip
_PROJECT = (
    # What is installed, and how the check is started.
    *_LOCKS,
    ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs",
    "Makefile", "GNUmakefile", "*.mk", "justfile",
    "nextest.toml", ".nextest.toml",
    # What a person would see on the server.
    ".github/", ".circleci/", ".buildkite/", ".gitlab-ci.yml", ".travis.yml", "Jenkinsfile",
    "azure-pipelines.yml",
)  # fmt: skip
# For a command without a report: the names of tests, whatever program runs them.
_TESTS = (
    "tests/", "test/", "spec/", "__tests__/", "*_test.*", "test_*", "*.test.*", "*_spec.*", "*.spec.*",
)  # fmt: skip
# Files of which only these parts belong to the check.
_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "pyproject.toml": ("tool.pytest", "tool.coverage"),
    "package.json": ("scripts", "jest", "mocha", "ava", "c8", "nyc"),
    "Cargo.toml": ("test", "lib", "package.autotests", "package.build"),
}
# Files that say what is installed, with the parts that do; without parts, all of it.
_MANIFESTS: Mapping[str, tuple[str, ...]] = {
    "pyproject.toml": (
        "project.dependencies", "project.optional-dependencies", "dependency-groups", "build-system",
        "tool.uv", "tool.poetry", "tool.pdm", "tool.hatch",
    ),
    "package.json": (
        "dependencies", "devDependencies", "optionalDependencies", "peerDependencies", "overrides",
        "resolutions", "workspaces",
    ),
    "Cargo.toml": ("dependencies", "dev-dependencies", "build-dependencies", "target", "workspace"),
    **dict.fromkeys((*_LOCKS, "go.mod", "requirements.txt", "setup.py", "setup.cfg", "Pipfile", "Gemfile", "composer.json"), ()),
}  # fmt: skip
# Standard modules that pytest and unittest import, and plug-ins that pytest loads by name. A file of the same
# name beside the code replaces them.
_SHADOWED = frozenset({
    "abc", "argparse", "ast", "atexit", "bdb", "builtins", "cmd", "code", "codecs", "codeop",
    "collections", "contextlib", "copy", "copyreg", "dataclasses", "difflib", "doctest", "enum",
    "errno", "faulthandler", "fnmatch", "functools", "gc", "getpass", "glob", "hashlib",
    "importlib", "inspect", "io", "itertools", "json", "keyword", "linecache", "locale", "logging",
    "math", "operator", "os", "pathlib", "pdb", "platform", "pprint", "random", "re", "reprlib",
    "select", "selectors", "shlex", "shutil", "signal", "site", "socket", "stat", "string",
    "struct", "subprocess", "sysconfig", "tempfile", "textwrap", "threading", "time", "token",
    "tokenize", "tomllib", "traceback", "types", "typing", "unittest", "uuid", "warnings",
    "weakref", "xml", "zipfile", "zipimport", "iniconfig", "packaging", "pluggy", "pytest",
    "_pytest", "exceptiongroup", "conftest", "pygments", "attr", "attrs", "coverage", "xdist", "execnet",
    "anyio", "hypothesis", "_hypothesis_pytestplugin",
})  # fmt: skip
# Headers that a compiler finds beside the code before those of the system, and those of test frameworks.
_HEADERS = re.compile(
    r"(?:assert|complex|ctype|errno|fenv|float|inttypes|iso646|limits|locale|math|setjmp|signal|stdalign|stdarg"
    r"|stdatomic|stdbool|stddef|stdint|stdio|stdlib|stdnoreturn|string|strings|tgmath|threads|time|uchar|unistd"
    r"|wchar|wctype|pthread|check|cmocka|unity|greatest|munit|acutest|doctest|minunit|catch|gtest|gmock)\.h(?:pp)?"
    r"(?:\.gch|\.pch)?|c(?:assert|stdlib|stdio|string|stdint|stddef|math)|iostream|vector|string|exception"
)
_FRAMEWORKS = (
    "catch.hpp", "catch_amalgamated.*", "doctest.h", "unity.*", "unity_internals.h", "gtest/", "gmock/",
    "cmocka.h", "munit.*", "greatest.h", "acutest.h", "minunit.h",
)  # fmt: skip
# Where the settings of a project name plug-ins of pytest.
_PLUGIN_SETTINGS = (
    "conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml",
)  # fmt: skip
_PLUGIN = re.compile(r"(?<![\w-])-p[ =]*([A-Za-z_][\w.]*)")
_PLUGIN_LIST = re.compile(r"pytest_plugins\s*(?::[^=]*)?=\s*([\[(][^\])]*[\])]|.*)")
_QUOTED = re.compile(r"[\"']([\w.]+)[\"']")
_CODE = ("py", "pyc", "so", "pyd")
_LINK = "120000"  # the mode of a link
_BEGINNING = 8000  # bytes in which git, too, looks for a NUL
_ROOTS = ("", "src/")  # folders that are on the import path

Read = Callable[[str], bytes]  # returns the content of a blob


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One file or link of a tree: its mode and the digest of its content."""

    mode: str
    digest: str


@dataclass(frozen=True)
class TreeChange:
    """What an iteration changed of the check.

    Args:
        touched: the protected paths that differ from the base.
        left_out: new tests, which the check does not run.
        clean: the entries on which the check runs.
        put_back: the entries of the workspace, with the touched paths of the base.
        protected: the entries that the check itself must not change either.
        allowed: the tests that differ from the base and may.
        installed: the allowed files that differ in what they say is installed.
        partial: the contents of the touched paths of which only a part was put back.
    """

    touched: tuple[str, ...]
    left_out: tuple[str, ...]
    clean: Mapping[str, TreeEntry]
    put_back: Mapping[str, TreeEntry]
    protected: Mapping[str, TreeEntry]
    allowed: tuple[str, ...] = ()
    installed: tuple[str, ...] = ()
    partial: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class _OfBase:
    """What the texts of the base add to the rules.

    Args:
        scripts: the files that the command starts or that its Makefile names.
        included: the patterns of what the Makefile includes.
        built: the names of what the Makefile builds.
        programs: the names of what is needed and of what is started.
        roots: the folders that are on the import path.
    """

    scripts: frozenset[str]
    included: re.Pattern[str]
    built: frozenset[str]
    programs: frozenset[str]
    roots: frozenset[str]


@dataclass(frozen=True)
class Protection:
    """The rules of one check.

    Args:
        command: the command of the check.
        protect: `auto` for the rules of the test program, and more patterns.
        allow: patterns of files that may change although a rule protects them.
        allow_new: whether a new test is allowed.
        folder: the folder of the repository in which the check runs. A rule reads the paths below it from there,
            so that a project in a folder named `tests` is not a test as a whole.
    """

    command: Sequence[str] | str
    protect: tuple[str, ...] = ("auto",)
    allow: tuple[str, ...] = ()
    allow_new: bool = True
    folder: str = ""

    @functools.cached_property
    def _runner(self) -> Runner | None:
        return runner_of(self.command)

    @functools.cached_property
    def _tests(self) -> re.Pattern[str]:
        if not self._auto:
            return _compiled(())
        return _compiled(_TESTS if self._runner is None else self._runner.tests)

    @functools.cached_property
    def _named(self) -> re.Pattern[str]:
        return _compiled([pattern for pattern in self.protect if pattern != "auto"])

    @functools.cached_property
    def _settings(self) -> re.Pattern[str]:
        if not self._auto:
            return _compiled(())
        # A command such as `make test` may start any of them.
        runners = RUNNERS if self._runner is None else (self._runner,)
        settings = [pattern for runner in runners for pattern in runner.settings]
        frameworks = _FRAMEWORKS if self._runner is None else ()
        return _compiled((*_PYTHON, *_PROJECT, *settings, *frameworks))

    @functools.cached_property
    def _allowed(self) -> re.Pattern[str]:
        return _compiled(self.allow)

    @property
    def _auto(self) -> bool:
        return "auto" in self.protect

    def is_test(self, path: str) -> bool:
        """Return whether a path is one of the test program's tests."""
        return bool(self._tests.fullmatch(self._from_folder(path)))

    def _is_setting(self, path: str) -> bool:
        return bool(
            self._settings.fullmatch(self._from_folder(path)) or self._named.fullmatch(path)
        )

    def _from_folder(self, path: str) -> str:
        return path.removeprefix(f"{self.folder}/") if self.folder else path

    def listed(self, base: Mapping[str, TreeEntry], read: Read) -> dict[str, str]:
        """Return the digests of the protected files, with those that are protected in part."""
        parts = {
            path: entry for path, entry in base.items() if self._auto and _name(path) in _SECTIONS
        }
        files = {**parts, **self.protected(base, read)}
        return {path: entry.digest for path, entry in sorted(files.items())}

    def protected(self, base: Mapping[str, TreeEntry], read: Read) -> dict[str, TreeEntry]:
        """Return the protected entries of the base."""
        rules = self._of_base(base, read)
        return {path: entry for path, entry in base.items() if self._covers(path, rules)}

    def changes(
        self,
        base: Mapping[str, TreeEntry],
        present: Mapping[str, TreeEntry],
        read: Read,
    ) -> TreeChange:
        """Return what differs between the base and the files of an iteration."""
        rules = self._of_base(base, read)
        protected = {path: entry for path, entry in base.items() if self._covers(path, rules)}
        partial, drop = dict[str, bytes](), set[str]()
        for path in self._changed_settings(base, present, read):
            if path in protected or path not in present:
                protected |= {path: base[path]} if path in base else {}
                continue
            former = read(base[path].digest) if path in base else None
            text = with_parts(path, read(present[path].digest), former, _SECTIONS[_name(path)])
            if text is not None:
                partial[path] = text
                digest = digest_of(text, len(present[path].digest))
                protected[path] = TreeEntry(present[path].mode, digest)
            elif path in base:
                protected[path] = base[path]
            else:
                drop.add(path)
        blocked = folders_above(protected)
        touched = [*drop, *(p for p, entry in protected.items() if present.get(p) != entry)]
        left_out = []
        for path, entry in present.items():
            if path in protected or path in drop:
                continue
            if (
                # A link in place of a folder would lead the check to files outside of the copy.
                path in blocked
                or any(folder in protected for folder in folders_above([path]))
                or self._leaves(path, entry, base, read)
                or self._is_built(path, entry, base, rules, read)
            ):
                touched.append(path)
            elif not self._covers(path, rules) and not self._shadows(path, base, rules):
                continue
            elif self.allow_new and self.is_test(path) and not self._is_setting(path):
                left_out.append(path)
            else:
                touched.append(path)
            drop.add(path)
        kept = {path: entry for path, entry in present.items() if path not in drop}
        stays = {path: entry for path, entry in present.items() if path not in touched}
        changed = [p for p in {**base, **present} if base.get(p) != present.get(p)]
        allowed = [path for path in changed if self._allowed.fullmatch(path)]
        return TreeChange(
            tuple(sorted(touched)),
            tuple(sorted(left_out)),
            {**kept, **protected},
            {**stays, **{path: protected[path] for path in touched if path in protected}},
            protected,
            tuple(path for path in allowed if path in base and self.is_test(path)),
            tuple(path for path in allowed if _installs(path, base, present, read)),
            partial,
        )

    def _changed_settings(
        self, base: Mapping[str, TreeEntry], present: Mapping[str, TreeEntry], read: Read
    ) -> list[str]:
        """Return the settings files whose part for the check changed; the rest belongs to the agent."""
        if not self._auto:
            return []
        shared = [path for path in {**base, **present} if _name(path) in _SECTIONS]
        return [
            path
            for path in shared
            if not self._allowed.fullmatch(path)
            and _differs(path, base, present, read, _SECTIONS[_name(path)])
        ]

    def _covers(self, path: str, rules: _OfBase) -> bool:
        if self._allowed.fullmatch(path):
            return False
        return (
            path in rules.scripts
            or self.is_test(path)
            or self._is_setting(path)
            or bool(rules.included.fullmatch(path))
        )

    def _of_base(self, base: Mapping[str, TreeEntry], read: Read) -> _OfBase:
        """Return what the texts of the base add: they, and not those of the agent, say what the check is."""
        if not self._auto:
            nothing = frozenset[str]()
            return _OfBase(nothing, _compiled(()), nothing, nothing, nothing)
        text = self.command if isinstance(self.command, str) else shlex.join(self.command)
        made = make_names(
            text, base, lambda path: read(base[path].digest), self.is_test, self.folder
        )
        roots = {
            *_ROOTS,
            *(posixpath.join(self.folder, root) for root in _ROOTS),
            *(path[: path.rfind("/") + 1] for path in base if _name(path) == "conftest.py"),
        }
        names = (_joined(self.folder, name) for name in started(text))
        scripts = {name for name in names if name in base} | made.files
        scripts.update(self._plugins(base, roots, read))
        return _OfBase(
            frozenset(scripts),
            _compiled([f"/{pattern}" for pattern in made.includes]),
            frozenset(made.built - base.keys()),
            frozenset(made.words - base.keys()),
            frozenset(roots),
        )

    def _plugins(
        self, base: Mapping[str, TreeEntry], roots: Iterable[str], read: Read
    ) -> Iterator[str]:
        """Iterate over the modules of the base that its settings name as plug-ins of pytest."""
        if self._runner is not None and self._runner.name != "pytest":
            return
        for path in base:
            if _name(path) not in _PLUGIN_SETTINGS:
                continue
            text = read(base[path].digest).decode("utf-8", "replace")
            lists = "".join(_PLUGIN_LIST.findall(text))
            for module in [*_PLUGIN.findall(text), *_QUOTED.findall(lists)]:
                place = module.replace(".", "/")
                names = (f"{root}{place}{end}" for root in roots for end in (".py", "/__init__.py"))
                yield from (name for name in names if name in base)

    def _shadows(self, path: str, base: Mapping[str, TreeEntry], rules: _OfBase) -> bool:
        """Return whether a new file replaces a module of the test program, or a header of a compiler."""
        if not self._auto or path in base or self._allowed.fullmatch(path):
            return False
        if self._runner is None and _HEADERS.fullmatch(_name(path)):
            return True
        return any(
            path.startswith(root) and _is_module(path.removeprefix(root)) for root in rules.roots
        )

    def _leaves(
        self, path: str, entry: TreeEntry, base: Mapping[str, TreeEntry], read: Read
    ) -> bool:
        """Return whether a link of the agent leads out of the files of the iteration."""
        if entry.mode != _LINK or base.get(path) == entry or self._allowed.fullmatch(path):
            return False
        target = os.fsdecode(read(entry.digest))
        # After a name, `..` may lead anywhere: the name may be a link, too.
        ups = [place for place, part in enumerate(target.split("/")) if part == ".."]
        depth = path.count("/")
        return target.startswith("/") or len(ups) > depth or ups != list(range(len(ups)))

    def _is_built(
        self,
        path: str,
        entry: TreeEntry,
        base: Mapping[str, TreeEntry],
        rules: _OfBase,
        read: Read,
    ) -> bool:
        """Return whether a new file stands in place of what the check would build."""
        if path in base or self._allowed.fullmatch(path):
            return False
        return path in rules.built or (
            path in rules.programs and b"\0" in read(entry.digest)[:_BEGINNING]
        )


def _is_module(path: str) -> bool:
    """Return whether a path on the import path is a module, or the beginning of a package, of a shadowed name.

    >>> [_is_module(path) for path in ("json.py", "json/__init__.py", "json/tool.py", "json.txt", "pytest_cov.so")]
    [True, True, False, False, True]
    """
    top, _, rest = path.partition("/")
    name, *suffixes = (rest or top).split(".")
    module = top if rest else name
    begins = not rest or name == "__init__"
    shadowed = module in _SHADOWED or module.startswith("pytest_")
    return begins and shadowed and bool(suffixes) and suffixes[-1] in _CODE


def _installs(
    path: str, base: Mapping[str, TreeEntry], present: Mapping[str, TreeEntry], read: Read
) -> bool:
    """Return whether a changed file says that other packages are to be installed."""
    parts = _MANIFESTS.get(_name(path))
    return parts is not None and (not parts or _differs(path, base, present, read, parts))


def _differs(
    path: str,
    base: Mapping[str, TreeEntry],
    present: Mapping[str, TreeEntry],
    read: Read,
    parts: Sequence[str],
) -> bool:
    """Return whether some parts of a settings file differ from those of the base."""
    if base.get(path) == present.get(path):
        return False
    before, after = (
        parts_of(path, read(files[path].digest) if path in files else None, parts)
        for files in (base, present)
    )
    return bool(before != after)


def digest_of(content: bytes, length: int) -> str:
    """Return the digest of a file as git computes it, in `length` digits.

    >>> digest_of(b"", 40)
    'e69de29bb2d1d6434b8b29ae775ad8c2e48c5391'
    """
    kind = sha256 if length == 64 else sha1
    return kind(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def folders_above(paths: Iterable[str]) -> set[str]:
    """Return the folders of paths."""
    folders = set[str]()
    for path in paths:
        while (end := path.rfind("/")) > 0:
            path = path[:end]
            if path in folders:
                break
            folders.add(path)
    return folders


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _compiled(patterns: Sequence[str]) -> re.Pattern[str]:
    """Return one expression for patterns of paths.

    A pattern that ends with a slash is a folder anywhere, one with a slash inside is a path from the top, and
    another one is the name of a file anywhere.

    >>> rules = _compiled(["tests/", "grader/**", "*.lock"])
    >>> [bool(rules.fullmatch(p)) for p in ("a/tests/b.py", "tests", "grader/a/b", "x/uv.lock", "src/grader/a")]
    [True, True, True, True, False]
    """
    parts = []
    for pattern in patterns:
        if pattern.endswith("/") and "/" not in pattern[:-1]:
            # The name itself too: a link may stand in place of the folder.
            parts.append(rf"(?:.*/)?{_path_expression(pattern[:-1])}(?:/.*)?")
        elif "/" in pattern:
            parts.append(_path_expression(pattern))
        else:
            parts.append(rf"(?:.*/)?{_path_expression(pattern)}")
    # On some file systems, and for some programs, the case of a name makes no difference.
    return re.compile("|".join(parts) or r"(?!)", re.DOTALL | re.IGNORECASE)


def _path_expression(pattern: str) -> str:
    """Return the expression of one pattern; a single star stays within one name."""
    pattern = pattern.removeprefix("./").lstrip("/")
    pattern = f"{pattern}**" if pattern.endswith("/") else pattern
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    meaning = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(meaning.get(part, re.escape(part)) for part in parts)
