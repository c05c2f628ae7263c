"""What a command reads of a project through `make`: the Makefile of the base is read as text, and never run.

1. The files that the target of the command names, in its prerequisites and its recipe, belong to the check.
2. What a rule builds, and what a Makefile includes, is known by its name, whether it exists or not.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

__all__ = ["MakeNames", "make_names", "started"]

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
    command: str, base: Iterable[str], read: Callable[[str], bytes], is_test: Callable[[str], bool]
) -> MakeNames:
    """Return the names to which the calls of `make` in a command lead.

    Args:
        command: the command as a script.
        base: the paths of the base.
        read: returns the content of one of them.
        is_test: whether the name of a path is that of a test.
    """
    paths, found = frozenset(base), MakeNames()
    for words in _calls(command):
        folder, file, targets = _options(words)
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
    _collect(own, [command], "", paths, found, direct=False)
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
