"""Which files a check depends on, so that an agent must not change them.

1. A protected file that differs from the base is replaced by that of the base, and the iteration is `touched`.
2. A new test is not tampering: it stays in the workspace, and the check does not run it.
3. A new file that configures or shadows the test program is tampering, and so is a link out of the project.
4. What the check is, its base says: the names in its command, in its Makefile and in its settings.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha1, sha256

from .makefile import make_names, started
from .runners import RUNNERS, Runner, runner_of
from .sections import parts_of, with_parts

__all__ = ["Protection", "TreeChange", "TreeEntry", "digest_of", "folders_above"]

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
        if not self._auto:
            return _compiled(())
        return _compiled(_TESTS if self._runner is None else self._runner.tests)

    @functools.cached_property
    def _settings(self) -> re.Pattern[str]:
        named = tuple(pattern for pattern in self.protect if pattern != "auto")
        if not self._auto:
            return _compiled(named)
        # A command such as `make test` may start any of them.
        runners = RUNNERS if self._runner is None else (self._runner,)
        settings = [pattern for runner in runners for pattern in runner.settings]
        frameworks = _FRAMEWORKS if self._runner is None else ()
        return _compiled((*_PYTHON, *_PROJECT, *settings, *frameworks, *named))

    @functools.cached_property
    def _allowed(self) -> re.Pattern[str]:
        return _compiled(self.allow)

    @property
    def _auto(self) -> bool:
        return "auto" in self.protect

    def is_test(self, path: str) -> bool:
        """Return whether a path is one of the test program's tests."""
        return bool(self._tests.fullmatch(path))

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
                or _is_below(path, protected)
                or self._leaves(path, entry, base, read)
                or self._is_built(path, entry, base, rules, read)
            ):
                touched.append(path)
            elif not self._covers(path, rules) and not self._shadows(path, base, rules):
                continue
            elif self.allow_new and self.is_test(path) and not self._settings.fullmatch(path):
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
            or bool(self._tests.fullmatch(path))
            or bool(self._settings.fullmatch(path))
            or bool(rules.included.fullmatch(path))
        )

    def _of_base(self, base: Mapping[str, TreeEntry], read: Read) -> _OfBase:
        """Return what the texts of the base add: they, and not those of the agent, say what the check is."""
        if not self._auto:
            nothing = frozenset[str]()
            return _OfBase(nothing, _compiled(()), nothing, nothing, nothing)
        text = self.command if isinstance(self.command, str) else shlex.join(self.command)
        made = make_names(text, base, lambda path: read(base[path].digest), self.is_test)
        roots = {*_ROOTS, *(_folder(path) for path in base if _name(path) == "conftest.py")}
        scripts = {name for name in started(text) if name in base} | made.files
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


def _is_below(path: str, files: Mapping[str, TreeEntry]) -> bool:
    """Return whether a folder of the path is one of the files."""
    return any(folder in files for folder in folders_above([path]))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _folder(path: str) -> str:
    """Return the folder of a path with a slash at its end, or ""."""
    return path[: path.rfind("/") + 1]


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
