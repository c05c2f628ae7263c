"""Loop nodes of native documents: how their rounds are scored, and what is kept of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..evaluators.presets import preset
from ..loop import Loop
from ..nodes import Lessons, LoopNode, Scorer, ScoreRound, Strategy
from ..nodes.learning import DEFAULT_METADATA
from ..patterns import compile_pattern
from .native import LoopSpec
from .native_nodes import LessonsSpec, NodeSpec

if TYPE_CHECKING:
    from .compiling import Compiler, Path_

__all__ = ["as_node", "scored"]


def scored(compiler: Compiler, spec: LoopSpec, node: NodeSpec, path: Path_) -> ScoreRound | None:
    """Compile the scoring of a loop node; None if problems were found."""
    for name in ("evaluate", "adapt"):
        if name in spec.model_fields_set:
            what = f"a loop node is scored by what its agents write, and its input stays: it has no {name}"
            compiler.problem((*path, name), what)
            return None
    at = (*path, "node")
    _patterns(compiler, node, at)
    weights = {}
    if node.preset is not None:
        given = node.preset
        found = compiler.attempt((*at, "preset"), lambda: preset(given.level, given.context, given.weights))
        weights = found or {}
    low, high = node.scale
    if not low < high:
        compiler.problem((*at, "scale"), f"{node.scale} is no scale; write two numbers, the lower first")
        return None
    scale = (float(low), float(high))
    options: dict[str, Any] = {} if node.strategies is None else {"strategies": _strategies(node)}
    scorer = Scorer(first=tuple(node.first), weights=weights, fallback=node.fallback_score, scale=scale, **options)
    made = ScoreRound(scorer, lessons(node.lessons))
    compiler.attempt((*at, "lessons", "entry"), made.lessons.compiled)
    return made


def as_node(loop: Loop, node: NodeSpec) -> LoopNode:
    """Return a loop as a node, which gives the documented output object."""
    return LoopNode(loop, node.threshold, lessons(node.lessons), node.timeout_score, loop.required)


def lessons(spec: LessonsSpec) -> Lessons:
    """Return what is kept of rounds."""
    patterns = {str(category): tuple(texts) for category, texts in spec.patterns.items()}
    entry = DEFAULT_METADATA if spec.entry is None else spec.entry
    return Lessons(patterns, entry, spec.longest, spec.most, spec.persist)


def _strategies(node: NodeSpec) -> tuple[Strategy, ...]:
    given = node.strategies or ()
    return tuple(Strategy(tuple(s.patterns), s.key, tuple(s.agents)) for s in given)


def _patterns(compiler: Compiler, node: NodeSpec, at: Path_) -> None:
    """Report each pattern that is no regular expression at its own place."""
    for i, strategy in enumerate(node.strategies or ()):
        for j, text in enumerate(strategy.patterns):
            _compiled(compiler, text, (*at, "strategies", i, "patterns", j))
    for category, texts in node.lessons.patterns.items():
        for j, text in enumerate(texts):
            _compiled(compiler, text, (*at, "lessons", "patterns", category, j))


def _compiled(compiler: Compiler, text: str, at: Path_) -> None:
    compiler.attempt(at, lambda: compile_pattern(text))
