"""Which files a check depends on, so that an agent must not change them.

1. A protected file that differs from the base is replaced by that of the base, and the iteration is `touched`.
2. A new test is not tampering: it stays in the workspace, and the check does not run it.
3. A new file that configures or shadows the test program is tampering.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...records.codec import Json
from .runners import Runner, runner_of

__all__ = ["Protection", "TreeChange", "TreeEntry"]

# Read by every Python before any code of the tests, wherever they are on the import path.
_PYTHON = (
    "sitecustomize.py",
    "usercustomize.py",
    "*.pth",
    "*.egg-info",
    "*.egg-info/",
    "*.dist-info/",
)
_PROJECT = (
    # What is installed, and how the check is started.
    "uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "package-lock.json", "yarn.lock", "pnpm-lock.yaml",
    "bun.lock", "bun.lockb", "Cargo.lock", "go.sum", "Gemfile.lock", "composer.lock",
    "Makefile", "makefile", "GNUmakefile", "justfile",
    "nextest.toml", ".nextest.toml",
    # What a person would see on the server.
    ".github/", ".circleci/", ".buildkite/", ".gitlab-ci.yml", ".travis.yml", "Jenkinsfile",
    "azure-pipelines.yml",
)  # fmt: skip
# Files of which only these parts belong to the check.
_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "pyproject.toml": ("tool.pytest", "tool.coverage"),
    "package.json": ("scripts", "jest", "mocha", "ava", "c8", "nyc"),
    "Cargo.toml": ("test", "lib", "package.autotests", "package.build"),
}
# Standard modules that pytest and unittest import. A file of the same name beside the code replaces them.
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
    "_pytest", "exceptiongroup",
})  # fmt: skip
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_INTERPRETER = re.compile(
    r"python[0-9.]*|(ba|da|z|k)?sh|node|deno|bun|ruby|perl|php|tsx|uv|poetry|run|npx|env|exec|time|nice"
)
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
    """

    touched: tuple[str, ...]
    left_out: tuple[str, ...]
    clean: Mapping[str, TreeEntry]
    put_back: Mapping[str, TreeEntry]


@dataclass(frozen=True)
class Protection:
    """The rules of one check.

    Args:
        command: the command of the check.
        protect: `auto` for the rules of the test program, and more patterns.
        allow: patterns of files that may change although a rule protects them.
        allow_new: whether a new test is allowed.
    """

    command: Sequence[str] | str
    protect: tuple[str, ...] = ("auto",)
    allow: tuple[str, ...] = ()
    allow_new: bool = True

    @functools.cached_property
    def _runner(self) -> Runner | None:
        return runner_of(self.command)

    @functools.cached_property
    def _tests(self) -> re.Pattern[str]:
        runner = self._runner
        return _compiled(runner.tests if runner is not None and self._auto else ())

    @functools.cached_property
    def _settings(self) -> re.Pattern[str]:
        named = tuple(pattern for pattern in self.protect if pattern != "auto")
        if not self._auto:
            return _compiled(named)
        runner = self._runner
        return _compiled(
            (*_PYTHON, *_PROJECT, *(runner.settings if runner is not None else ()), *named)
        )

    @functools.cached_property
    def _allowed(self) -> re.Pattern[str]:
        return _compiled(self.allow)

    @property
    def _auto(self) -> bool:
        return "auto" in self.protect

    def is_test(self, path: str) -> bool:
        """Return whether a path is one of the test program's tests."""
        return bool(self._tests.fullmatch(path))

    def listed(self, base: Mapping[str, TreeEntry]) -> dict[str, str]:
        """Return the digests of the protected files, with those that are protected in part."""
        parts = {
            path: entry for path, entry in base.items() if self._auto and _name(path) in _SECTIONS
        }
        return {path: e.digest for path, e in sorted({**parts, **self.protected(base)}.items())}

    def protected(self, base: Mapping[str, TreeEntry]) -> dict[str, TreeEntry]:
        """Return the protected entries of the base."""
        scripts = self._scripts(base)
        return {path: entry for path, entry in base.items() if self._covers(path, scripts)}

    def changes(
        self, base: Mapping[str, TreeEntry], present: Mapping[str, TreeEntry], read: Read
    ) -> TreeChange:
        """Return what differs between the base and the files of an iteration."""
        settings = self._changed_settings(base, present, read)
        scripts = self._scripts(base) | settings
        protected = self.protected(base)
        protected |= {name: base[name] for name in settings if name in base}
        blocked = _above(protected)
        touched: list[str] = [p for p, entry in protected.items() if present.get(p) != entry]
        left_out, drop = [], set[str]()
        for path in present:
            if path in protected:
                continue
            if path in blocked or _is_below(path, protected):
                # A link in place of a folder would lead the check to files outside of the copy.
                touched.append(path)
            elif not self._covers(path, scripts) and not self._shadows(path, base):
                continue
            elif self.allow_new and self.is_test(path) and not self._settings.fullmatch(path):
                left_out.append(path)
            else:
                touched.append(path)
            drop.add(path)
        kept = {path: entry for path, entry in present.items() if path not in drop}
        stays = {path: entry for path, entry in present.items() if path not in touched}
        return TreeChange(
            tuple(sorted(touched)),
            tuple(sorted(left_out)),
            {**kept, **protected},
            {**stays, **{path: protected[path] for path in touched if path in protected}},
        )

    def _changed_settings(
        self, base: Mapping[str, TreeEntry], present: Mapping[str, TreeEntry], read: Read
    ) -> frozenset[str]:
        """Return the settings files whose part for the check changed; the rest belongs to the agent."""
        if not self._auto:
            return frozenset()
        shared = [path for path in {**base, **present} if _name(path) in _SECTIONS]
        return frozenset(
            path
            for path in shared
            if base.get(path) != present.get(path)
            and not self._allowed.fullmatch(path)
            and _sections(path, base.get(path), read) != _sections(path, present.get(path), read)
        )

    def _covers(self, path: str, scripts: frozenset[str]) -> bool:
        if self._allowed.fullmatch(path):
            return False
        return (
            path in scripts
            or bool(self._tests.fullmatch(path))
            or bool(self._settings.fullmatch(path))
        )

    def _scripts(self, base: Mapping[str, TreeEntry]) -> frozenset[str]:
        """Return the files of the base that the command starts: they are part of the check."""
        if not self._auto:
            return frozenset()
        text = self.command if isinstance(self.command, str) else shlex.join(self.command)
        return frozenset(name for name in _started(text) if name in base)

    def _shadows(self, path: str, base: Mapping[str, TreeEntry]) -> bool:
        """Return whether a new file replaces a module of the test program."""
        if not self._auto or path in base or self._allowed.fullmatch(path):
            return False
        for root in _ROOTS:
            if path.startswith(root):
                top, _, rest = path.removeprefix(root).partition("/")
                module = top.removesuffix(".py") if not rest else top
                shadows = top.endswith(".py") if not rest else rest == "__init__.py"
                if shadows and module in _SHADOWED:
                    return True
        return False


def _started(script: str) -> Iterator[str]:
    """Iterate over the programs that a script starts, and the files that it hands to an interpreter.

    >>> list(_started("cd app && python -u grade.py answers.txt; ./check.sh | grep -q green state"))
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


def _above(paths: Iterable[str]) -> set[str]:
    """Return the folders of paths."""
    folders = set[str]()
    for path in paths:
        while (end := path.rfind("/")) > 0:
            path = path[:end]
            if path in folders:
                break
            folders.add(path)
    return folders


def _is_below(path: str, files: Mapping[str, TreeEntry]) -> bool:
    """Return whether a folder of the path is one of the files."""
    return any(folder in files for folder in _above([path]))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _sections(path: str, entry: TreeEntry | None, read: Read) -> Json:
    """Return the parts of a settings file that belong to the check."""
    if entry is None:
        return {}
    data = read(entry.digest).decode("utf-8", "replace")
    try:
        value = tomllib.loads(data) if path.endswith(".toml") else json.loads(data)
    except (ValueError, RecursionError):
        return data  # it differs from any that can be read
    parts = {name: _part(value, name.split(".")) for name in _SECTIONS[_name(path)]}
    return {name: part for name, part in parts.items() if part is not None}


def _part(value: Json, names: Sequence[str]) -> Json:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


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
    return re.compile("|".join(parts) or r"(?!)", re.DOTALL)


def _path_expression(pattern: str) -> str:
    """Return the expression of one pattern; a single star stays within one name."""
    pattern = pattern.removeprefix("./").lstrip("/")
    pattern = f"{pattern}**" if pattern.endswith("/") else pattern
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    meaning = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(meaning.get(part, re.escape(part)) for part in parts)
