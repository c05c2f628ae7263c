"""The generated code of a template, and a shortcut for templates that consist of text and names.

A document is checked far more often than all its templates run, so code is generated when a template
first runs (`Program`), and a template of names alone is also parsed then (`Paths`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from io import StringIO

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame

from .sandbox import SANDBOX
from .values import TOKENS, TemplateError

__all__ = ["TOO_COMPLEX", "Paths", "Program", "names_of", "paths_in", "paths_of"]


# At most 7 names, far below the depth that is refused. A longer path is parsed at once.
_PATH = re.compile(r"\s*([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*){0,6})\s*", re.ASCII)
# Keywords, and names that are reserved or predefined.
_WORDS = frozenset({
    "and", "or", "not", "in", "is", "if", "else", "true", "false", "none", "True", "False", "None",
    "recursive", "self", "super", "caller", "varargs", "kwargs", "range",
})  # fmt: skip
_MAX_PATHS = TOKENS // 32  # each has at most 17 tokens with the text after it


@dataclass(frozen=True, slots=True)
class Paths:
    """The names that a template of names alone needs, and the members of each.

    Without this shortcut, benchmarks/documents.py "check of 500 loops" takes 34 % longer and "check of
    500 values" 120 %.
    """

    names: frozenset[str]
    members: dict[str, frozenset[str]]


def paths_in(source: str) -> Paths | None:
    """Return the names in a template that is text with dotted names, else None."""
    # Tags and comments need the parser.
    if "{%" in source or "{#" in source:
        return None
    pieces = source.split("{{")[1:]
    paths = []
    for piece in pieces if len(pieces) <= _MAX_PATHS else ():
        path = _PATH.match(piece)
        # A template that is not simple after all is parsed completely.
        if path is None or path[1] in _WORDS or not piece.startswith("}}", path.end()):
            return None
        paths.append(path)
    return _joined(paths) if len(paths) == len(pieces) else None


def paths_of(source: str) -> Paths | None:
    """Return the name of an expression that is a dotted name, else None."""
    path = _PATH.fullmatch(source)
    return None if path is None or path[1] in _WORDS else _joined([path])


def _joined(paths: list[re.Match[str]]) -> Paths:
    members: dict[str, set[str]] = {}
    for path in paths:
        first, *rest = path[2][1:].split(".", 2)
        if first:
            members.setdefault(path[1], set()).add(first)
        if rest:
            members.setdefault(f"{path[1]}.{first}", set()).add(rest[0])
    names = frozenset(path[1] for path in paths)
    return Paths(names, {name: frozenset(of) for name, of in members.items()})


TOO_COMPLEX = "nested too deep, or too complex, to compile"

# Python can compile the code of every tree below this depth. Other trees are compiled at once, to report errors.
_FLAT = 12
_BRANCHES = 20
_BINDING = (nodes.For, nodes.Assign, nodes.AssignBlock, nodes.With)


class Program:
    """The code of a template, generated from its checked tree by `make` when it is first needed.

    With code for each template at once, benchmarks/documents.py "check of 500 prompts" takes three
    times as long.
    """

    __slots__ = ("_tree", "code")

    def __init__(self, tree: Callable[[], nodes.Template]) -> None:
        self._tree = tree
        self.code: jinja2.Template | None = None

    def make(self) -> frozenset[str]:
        """Generate the code, and return the names that it looks up.

        Raises:
            TemplateError: If Python cannot compile it.
        """
        try:
            tree = self._tree()
            tree.set_environment(SANDBOX)
            generator = _Generator()
            generator.visit(tree)
            code = compile(generator.source.getvalue(), "<template>", "exec")
        except (RecursionError, MemoryError, SyntaxError, ValueError):
            raise TemplateError(TOO_COMPLEX) from None
        self.code = jinja2.Template.from_code(SANDBOX, code, {})
        return frozenset(generator.names)


def names_of(
    program: Program, parts: Sequence[nodes.Node], depth: int, helpers: Collection[str]
) -> frozenset[str]:
    """Return the names that a program looks up; `parts` are the nodes of its tree before rewriting.

    If the tree binds names, the code is generated, because only the code separates bound and free names.
    """
    # Python's compiler has limits for nesting and branches, so such templates are compiled at once.
    binds = any(isinstance(part, _BINDING) for part in parts)
    branches = any(isinstance(part, nodes.If) and len(part.elif_) > _BRANCHES for part in parts)
    if binds or branches or depth > _FLAT:
        return program.make()
    names = {part.name for part in parts if isinstance(part, nodes.Name) and part.ctx == "load"}
    names |= {
        part.name for part in parts if isinstance(part, nodes.Filter) and part.name in helpers
    }
    return frozenset(names)


class _Generator(CodeGenerator):
    """Jinja's code generator, which also records the names that the code looks up.

    It does not optimise, because constant folding would run operations without a meter.
    """

    def __init__(self) -> None:
        self.source = StringIO()
        super().__init__(SANDBOX, None, None, stream=self.source, optimized=False)
        self.names: set[str] = set()

    def enter_frame(self, frame: Frame) -> None:
        super().enter_frame(frame)
        self.names |= {name for how, name in frame.symbols.loads.values() if how == "resolve"}
