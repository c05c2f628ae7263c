"""The lessons of an iteration for the next ones: patterns over the replies, and the entry that is recorded."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ...._regex import Pattern, PatternTimeout, compile_pattern
from ....engine.context import Context
from ....engine.step import Leaf, digest_of
from ....evaluators.parsing.text import agents_in, reply_text
from ....records.codec import Json, text_of
from ....templates import Template, TemplateError
from .template_functions import node_template, written
from .template_view import CATEGORIES, MAX_ENTRIES, LoopNodeView

__all__ = ["DEFAULT_METADATA", "LoopNodeLessons", "RecordLessons", "extract"]

DEFAULT_METADATA: Mapping[str, Json] = MappingProxyType(
    {name: f"{{{{ {name} }}}}" for name in ("loop_number", "score", "timestamp", *CATEGORIES)}
)
# The limits of the dialect's own program, in characters.
_MIN_LESSON, _MAX_LESSON = 10, 200
_MIN_REPLY = 20


@dataclass(frozen=True)
class LoopNodeLessons:
    """The settings of the entry of each iteration.

    `patterns` are regular expressions by category (insights, improvements, mistakes) whose first group is the
    lesson. `metadata` holds the templates of an entry, `max_chars` is the limit of a category in characters,
    `max_entries` the number of entries in a template, and `persist` the ID under which entries outlive the run
    ("": they do not).
    """

    patterns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    metadata: Mapping[str, Json] = field(default_factory=lambda: DEFAULT_METADATA)
    max_chars: int = 300
    max_entries: int = MAX_ENTRIES
    persist: str = ""

    def compiled(self) -> tuple[dict[str, list[Pattern]], dict[str, Template]]:
        """Return the patterns and templates, compiled.

        Raises:
            ConfigurationError: for an invalid pattern or template.
        """
        patterns = {
            category: [compile_pattern(f"(?s){text}", ignore_case=True) for text in texts]
            for category, texts in self.patterns.items()
        }
        texts = {name: text for name, text in self.metadata.items() if isinstance(text, str)}
        return patterns, {name: node_template(text) for name, text in texts.items()}

    @property
    def fingerprint(self) -> str:
        """A digest of the settings."""
        patterns, metadata = dict(self.patterns), dict(self.metadata)
        settings = (patterns, metadata, self.max_chars, self.max_entries, self.persist)
        return digest_of("lessons", repr(settings))


def extract(
    patterns: Mapping[str, list[Pattern]], outputs: Mapping[str, Json], max_chars: int
) -> dict[str, str]:
    """Return the lessons of an iteration by category, in the order of the agents, each once."""
    by_category = dict.fromkeys(CATEGORIES, "")
    texts = [reply_text(output) for output in agents_in(outputs).values()]
    texts = [text for text in texts if len(text) >= _MIN_REPLY]
    for category, compiled in patterns.items():
        lessons: dict[str, str] = {}
        for text in texts:
            for pattern in compiled:
                for lesson in _lessons(pattern, text):
                    lessons.setdefault(lesson.lower(), lesson)
        joined = " | ".join(lessons.values())
        by_category[category] = joined if len(joined) <= max_chars else joined[:max_chars] + "..."
    return by_category


def _lessons(pattern: Pattern, text: str) -> list[str]:
    try:
        groups = [match.groups[0] for match in pattern.finditer(text) if match.groups]
    except PatternTimeout:  # lessons are optional, so a slow pattern must not end the loop
        return []
    lessons = (" ".join((group or "").split()) for group in groups)
    return [lesson for lesson in lessons if _MIN_LESSON < len(lesson) <= _MAX_LESSON]


class RecordLessons(Leaf):
    """The step that creates the entry of an iteration. It is recorded, so later iterations see the same."""

    fingerprint: str

    name = "lessons"

    def __init__(self, lessons: LoopNodeLessons) -> None:
        self.lessons = lessons
        self.fingerprint = lessons.fingerprint
        self.patterns, self.templates = lessons.compiled()

    async def act(self, value: Mapping[str, Json], ctx: Context) -> dict[str, Json]:
        """Return the entry: its metadata as text, and number and score unchanged."""
        outputs, score = value["outputs"], value["score"]
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ctx.run.clock.wall()))
        lessons = extract(self.patterns, outputs, self.lessons.max_chars)
        # Without a match, the failed criteria of a validator are the mistakes.
        if not lessons["mistakes"]:
            lessons["mistakes"] = ", ".join(text_of(name) for name in value.get("failed", ()))
        own: dict[str, Json] = {
            "loop_number": value["number"],
            "score": "" if score is None else score,
            "timestamp": stamp,
            **lessons,
        }
        entry = self._entry(LoopNodeView(ctx, value, outputs), own, ctx)
        # Templates of later iterations read these fields, also if the document's entry leaves them out.
        for name in ("loop_number", "score", "timestamp"):
            entry.setdefault(name, own[name])
        return {"entry": entry, "lessons": {**lessons}}

    def _entry(self, view: LoopNodeView, own: Mapping[str, Json], ctx: Context) -> dict[str, Json]:
        agents = view.agents
        values = {
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
                    entry[name] = written(self.templates[name], view, values, ctx)
                except TemplateError as error:
                    ctx.warn(f"past_loops_metadata.{name}: {error}", code="template_failed")
                    entry[name] = ""
        return entry
