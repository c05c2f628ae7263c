"""The code of a template: made from its checked tree when it is first run.

Documents are read far more often than all their templates run, and making code is half of what reading one costs. It is
made at once where only that tells which names are looked up, or whether it can be made at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from io import StringIO

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame

from .limits import TemplateError
from .sandbox import SANDBOX

__all__ = ["TOO_COMPLEX", "Program", "names_of"]

TOO_COMPLEX = "nested too deep, or too complex, to compile"

# Of a tree as flat as this, Python compiles the code: its own limits are far beyond.
_FLAT = 12
_BRANCHES = 20
_BINDING = (nodes.For, nodes.Assign, nodes.AssignBlock, nodes.With)


class Program:
    """The code of a template, or what makes the checked tree that it is made of."""

    __slots__ = ("_made", "_tree")

    def __init__(self, tree: Callable[[], nodes.Template]) -> None:
        self._tree = tree
        self._made: jinja2.Template | None = None

    @property
    def code(self) -> jinja2.Template:
        """The code.

        Raises:
            TemplateError: Python cannot compile it.
        """
        if self._made is None:
            self.make()
        assert self._made is not None
        return self._made

    def make(self) -> frozenset[str]:
        """Make the code now, and return the names that it looks up."""
        try:
            tree = self._tree()
            tree.set_environment(SANDBOX)
            generator = _Generator()
            generator.visit(tree)
            code = compile(generator.source.getvalue(), "<template>", "exec")
        except (RecursionError, MemoryError, SyntaxError, ValueError):
            raise TemplateError(TOO_COMPLEX) from None
        self._made = jinja2.Template.from_code(SANDBOX, code, {})
        return frozenset(generator.names)


def names_of(
    program: Program, parts: Sequence[nodes.Node], depth: int, helpers: Collection[str]
) -> frozenset[str]:
    """Return the names that a program looks up; `parts` are the nodes of its tree before it was rewritten.

    Where something in the tree binds names, it is the code that tells them apart.
    """
    binds = any(isinstance(part, _BINDING) for part in parts)
    branches = any(isinstance(part, nodes.If) and len(part.elif_) > _BRANCHES for part in parts)
    if binds or branches or depth > _FLAT:
        return program.make()
    found = {part.name for part in parts if isinstance(part, nodes.Name) and part.ctx == "load"}
    found |= {
        part.name for part in parts if isinstance(part, nodes.Filter) and part.name in helpers
    }
    return frozenset(found)


class _Generator(CodeGenerator):
    """Jinja's code generator, which also notes the names that will be looked up.

    It calculates nothing while compiling, where no meter runs.
    """

    def __init__(self) -> None:
        self.source = StringIO()
        super().__init__(SANDBOX, None, None, stream=self.source, optimized=False)
        self.names: set[str] = set()

    def enter_frame(self, frame: Frame) -> None:
        super().enter_frame(frame)
        self.names |= {name for how, name in frame.symbols.loads.values() if how == "resolve"}
