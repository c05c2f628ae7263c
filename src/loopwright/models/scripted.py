"""A model that answers from a script, for tests, dry runs and documentation, and the rules of the script.

1. The first rule that matches a call answers it with its replies in order; the last reply repeats.
2. Each run has its own position in the script, so runs at the same time do not disturb each other.
3. A scripted reply is processed like a real one: text for a schema is parsed and checked, a truncated
   reply is an error, and a script can raise every kind of model error.
4. After a resume the script continues where the journal ends: each reply carries the number of its
   rule in `parts`, so that recorded attempts can be counted by rule.

Rules are read from YAML text, JSON text or a list; every problem has its place. Plain scalars have the meaning that
they have in documents (YAML 1.2): `NO` and `yes` are text. A reply that is a number keeps the digits as they were
written.
"""

from __future__ import annotations

import asyncio
import fnmatch
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import ErrorDetails

from .._regex import Pattern, compile_pattern
from ..engine.run_state import NO_EXIT, NO_STUB, Stub
from ..errors import DocumentError, ModelError, Problem, StepError, StepTimeout, nearest
from ..journal import Entry, MemoryJournal
from ..records import Usage, codec
from ..records.codec import Json
from .errors import KINDS
from .protocol import Finish, Reply, Request, ToolCall, received

__all__ = [
    "ERRORS",
    "FINISHES",
    "Rule",
    "ScriptedEffects",
    "ScriptedModel",
    "ScriptedReply",
    "dry_run_resources",
    "read_rules",
]

# A script belongs to its user, so a slow search on a busy machine must not change the reply.
SCRIPT_SECONDS = 5.0
# A file of replies may come from another person, so reading it has limits.
MAX_CHARS = 4_000_000
MAX_DEPTH = 32
MAX_NODES = 200_000
TOO_LARGE = f"has more than {MAX_DEPTH} levels or {MAX_NODES:,} values"
# The kinds of the vocabulary, and two frequent cases of a kind that have a name.
ERRORS: Mapping[str, tuple[str, str]] = {
    **{kind: (kind, "") for kind in KINDS},
    "stream_incomplete": ("transient", "stream_incomplete"),
    "context_too_long": ("permanent", "context_too_long"),
}
Finishes = Literal["stop", "length", "refused", "content_filter", "tool_calls"]
FINISHES = get_args(Finishes)
USAGE = tuple(Usage.__dataclass_fields__)
Place = tuple[int | str, ...]
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


def _seconds(value: object, info: ValidationInfo) -> float | None:
    return None if value is None else codec.number(str(info.field_name), value, minimum=0)


def _filled(value: object, info: ValidationInfo) -> object:
    if isinstance(value, list | tuple) and value:
        return value
    if info.field_name == "replies":
        raise ValueError("give a list of at least one reply")
    raise ValueError("give a list of rules, such as - {step: '*draft*', replies: ['a text']}")


def _one_of_errors(value: object) -> str:
    if value and value not in ERRORS:
        raise ValueError(f"unknown error {value!r}{_nearest(value, ERRORS)}")
    return str(value)


def _word(value: object) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise ValueError(
            f"{codec.flow_text(value)} is not the kind of an error; give a word such as timeout"
        )
    return value


def _compiled(value: object) -> Pattern | None:
    return None if value is None else compile_pattern(str(value), timeout=SCRIPT_SECONDS)


def _read_usage(value: object) -> Usage | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ValueError(
            f"{codec.flow_text(value)} is not an object; use keys of {', '.join(USAGE)}"
        )
    for key in value:
        if key not in USAGE:
            raise ValueError(f"unknown key {key!r}{_nearest(key, USAGE)}")
    return Usage(**{"calls": 1, **value})


Normal = Annotated[Json, BeforeValidator(codec.normalise)]
Text = Annotated[str, BeforeValidator(lambda value: codec.normalise(codec.text_of(value)))]
Seconds = Annotated[float | None, BeforeValidator(_seconds)]


class _Model(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        coerce_numbers_to_str=True,
        arbitrary_types_allowed=True,
        # Built at the first use: a document is checked without a model.
        defer_build=True,
    )


class _Call(_Model):
    id: str = ""
    name: str = Field(min_length=1)
    arguments: Normal = Field(default_factory=dict)


class ScriptedReply(_Model):
    """One reply of a script: its content or its error, after `after` seconds."""

    text: Text = ""
    data: Normal = Field(None, alias="json")
    tool_calls: tuple[_Call, ...] = ()
    finish: Finishes = "stop"
    usage: Annotated[Usage | None, PlainValidator(_read_usage)] = None
    error: Annotated[str, BeforeValidator(_one_of_errors)] = ""
    message: Text = ""
    reason: Text = ""
    retry_after: Seconds = None
    after: Seconds = 0.0

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, value: object) -> object:
        if isinstance(value, str | bool | int | float):
            return {"text": value}
        if isinstance(value, dict) and value.get("json") is not None and "text" not in value:
            return {**value, "text": codec.encode(codec.normalise(value["json"]))}
        return value

    @model_validator(mode="after")
    def _check(self) -> ScriptedReply:
        if not self.model_fields_set & {"text", "data", "tool_calls"} and not self.error:
            raise ValueError("is empty; give text, json, tool_calls or error")
        return self


class Rule(_Model):
    """Which calls get which replies: a glob over the path, a pattern over the prompt, or both.

    Without `replies` it is a stub of another effect in a dry run: its output, exit code or error.
    """

    step: str = Field("", strict=True)
    # A Pattern, which pydantic cannot describe.
    prompt: Annotated[Json, BeforeValidator(_compiled)] = None
    replies: Annotated[tuple[ScriptedReply, ...], BeforeValidator(_filled)] = ()
    output: Normal = None
    exit: int | None = Field(None, strict=True, ge=-64, le=255)
    error: Annotated[str, BeforeValidator(_word)] = ""

    @model_validator(mode="after")
    def _check_result(self) -> Rule:
        stub = self.model_fields_set & {"output", "exit", "error"}
        if not stub and not self.replies:
            raise ValueError(
                "has no result; give replies of a model, or output, exit or error of another effect"
            )
        if stub and self.model_fields_set & {"replies", "prompt"}:
            raise ValueError(
                f"{' and '.join(sorted(stub))} cannot stand beside replies or prompt; write two rules"
            )
        if "error" in stub and len(stub) > 1:
            raise ValueError("error stands alone; remove output and exit")
        return self


_RULES = TypeAdapter(Annotated[tuple[Rule, ...], BeforeValidator(_filled)])
_KEYS: Mapping[str, Sequence[str]] = {
    "rule": tuple(Rule.model_fields),
    "reply": tuple(name if name != "data" else "json" for name in ScriptedReply.model_fields),
    "tool call": tuple(_Call.model_fields),
}


def read_rules(source: str | Sequence[Json], file: str = "replies") -> tuple[Rule, ...]:
    """Return the rules in YAML or JSON text, or in a parsed list; messages name `file`.

    Raises:
        DocumentError: with every problem and its place.
    """
    reader = _Reader(file)
    value = reader.parse(source) if isinstance(source, str) else source
    rules: tuple[Rule, ...] = ()
    try:
        rules = _RULES.validate_python(value)
    except ValidationError as error:
        for detail in error.errors():
            reader.problem(detail["loc"], _message(detail))
    except RecursionError:
        reader.problem((), TOO_LARGE)
    if reader.problems:
        raise DocumentError(reader.problems)
    return rules


def _message(error: ErrorDetails) -> str:
    """Return one error of the validation as a sentence that says what to do."""
    place, value = error["loc"], error["input"]
    name = str(place[-1]) if place else ""
    match error["type"]:
        case "extra_forbidden":
            names = _KEYS[_object_at(place[:-1])]
            return f"unknown key {name!r}{_nearest(name, names)}"
        case "literal_error":
            return f"unknown {name} {codec.flow_text(value)}{_nearest(value, FINISHES)}"
        case "model_type" | "model_attributes_type":
            kind = "null" if value is None else type(value).__name__
            return f"{kind} is not a {_object_at(place)}; give text, or an object"
        case _ if name == "exit":
            return f"{codec.flow_text(value)} is not an exit code; give a number from -64 to 255"
        case "string_type" if name == "step":
            return f"{codec.flow_text(value)} is not text; give a glob such as '*draft*'"
        case "value_error":
            return str(error["ctx"]["error"])
    return "is missing; name the tool to call" if name == "name" else error["msg"]


def _object_at(place: Place) -> str:
    return {1: "rule", 3: "reply"}.get(len(place), "tool call")


def _nearest(value: object, names: Sequence[str] | Mapping[str, object]) -> str:
    return nearest(str(value), names) or f"; use one of {', '.join(names)}"


@dataclass
class _Reader:
    """Reads the text, and knows the line and column of each value."""

    file: str
    problems: list[Problem] = field(default_factory=list)
    lines: dict[Place, tuple[int, int]] = field(default_factory=dict)

    def problem(self, place: Place, message: str) -> None:
        line, column = self.lines.get(place) or self.lines.get(place[:-1]) or (0, 0)
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
        self.problems.append(Problem(self.file, line, column, path.lstrip("."), message))

    def parse(self, text: str) -> Json:
        try:
            if len(text) > MAX_CHARS:
                raise ValueError(f"has {len(text):,} characters; at most {MAX_CHARS:,} are read")
            # By the events of the text, because composing deep nodes would recurse.
            depth = 0
            for event in yaml.parse(text, Loader=_Plain):
                depth += isinstance(event, yaml.CollectionStartEvent)
                depth -= isinstance(event, yaml.CollectionEndEvent)
                if depth > MAX_DEPTH:
                    raise ValueError(TOO_LARGE)
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

    def _value(self, node: yaml.Node, place: Place) -> Json:
        self.lines[place] = (node.start_mark.line + 1, node.start_mark.column + 1)
        if len(place) > MAX_DEPTH or len(self.lines) > MAX_NODES:
            raise ValueError(TOO_LARGE)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*place, i)) for i, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            members: dict[str, Json] = {}
            for key, item in node.value:
                name = str(key.value)
                repeated = name in members
                members[name] = self._value(item, (*place, name))
                if repeated:
                    self.problem((*place, name), f"the key {name!r} is repeated")
            return members
        value = _scalar(node)
        is_reply = len(place) == 3 and place[1] == "replies"
        # A reply of `1.0` is the text "1.0"; as a number it would become "1".
        return str(node.value) if is_reply and value is not None else value


class _Plain(yaml.SafeLoader):
    """A loader without resolvers: `_scalar` decides the type of each scalar."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - the name is PyYAML's


_INT = re.compile(r"[-+]?[0-9]{1,300}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
_WORDS: Mapping[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def _scalar(node: yaml.Node) -> Json:
    """Return the value of a scalar by the core schema of YAML 1.2; a quoted scalar is text."""
    text = str(node.value)
    if getattr(node, "style", None) is not None:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


LIBRARY = "scripted"  # in recorded replies; see rule 4
_REFUSED = ("refused", "content_filter")
_MARK = re.compile(r"The mark is ([0-9a-f]{16})\.")  # in the question of a judge
_FAULT = re.compile(r"(.*/|)fault-([0-9]+)(?:-[0-9]+)?", re.DOTALL)


class ScriptedModel:
    """A model that answers from rules; the first rule that matches a call answers it.

    Args:
        rules: YAML text, JSON text or a list of `{step: glob over the path, prompt: regular expression
            over the prompt, replies: […]}`. A reply is text or an object: `{text:, finish: length,
            usage: {…}}`, `{json: {…}}`, `{tool_calls: [{name:, arguments: {…}}]}` or `{error: a kind,
            retry_after: seconds, message:}`. `after:` delays a reply by that many seconds, default 0.
            Without `usage`, four characters count as one token. In the reply of a judge, `{{ mark }}` is the
            mark of the question, which a real judge copies.
        file: the name of the rules in error messages; default "replies".

    Raises:
        DocumentError: with every problem of the rules and its place.

    Example:

    >>> import asyncio
    >>> from loopwright.models import Message, Request
    >>> model = ScriptedModel([{"replies": ["first", "last"]}])
    >>> ask = Request((Message("user", "hello"),), model="any", provider="openai")
    >>> [asyncio.run(model.complete(ask)).text for _ in range(3)]
    ['first', 'last', 'last']
    """

    def __init__(self, rules: str | Sequence[Any], *, file: str = "replies") -> None:
        self.rules = read_rules(rules, file)
        self.file = file
        self._text = rules if isinstance(rules, str) else repr(rules)
        self._used: dict[str, Counter[int]] = {}

    def __repr__(self) -> str:
        return f"ScriptedModel({len(self.rules)} rules)"

    def address(self, request: Request) -> str:
        """Return the digest of its rules, which stands for the address of a request."""
        del request
        return hashlib.sha256(self._text.encode("utf-8", "surrogatepass")).hexdigest()

    async def complete(
        self, request: Request, *, on_text: Callable[[str], None] | None = None
    ) -> Reply:
        """Answer one request from the script; see Model.complete."""
        number = self._match(request.path, request.prompt)
        scripted = self._take(number, request.run_id)
        parts = {"library": LIBRARY, "version": 1, "rule": number}
        if scripted.after:
            # A script has no first byte, so the earlier of the two timers ends the wait, as for a silent server.
            limit = min(request.timeouts.first_byte, request.timeouts.whole)
            await asyncio.sleep(min(scripted.after, limit))
            if scripted.after >= limit:
                raise ModelError(
                    f"{request.provider}/{request.model} did not begin within {limit:g} s",
                    kind="unknown_outcome",
                    path=request.path,
                    reason="first_byte_timeout",
                    parts=parts,
                )
        if scripted.error:
            raise _failure(scripted, request, parts)
        if on_text is not None and scripted.text:
            on_text(scripted.text)
        return _reply(scripted, request, parts)

    def skip(self, calls: Iterable[tuple[str, str]], *, run_id: str = "") -> None:
        """Advance the script as if these calls, pairs of path and prompt, had been made.

        Raises:
            ModelError: if no rule matches a call.
        """
        for path, prompt in calls:
            self._take(self._match(path, prompt), run_id)

    def continued(self, run_id: str, entries: Iterable[Entry]) -> None:
        """Advance the script to the end of a run's journal: finished attempts are counted by rule.

        An attempt that was in flight when the process died is not counted, so the repeated attempt
        gets the same reply.
        """
        used: Counter[int] = Counter()
        failed: dict[str, int] = {}
        for entry in entries:
            if entry.kind != "finished":
                continue
            number = _rule_of(entry.value)
            failure = _FAULT.fullmatch(entry.path)
            if failure is not None and number is not None:
                failed[f"{failure[1]}attempt-{failure[2]}"] = number
                continue
            # A failed attempt has no reply; the rule is in the facts beside it.
            if entry.error is not None:
                number = failed.pop(entry.path, None)
            if number is not None:
                used[number] += 1
        self._used[run_id] = used

    def _match(self, path: str, prompt: str) -> int:
        for number, rule in enumerate(self.rules):
            try:
                asks = rule.replies and _is_at(rule, path)
                if asks and (rule.prompt is None or rule.prompt.search(prompt) is not None):
                    return number
            # A search that timed out is neither a match nor the absence of one.
            except StepError as error:
                detail = f"{path}: rule {number + 1} of the replies: {error}"
                raise ModelError(detail, kind="permanent", reason="no_reply") from None
        shown = prompt if len(prompt) <= 80 else prompt[:80] + "…"
        raise ModelError(
            f"no rule of the replies matches the call {path!r} whose prompt begins {shown!r}; "
            "add a rule for it, or a last one without step and prompt",
            kind="permanent",
            path=path,
            reason="no_reply",
        )

    def _take(self, number: int, run_id: str) -> ScriptedReply:
        used = self._used.setdefault(run_id, Counter())
        rule = self.rules[number]
        reply = rule.replies[min(used[number], len(rule.replies) - 1)]
        used[number] += 1
        return reply


def _is_at(rule: Rule, path: str) -> bool:
    """Whether the glob of a rule matches a path."""
    return not rule.step or fnmatch.fnmatchcase(path, rule.step)


def _rule_of(value: Json) -> int | None:
    # A kept reply was not taken from the script.
    own = isinstance(value, dict) and "cached" not in value
    parts = value.get("parts") if own else None
    if not isinstance(parts, dict) or parts.get("library") != LIBRARY:
        return None
    number = parts.get("rule")
    return number if isinstance(number, int) else None


def _failure(scripted: ScriptedReply, request: Request, parts: Json) -> ModelError:
    kind, reason = ERRORS[scripted.error]
    what = f"{request.provider}/{request.model}"
    failure = ModelError(
        f"{what}: {scripted.message or 'scripted ' + scripted.error}",
        kind=kind,
        path=request.path,
        reason=scripted.reason or reason,
        retry_after=scripted.retry_after,
        partial=scripted.text,
        problem="The reply does not have the requested format." if kind == "malformed" else "",
        parts=parts,
    )
    if failure.reason == "stream_incomplete":
        failure.billed = "maybe"
    if (
        failure.billed == "yes"
        or failure.reason == "stream_incomplete"
        or scripted.usage is not None
    ):
        failure.usage = _usage(scripted, request)
    return failure


def _usage(scripted: ScriptedReply, request: Request) -> Usage:
    if scripted.usage is not None:
        return scripted.usage
    written = scripted.text + "".join(codec.encode(call.arguments) for call in scripted.tool_calls)
    # Four characters per token, rounded up, so that no reply is free.
    return Usage(1, -(-len(request.prompt) // 4), -(-len(written) // 4))


def _reply(scripted: ScriptedReply, request: Request, parts: Json) -> Reply:
    """Return a scripted reply, processed like the reply of a real model."""
    usage = _usage(scripted, request)
    what = f"{request.provider}/{request.model}"
    if scripted.finish in _REFUSED:
        raise ModelError(
            f"{what} refused to answer", kind="refused", path=request.path, usage=usage,
            reason="content_filter", partial=scripted.text, parts=parts,
        )  # fmt: skip
    text, mark = scripted.text, _MARK.search(request.prompt)
    if mark is not None:
        text = text.replace("{{ mark }}", mark[1])
    cut = scripted.finish == "length"
    finish: Finish = "length" if cut else "tool_calls" if scripted.tool_calls else "stop"
    reply = Reply(
        text=text,
        data=None if scripted.text.strip() else scripted.data,
        usage=usage,
        finish=finish,
        model=request.model,
        provider=request.provider,
        # A call without an ID is numbered.
        tool_calls=tuple(
            ToolCall(call.id or f"call-{number}", call.name, call.arguments)
            for number, call in enumerate(scripted.tool_calls, start=1)
        ),
        parts=parts,
    )
    try:
        return received(reply, request)
    except ModelError as failure:
        failure.parts = parts
        raise


class ScriptedEffects:
    """The stubs of a dry run from the rules of a file of replies; see `engine.run_state.Stubs`.

    A rule `{step: GLOB, output: …}`, `{step: GLOB, exit: N}` or `{step: GLOB, error: WORD}` stands for
    Python functions, commands, tools and questions to people at the paths that its glob matches. The first
    rule that matches counts.

    Args:
        rules: the rules, of which those with `replies` are ignored.
        file: the name of the rules in messages; default "replies".
    """

    def __init__(self, rules: Sequence[Rule], *, file: str = "replies") -> None:
        self.rules = tuple(rule for rule in rules if not rule.replies)
        self.file = file

    def of(self, path: str, what: str) -> Stub:
        """Return the stub of the first rule that matches.

        Raises:
            StepError: `no_stub` without a rule, else of the kind that the rule names.
        """
        rule = next((rule for rule in self.rules if _is_at(rule, path)), None)
        if rule is None:
            raise StepError(
                f"the dry run has no stub for the {what} {path!r}; add a rule to {self.file}, such as "
                f"{{step: {path!r}, output: …}}",
                path=path,
                kind=NO_STUB,
                retryable=False,
            )
        if rule.error:
            kind = StepTimeout if rule.error == "timeout" else StepError
            raise kind(f"{path}: stub of the error {rule.error}", path=path, kind=rule.error)
        return Stub(rule.output, rule.exit)

    def output(self, path: str, what: str) -> Json:
        """Return the output of the first rule that matches.

        Raises:
            StepError: as `of`, and `bad_stub` for a rule with an exit code.
        """
        stub = self.of(path, what)
        if stub.exit is not None:
            raise StepError(f"{path}: {NO_EXIT}", path=path, kind="bad_stub", retryable=False)
        return stub.output


def dry_run_resources(model: ScriptedModel) -> dict[str, object]:
    """Return the resources that make a run a dry run, from the rules of its scripted model."""
    stubs = ScriptedEffects(model.rules, file=model.file)
    return {"stubs": stubs, "memory": MemoryJournal().memory}
