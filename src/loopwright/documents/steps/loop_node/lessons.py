"""What a round teaches the next: patterns over what its agents wrote, and the entry that is kept of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ...._regex import Pattern, PatternTimeout, compile_pattern
from ....engine.context import Context
from ....engine.step import Leaf, digest_of
from ....evaluators.parsing.replies import agents_in, reply_text
from ....records.codec import Json, text_of
from ....templates import Template, TemplateError
from .scope import CATEGORIES, MOST
from .template_view import LoopNodeView
from .templates import node_template, written

__all__ = ["DEFAULT_METADATA", "LoopNodeLessons", "RecordLessons", "extract"]

DEFAULT_METADATA: Mapping[str, Json] = MappingProxyType(
    {name: f"{{{{ {name} }}}}" for name in ("loop_number", "score", "timestamp", *CATEGORIES)}
)
_LEAST, _MOST = 10, 200  # characters of one lesson
_SHORT = 20  # a reply shorter than this teaches nothing


@dataclass(frozen=True)
class LoopNodeLessons:
    """What is kept of each round.

    `patterns` are regular expressions by category (insights, improvements, mistakes) whose first group is the
    lesson, `metadata` the templates of an entry, `longest` the characters of a category, `most` how many entries
    are shown, `persist` the id under which they outlive the run, "" for not at all.
    """

    patterns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    metadata: Mapping[str, Json] = field(default_factory=lambda: DEFAULT_METADATA)
    longest: int = 300
    most: int = MOST
    persist: str = ""

    def compiled(self) -> tuple[dict[str, list[Pattern]], dict[str, Template]]:
        """Return the patterns and templates, compiled.

        Raises:
            ConfigurationError: for a pattern or a template that cannot be read.
        """
        patterns = {
            category: [compile_pattern(f"(?s){text}", ignore_case=True) for text in texts]
            for category, texts in self.patterns.items()
        }
        texts = {name: text for name, text in self.metadata.items() if isinstance(text, str)}
        return patterns, {name: node_template(text) for name, text in texts.items()}

    @property
    def fingerprint(self) -> str:
        """A digest of what is kept."""
        kept = (dict(self.patterns), dict(self.metadata), self.longest, self.most, self.persist)
        return digest_of("lessons", repr(kept))


def extract(
    patterns: Mapping[str, list[Pattern]], outputs: Mapping[str, Json], longest: int
) -> dict[str, str]:
    """Return the lessons of a round by category: found in the order of the agents, each once."""
    found = dict.fromkeys(CATEGORIES, "")
    texts = [reply_text(output) for output in agents_in(outputs).values()]
    texts = [text for text in texts if len(text) >= _SHORT]
    for category, compiled in patterns.items():
        lessons: dict[str, str] = {}
        for text in texts:
            for pattern in compiled:
                for lesson in _lessons(pattern, text):
                    lessons.setdefault(lesson.lower(), lesson)
        joined = " | ".join(lessons.values())
        found[category] = joined if len(joined) <= longest else joined[:longest] + "..."
    return found


def _lessons(pattern: Pattern, text: str) -> list[str]:
    try:
        groups = [match.groups[0] for match in pattern.finditer(text) if match.groups]
    except PatternTimeout:
        return []
    lessons = (" ".join((group or "").split()) for group in groups)
    return [lesson for lesson in lessons if _LEAST < len(lesson) <= _MOST]


class RecordLessons(Leaf):
    """The leaf that makes the entry of a round: on record, so that the next rounds see the same."""

    fingerprint: str

    name = "lessons"

    def __init__(self, lessons: LoopNodeLessons) -> None:
        self.lessons = lessons
        self.fingerprint = lessons.fingerprint
        self.patterns, self.templates = lessons.compiled()

    async def act(self, value: Mapping[str, Any], ctx: Context) -> dict[str, Json]:
        """Return the entry of a round: its metadata as text, and number and score as they are."""
        outputs, score = value["outputs"], value["score"]
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ctx.run.clock.wall()))
        lessons = extract(self.patterns, outputs, self.lessons.longest)
        if not lessons["mistakes"]:  # what no pattern finds, a validator may have named
            lessons["mistakes"] = ", ".join(text_of(name) for name in value.get("failed", ()))
        own: dict[str, Json] = {
            "loop_number": value["number"],
            "score": "" if score is None else score,
            "timestamp": stamp,
            **lessons,
        }
        entry = self._entry(LoopNodeView(ctx, value, outputs), own, ctx)
        for name in ("loop_number", "score", "timestamp"):
            entry.setdefault(name, own[name])
        return {"entry": entry, "lessons": {**lessons}}

    def _entry(self, view: LoopNodeView, own: Mapping[str, Json], ctx: Context) -> dict[str, Json]:
        agents = view.agents
        seen = {
            **view.values,
            "reasoning_quality": reply_text(agents.get("REASONING_QUALITY", 0.0)),
            "convergence_trend": reply_text(agents.get("CONVERGENCE_TREND", "STABLE")),
            **own,
        }
        entry: dict[str, Json] = {}
        for name, text in self.lessons.metadata.items():
            entry[name] = text
            if name in self.templates:
                try:
                    entry[name] = written(self.templates[name], view, seen, ctx)
                except TemplateError as error:
                    ctx.warn(f"past_loops_metadata.{name}: {error}")
                    entry[name] = ""
        return entry
