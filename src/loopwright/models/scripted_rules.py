"""The rules of scripted replies: from YAML or JSON text, or a list, every problem with its place.

Plain scalars mean what they mean in documents (YAML 1.2): `NO` and `yes` are text. A reply that is
a number is the text of that number, as it was written.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from .._regex import Pattern, compile_pattern
from ..errors import ConfigurationError, DocumentError, Problem, nearest
from ..records import Usage, codec
from ..records.codec import Json
from .errors import KINDS
from .protocol import ToolCall

__all__ = ["ERRORS", "Rule", "Scripted", "read_rules"]

# A script is its user's own, and a search that a busy machine delays must not change what it answers.
SCRIPT_SECONDS = 5.0

MAX_CHARS = 4_000_000
MAX_DEPTH = 32
MAX_NODES = 200_000
# Words that are no kind of their own but a known case of one.
ERRORS: Mapping[str, tuple[str, str]] = {
    **{kind: (kind, "") for kind in KINDS},
    "stream_incomplete": ("transient", "stream_incomplete"),
    "context_too_long": ("permanent", "context_too_long"),
}
_RULE_KEYS = ("step", "prompt", "replies")
_REPLY_KEYS = (
    "text", "json", "tool_calls", "finish", "usage", "error", "message", "reason", "retry_after",
    "after",
)  # fmt: skip
_FINISHES = ("stop", "length", "refused", "content_filter", "tool_calls")
_Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Scripted:
    """One reply of a script: what to say or how to fail, after `after` seconds."""

    text: str = ""
    data: Json = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish: str = "stop"
    usage: Usage | None = None
    error: str = ""
    message: str = ""
    reason: str = ""
    retry_after: float | None = None
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Rule:
    """Which calls get which replies: a glob over the path, a pattern over the prompt, or both."""

    replies: tuple[Scripted, ...]
    step: str = ""
    prompt: Pattern | None = None

    def matches(self, path: str, prompt: str) -> bool:
        """Whether a call is one of this rule's."""
        if self.step and not fnmatch.fnmatchcase(path, self.step):
            return False
        return self.prompt is None or self.prompt.search(prompt) is not None


def read_rules(source: str | Sequence[Any], file: str = "replies") -> tuple[Rule, ...]:
    """Return the rules in YAML or JSON text, or in a list already parsed; `file` is for messages.

    Raises:
        DocumentError: with every problem and its place.
    """
    reader = _Reader(file)
    value = reader.parse(source) if isinstance(source, str) else source
    rules = reader.rules(value)
    if reader.problems:
        raise DocumentError(reader.problems)
    return rules


@dataclass
class _Reader:
    file: str
    problems: list[Problem] = field(default_factory=list)
    lines: dict[_Place, tuple[int, int]] = field(default_factory=dict)
    written: dict[_Place, str] = field(default_factory=dict)

    # From text to values.

    def parse(self, text: str) -> Any:
        try:
            if len(text) > MAX_CHARS:
                raise ValueError(f"has {len(text):,} characters; at most {MAX_CHARS:,} are read")
            _check_depth(text)
            node = yaml.compose(text, Loader=_Plain)
            return self._value(node, ()) if node is not None else None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
            what = f"{error.problem or 'cannot be read'}; it is neither YAML nor JSON"
            raise DocumentError([Problem(self.file, line, column, "", what)]) from None
        except (ValueError, RecursionError, yaml.YAMLError) as error:
            what = str(error) if isinstance(error, ValueError) else "cannot be read as YAML"
            raise DocumentError([Problem(self.file, 0, 0, "", what)]) from None

    def _value(self, node: yaml.Node, place: _Place) -> Any:
        self.lines[place] = (node.start_mark.line + 1, node.start_mark.column + 1)
        if len(place) > MAX_DEPTH or len(self.lines) > MAX_NODES:
            raise ValueError(f"has more than {MAX_DEPTH} levels or {MAX_NODES:,} values")
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*place, i)) for i, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place)
        self.written[place] = node.value
        return _scalar(node)

    def _mapping(self, node: yaml.MappingNode, place: _Place) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in node.value:
            name = str(key.value)
            twice = name in made
            made[name] = self._value(value, (*place, name))
            if twice:
                self._problem((*place, name), f"the key {name!r} is there twice")
        return made

    # From values to rules.

    def _problem(self, place: _Place, message: str) -> None:
        line, column = self.lines.get(place) or self.lines.get(place[:-1]) or (0, 0)
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
        self.problems.append(Problem(self.file, line, column, path.lstrip("."), message))

    def rules(self, value: Any) -> tuple[Rule, ...]:
        if not isinstance(value, list | tuple) or not value:
            what = "give a list of rules, such as - {step: '*draft*', replies: ['a text']}"
            self._problem((), what)
            return ()
        return tuple(rule for i, v in enumerate(value) if (rule := self._rule(v, (i,))) is not None)

    def _rule(self, value: Any, place: _Place) -> Rule | None:
        if not self._keys(value, place, _RULE_KEYS, "a rule"):
            return None
        replies = value.get("replies")
        if not isinstance(replies, list | tuple) or not replies:
            self._problem((*place, "replies"), "give a list of at least one reply")
            return None
        made = [self._reply(v, (*place, "replies", i)) for i, v in enumerate(replies)]
        step = value.get("step", "")
        if not isinstance(step, str):
            self._problem((*place, "step"), f"{step!r} is not text; give a glob such as '*draft*'")
            return None
        return Rule(tuple(made), step, self._pattern(value, place))

    def _pattern(self, value: Mapping[str, Any], place: _Place) -> Pattern | None:
        text = value.get("prompt")
        if text is None:
            return None
        try:
            return compile_pattern(str(text), timeout=SCRIPT_SECONDS)
        except ConfigurationError as error:
            self._problem((*place, "prompt"), str(error))
            return None

    def _reply(self, value: Any, place: _Place) -> Scripted:
        if isinstance(value, bool | int | float):
            return Scripted(self.written.get(place, str(value)))
        if isinstance(value, str):
            return Scripted(codec.normalise(value))
        if not self._keys(value, place, _REPLY_KEYS, "a reply"):
            return Scripted()
        error = str(value.get("error", ""))
        if error and error not in ERRORS:
            hint = nearest(error, ERRORS) or f"; use one of {', '.join(ERRORS)}"
            self._problem((*place, "error"), f"unknown fault {error!r}{hint}")
        finish = str(value.get("finish", "stop"))
        if finish not in _FINISHES:
            hint = nearest(finish, _FINISHES) or f"; use one of {', '.join(_FINISHES)}"
            self._problem((*place, "finish"), f"unknown finish {finish!r}{hint}")
        if not error and not {"text", "json", "tool_calls"} & set(value):
            self._problem(place, "says nothing; give text, json, tool_calls or error")
        data = value.get("json")
        text = value.get("text", "" if data is None else codec.encode(codec.normalise(data)))
        return Scripted(
            text=codec.normalise(codec.text_of(text)),
            data=codec.normalise(data),
            tool_calls=self._tool_calls(value.get("tool_calls", ()), (*place, "tool_calls")),
            finish=finish,
            usage=self._usage(value.get("usage"), (*place, "usage")),
            error=error,
            message=str(value.get("message", "")),
            reason=str(value.get("reason", "")),
            retry_after=self._seconds(value, "retry_after", place),
            after=self._seconds(value, "after", place) or 0.0,
        )

    def _keys(self, value: Any, place: _Place, known: tuple[str, ...], what: str) -> bool:
        if not isinstance(value, Mapping):
            shown = "null" if value is None else type(value).__name__
            self._problem(place, f"{shown} is not {what}; give text, or an object")
            return False
        for key in [key for key in value if key not in known]:
            hint = nearest(str(key), known) or f"; use {', '.join(known)}"
            self._problem((*place, key), f"unknown key {key!r}{hint}")
        return True

    def _seconds(self, value: Mapping[str, Any], key: str, place: _Place) -> float | None:
        if value.get(key) is None:
            return None
        try:
            return codec.number(key, value[key], least=0)
        except ConfigurationError as error:
            self._problem((*place, key), str(error))
            return None

    def _usage(self, value: Any, place: _Place) -> Usage | None:
        if value is None:
            return None
        names = ("calls", "input_tokens", "output_tokens", "usd", "unpriced", "estimated")
        if not self._keys(value, place, names, "a usage"):
            return None
        try:
            return Usage(**{"calls": 1, **{key: value[key] for key in names if key in value}})
        except (ConfigurationError, TypeError) as error:
            self._problem(place, str(error))
            return None

    def _tool_calls(self, value: Any, place: _Place) -> tuple[ToolCall, ...]:
        if not isinstance(value, list | tuple):
            self._problem(place, "give a list of calls, each {name: …, arguments: {…}}")
            return ()
        calls = []
        for i, call in enumerate(value):
            if self._keys(call, (*place, i), ("id", "name", "arguments"), "a tool call"):
                name = str(call.get("name", ""))
                if not name:
                    self._problem((*place, i), "name the tool that is called")
                arguments = codec.normalise(call.get("arguments", {}))
                calls.append(ToolCall(str(call.get("id", f"call-{i + 1}")), name, arguments))
        return tuple(calls)


def _check_depth(text: str) -> None:
    """Refuse deep nesting by the events of the text: what builds values from it would recurse."""
    depth = 0
    for event in yaml.parse(text, Loader=_Plain):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise ValueError(f"has more than {MAX_DEPTH} levels or {MAX_NODES:,} values")


class _Plain(yaml.SafeLoader):
    """A loader that resolves nothing by itself: what a scalar means is decided here."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the name is PyYAML's


_INT = re.compile(r"[-+]?[0-9]{1,300}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
_WORDS: Mapping[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def _scalar(node: yaml.Node) -> Any:
    """Return what a scalar means by the core schema of YAML 1.2; what is quoted is text."""
    text = str(node.value)
    if getattr(node, "style", None) is not None:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
