"""The trace of a run: a tree of typed nodes that says what the run did, built from its journal entries.

The command line, its JSON and the page show the same nodes. Parts of a path that only count attempts or wrap a step are
no nodes of their own, and a step that consists of one call is that call.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..errors import EvaluationError
from ..journal import Entry
from ..journal.protocol import is_note
from ..records import (
    NOTHING,
    Evaluation,
    Iteration,
    Stop,
    Usage,
    as_evaluation,
    is_judging,
    number_text,
)
from ..records.codec import Json, text_of
from ..telemetry.trace import tool_of
from . import formatting as texts
from .rows import LINE_INPUT, SHORT, Row, answer_text, hints_text, short, status_of

Part = tuple[str, Json]  # a title and a value to read
# Parts of a path that wrap a step or count its attempts. Steps of a workflow may have the words as names.
_HIDDEN = re.compile(r".+/(round-\d+|attempt-\d+|call-\d+|within)|.+/.+/(try|do|again)")
_CALLS = ("model call", "tool call", "command", "agent")
_JUDGING = ("judge", "model call", "agent")


@dataclass(slots=True)
class TraceNode:
    """One thing that a run did.

    Args:
        path: its place in the run.
        kind: `step`, `loop`, `iteration`, `model call`, `tool call`, `command`, `agent`, `judge`,
            `check` or `question`.
        name: the name of the step or of the tool, the number of an iteration.
        text: what it did and what came of it, in words.
        status: `done`, `failed`, `cut short`, `in flight`, a verdict, or the status of a loop; `waiting` or
            `answered` for a question.
        at: active seconds of the run at its beginning.
        seconds: how long it took.
        usage: calls, tokens and dollars, with those of its parts.
        children: what it consists of, in the order of the beginnings.
        parts: texts to read: messages, a reply, a result, an error.
    """

    path: str
    kind: str = "step"
    name: str = ""
    text: str = ""
    status: str = ""
    at: float = 0.0
    seconds: float = 0.0
    usage: Usage = NOTHING
    children: list[TraceNode] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether it failed."""
        return self.status == "failed"

    @property
    def facts(self) -> str:
        """Its duration, tokens and price."""
        return ", ".join(filter(None, [self.took, texts.spent(replace(self.usage, calls=0))]))

    @property
    def took(self) -> str:
        """Its duration; "" while it is unknown, and for a question."""
        return (
            ""
            if self.status in ("", "in flight", "waiting", "answered")
            else texts.duration(self.seconds)
        )

    def to_json(self) -> dict[str, Json]:
        """Return it and what it consists of as a JSON object without empty fields."""
        data: dict[str, Json] = {
            "path": self.path, "kind": self.kind, "name": self.name, "text": self.text, "status": self.status,
            "at": round(self.at, 6), "seconds": round(self.seconds, 6),
        }  # fmt: skip
        if self.usage:
            data["usage"] = self.usage.to_json()
        if self.parts:
            data["parts"] = [{"title": title, "value": value} for title, value in self.parts]
        if self.children:
            data["children"] = [child.to_json() for child in self.children]
        return data


def trace_of(entries: Iterable[Entry], under: str = "", *, agent: str = "") -> list[TraceNode]:
    """Return what surviving entries record, as trees in the order of their beginnings.

    Args:
        entries: the entries of a run, or some of them.
        under: the path whose parts are the roots. Default: the run.
        agent: the command that `until` wraps in a script, as the user wrote it.
    """
    tree = _Tree(agent)
    for entry in entries:
        tree.add(entry)
    found = tree.nodes.get(under)
    return [_finished(child) for child in _in_order(found.children)] if found is not None else []


class _Tree:
    """The nodes of entries by path."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self.nodes = {"": TraceNode("")}
        self._starts: dict[str, Entry] = {}
        self._calls: dict[
            str, Sequence[Mapping[str, Json]]
        ] = {}  # the calls of a reply, by the path of its round

    def add(self, entry: Entry) -> None:
        """Add what an entry records."""
        path = entry.path
        if entry.kind == "started" and not self._is_hidden(entry):
            self._starts[path] = entry
            self._refused(entry)
            self._effect(self._node(path), entry, None)
        elif entry.kind == "finished" and (pair := _PAIR.fullmatch(path)):
            self._node(f"{path}/ab").name = "{} before {}".format(*pair.groups())
            self._node(f"{path}/ba").name = "{} before {}".format(*pair.groups()[::-1])
        elif entry.kind in ("finished", "cut") and not self._is_hidden(entry):
            self._effect(self._node(path), self._starts.get(path), entry)
        elif entry.kind == "iteration" and isinstance(entry.value, Iteration):
            self._node(path).kind = "loop"
            row, place = Row(path, entry.value), f"{path}/{entry.value.number}"
            row_node(row, self._node(place))
            for one in entry.value.candidates:
                node = self._node(one.path)
                node.kind, node.name, node.status = "candidate", str(one.number), one.state
                node.name += " (combination)" if one.combined else ""
                said = one.feedback if one.error is None else one.error.message
                said = ": ".join(filter(None, [_short(one.vary), _short(said)]))
                node.text = f"{texts.score(one.score)} {said}".strip()
            if (judge := self.nodes.get(f"{place}/evaluate")) is not None and judge.at < 0:
                judge.status, judge.text = (
                    status_of(entry.value),
                    f"{row.rating()} {row.feedback}".strip(),
                )
        elif entry.kind in ("ended", "step") and path and entry.value.get("stop"):
            node, stop = self._node(path), Stop.from_json(entry.value["stop"])
            if entry.kind == "ended":
                node.kind = "loop"
            # The end of a step that is one call says less than the call.
            if node.kind == "loop" or (node.children and not node.parts):
                node.status, node.text = stop.reason.status.value, texts.one_line(stop.detail)
        elif entry.kind == "asked":
            node = self._node(path)
            node.kind, node.status, node.at = "question", "waiting", entry.at
            node.text = texts.one_line((entry.value or {}).get("detail", "asks a person"))
        elif entry.kind == "steered":
            node = self._node(f"{path}/hints")
            node.kind, node.at, node.text = (
                "hint",
                entry.at,
                texts.one_line(hints_text(entry.value)),
            )
        elif entry.kind == "answered" and path in self.nodes:
            node = self.nodes[path]
            node.status = "answered"
            answer = answer_text(path, entry.value).removeprefix(f"{path}: ")
            node.text = texts.one_line(f"{node.text} {answer}"[:LINE_INPUT])

    def _is_hidden(self, entry: Entry) -> bool:
        last = entry.path.rsplit("/", 1)[-1]
        # The lists of the tools of servers are no work of the run.
        listing = _LISTING.fullmatch(entry.path) is not None
        return listing or is_note(entry.fingerprint) or last == "items" or last.startswith("fault-")

    def _node(self, path: str) -> TraceNode:
        """Return the node at a path; with those around it, it is made if it is new."""
        if path in self.nodes:
            return self.nodes[path]
        above, _, last = path.rpartition("/")
        while _HIDDEN.fullmatch(above):
            above = above.rpartition("/")[0]
        around = self._node(above)
        name = above.rsplit("/", 1)[-1] if _HIDDEN.fullmatch(path) else last
        kind = "judge" if is_judging(path) else "step"
        if last == "0":  # what a loop does before its first iteration
            around.kind, name = "loop", "start"
        elif last.isdigit() and not above.endswith(
            "/until"
        ):  # there it is the number of a sentence
            around.kind, kind = "loop", "iteration"
        node = self.nodes[path] = TraceNode(path, kind, name, at=-1.0)
        around.children.append(node)
        return node

    def _effect(self, node: TraceNode, start: Entry | None, end: Entry | None) -> None:
        """Describe an effect from its beginning and its end."""
        first = start or end
        assert first is not None
        value: Json = None if end is None else end.value
        asked = start.value if start is not None and isinstance(start.value, Mapping) else {}
        node.at, node.seconds = first.at, 0.0 if end is None else end.seconds
        node.usage = first.reserved if end is None else end.usage
        node.status = "in flight" if end is None else "cut short" if end.kind == "cut" else "done"
        node.parts = []
        if "roles" in asked or (isinstance(value, Mapping) and {"text", "finish"} <= value.keys()):
            self._model(node, asked, value)
        elif isinstance(value, Mapping) and "session_key" in value:
            node.kind = "agent"
            turns = texts.plural(int(value["turns"]), "turn")
            node.text = f"{value['program']}, session {str(value['session'])[:12]}, {turns}: {_short(value['text'])}"
            node.parts = [("Reply", value["text"]), ("Changed files", "\n".join(value["changed"]))]
        elif "command" in asked:
            self._command(node, asked, end)
        elif _CALL.search(node.path) or (
            isinstance(value, Mapping) and value.keys() & {"output", "error"}
        ):
            self._tool(node, first, value)
        elif is_judging(node.path) and (judged := _evaluation(value)) is not None:
            metrics = ", ".join(
                f"{name} {number_text(one)}" for name, one in judged.metrics.items()
            )
            score, feedback = texts.score(judged.score), judged.feedback
            node.text = " ".join(
                filter(None, [score, metrics, short(texts.one_line(feedback), SHORT)])
            )
            unknown = "undecided" if judged.undecided else "done"
            node.status = {True: "passed", False: "not yet", None: unknown}[judged.passed]
            node.parts = [("Feedback", feedback)] if len(feedback) > SHORT else []
        else:
            # What a sealed check measures before the first iteration has a verdict too.
            measured = value.get("evaluation") if isinstance(value, Mapping) else None
            judged = _evaluation(measured)
            node.text = _short(value) if judged is None else _short(judged.feedback)
            node.parts = [] if value is None else [("Result", value)]
        failure = end.error if end is not None else None
        if failure is not None:
            # A command says how it ended, a call of a model what it asked for.
            lead = f"{node.text}: " if node.kind in ("command", "model call") and node.text else ""
            node.status, node.text = "failed", f"{lead}{_short(failure.message)}"
            node.parts += [("Error", failure.message), ("Traceback", failure.traceback)]
        node.parts = [(title, value) for title, value in node.parts if value not in (None, "")]

    def _model(self, node: TraceNode, asked: Mapping[str, Json], value: Json) -> None:
        reply = value if isinstance(value, Mapping) else {}
        calls = list(reply.get("tool_calls") or ())
        if calls:
            self._calls[node.path.rpartition("/")[0]] = calls
        node.kind = "model call"
        model = asked.get("model") or reply.get("model") or "model"
        called = f"calls {', '.join(str(call['name']) for call in calls)}" if calls else ""
        said = " ".join(filter(None, [_short(reply.get("text")), called]))
        node.text = texts.one_line(f"{model}: {said}" if said else str(model))
        node.parts = [
            (str(role).capitalize(), asked.get(f"text-{number}"))
            for number, role in enumerate(asked.get("roles", ()), start=1)
        ]
        node.parts += [("Reply", reply.get("text"))]
        node.parts += [(f"Call of {call['name']}", call.get("arguments")) for call in calls]

    def _tool(self, node: TraceNode, entry: Entry, value: Json) -> None:
        node.kind = "tool call"
        call = tool_of(node.path, self._calls.get(node.path.rpartition("/")[0], ()))
        arguments = call.get("arguments") if call is not None else _given(entry)
        node.name = str(call["name"]) if call is not None else node.name
        given = "" if arguments is None else texts.value_line(arguments)
        node.parts = [("Arguments", arguments)]
        if not isinstance(value, Mapping):
            node.text = f"{given} {_short(value)}".strip()
            return
        error = value.get("error")
        if isinstance(error, Mapping):
            node.status = "failed"
            node.text = f"{given}: {_short(error.get('message'))}"
            node.parts += [("Error", error.get("message")), ("Traceback", error.get("traceback"))]
        else:
            node.text = f"{given}: {_short(value.get('output'))}".removeprefix(": ")
            node.parts.append(("Result", value.get("output")))

    def _refused(self, request: Entry) -> None:
        """Add the calls of the reply before a request that were refused: the request has the reasons."""
        found, asked = _ROUND.search(request.path), request.value
        if found is None or not isinstance(asked, Mapping):
            return
        before = f"{request.path[: found.start()]}/round-{int(found[1]) - 1}"
        roles = enumerate(asked.get("roles", ()), start=1)
        answers = [asked.get(f"text-{number}", "") for number, role in roles if role == "tool"]
        # The last of them answer the calls of the reply, in their order.
        first = len(answers) - len(self._calls.get(before, ()))
        for number, text in enumerate(answers[first:], start=1):
            path = f"{before}/call-{number}"
            if path in self.nodes:
                continue
            with contextlib.suppress(
                ValueError, LookupError, TypeError
            ):  # a text that was left out
                error = json.loads(text)["error"]
                # The validator of replies calls every value that it checks an answer.
                reason = str(error["message"]).replace(": the answer: ", ": arguments: ", 1)
                node = self._node(path)
                self._tool(node, request, {"error": {**error, "message": reason}})
                node.at = request.at

    def _command(self, node: TraceNode, asked: Mapping[str, Json], end: Entry | None) -> None:
        command = asked["command"]
        words = command if isinstance(command, str) else " ".join(map(str, command))
        if node.path.endswith("/execute"):
            words = self._agent or words
        value: Json = None if end is None else end.value
        known = value.get("exit_code") if isinstance(value, Mapping) else None
        if end is not None and end.error is None and known is None and "allow_exit" not in asked:
            known = 0  # any other exit code is an error
        node.kind, node.text = "command", texts.one_line(words)
        if known is not None:
            node.text += f": exit code {known}"
            node.status = "done" if known == 0 else "failed"
        node.parts = [("Command", words), ("Result", value)]


def duel_of(entries: Iterable[Entry], path: str) -> list[dict[str, Json]]:
    """Return both answers of the duel in the iteration at a path, or [].

    Each has the numbers of the candidates that were shown `first` and `second`, the `winner` (`first`, `second`,
    `tie`, or None if it could not be read), the number of that `candidate`, and the reason as `why`.
    """
    inside = [e for e in entries if e.kind == "finished" and e.path.startswith(f"{path}/choice/")]
    found = next(((e, match) for e in inside if (match := _PAIR.fullmatch(e.path))), None)
    if found is None:
        return []
    note, pair = found[0], [int(number) for number in found[1].groups()]
    return [
        {
            "first": shown[0], "second": shown[1], "winner": note.value[order],
            "candidate": dict(zip(("first", "second"), shown, strict=True)).get(note.value[order]),
            "why": next((_reason(e.value) for e in reversed(inside) if f"{note.path}/{order}" in e.path), ""),
        }
        for order, shown in (("ab", pair), ("ba", pair[::-1]))
    ]  # fmt: skip


def answer_of(answer: Mapping[str, Json]) -> str:
    """Return an answer of a duel in words, as `1 before 2: candidate 1, it names the year`."""
    said = f"candidate {answer['candidate']}" if answer["candidate"] else answer["winner"]
    why = texts.one_line(answer["why"])
    return (
        f"{answer['first']} before {answer['second']}: {said or 'unreadable'}{why and f', {why}'}"
    )


def _reason(value: Json) -> str:
    """Return the reason in an answer about a pair: of a function, or in the reply of a model."""
    with contextlib.suppress(ValueError, LookupError, TypeError):
        value = json.loads(value["text"])
    return (
        str(value.get("reason") or value.get("feedback") or "") if isinstance(value, dict) else ""
    )


_PAIR = re.compile(r".+/choice/pair-(\d+)-(\d+)")
_CALL = re.compile(r"/round-\d+/call-\d+$")
_ROUND = re.compile(r"/round-(\d+)/attempt-\d+$")
_LISTING = re.compile(r"servers/[^/]+/tools-\d+")


def _evaluation(value: Json) -> Evaluation | None:
    """Return the value of an evaluator; None for that of another step inside `evaluate`."""
    if not isinstance(value, Mapping) or not value.keys() & {
        "score",
        "passed",
        "metrics",
        "confidence",
    }:
        return None
    try:
        return as_evaluation(value)
    except EvaluationError:
        return None


def _given(entry: Entry) -> Json:
    """Return the input of an effect, if its fingerprint has all of it."""
    text = entry.fingerprint.partition(":")[2]
    try:
        return json.loads(text) if text.startswith("{") else None
    except ValueError:
        return None


def row_node(row: Row, node: TraceNode | None = None) -> TraceNode:
    """Return an iteration of a loop as a node."""
    item = row.iteration
    node = node or TraceNode(f"{row.path}/{item.number}")
    node.kind, node.name, node.status = "iteration", str(item.number), status_of(item)
    node.text = " ".join(filter(None, [row.item, row.rating(), _short(row.summary)]))
    node.seconds, node.usage = item.seconds, item.usage
    return node


def _finished(node: TraceNode) -> TraceNode:
    """Return a node with the sums of its parts; a step of one call is that call."""
    node.children = [_finished(child) for child in _in_order(node.children)]
    for child in node.children:
        node.usage = node.usage if node.kind == "iteration" else node.usage + child.usage
    if node.children and node.at < 0:
        node.at = node.children[0].at
        end = max(child.at + child.seconds for child in node.children)
        node.seconds = node.seconds or end - node.at
    # A judge asks a model; a check is any other evaluation.
    if node.kind == "judge" and not any(child.kind in _JUDGING for child in node.children):
        node.kind = "check"
    if node.kind in ("step", "judge", "check") and node.children:
        last = node.children[-1]
        if len(node.children) == 1 and last.kind in (*_CALLS, "step", "judge", "check"):
            last.path, last.name = node.path, last.name if last.kind == "tool call" else node.name
            last.kind = last.kind if node.kind == "step" else node.kind
            return last
        # The error of a tool is an answer to the model.
        failed = last.failed and last.kind != "tool call"
        node.status = node.status or (
            "failed" if failed else last.status if not last.took else "done"
        )
    node.status = node.status or "done"
    return node


def _in_order(nodes: Iterable[TraceNode]) -> list[TraceNode]:
    return sorted(nodes, key=_beginning)


def _beginning(node: TraceNode) -> float:
    return (
        node.at
        if node.at >= 0
        else min((_beginning(child) for child in node.children), default=0.0)
    )


def _short(value: Json) -> str:
    """Return a value on one line, at most some hundred characters."""
    text = value if isinstance(value, str) else "" if value is None else text_of(value)
    line = texts.one_line(text[:LINE_INPUT])
    return line if len(line) <= _SHORT else f"{line[:_SHORT]}…"


_SHORT = 200  # characters of a value in the words of a node


def walk(nodes: Iterable[TraceNode], depth: int = 0) -> Iterator[tuple[int, TraceNode]]:
    """Iterate over nodes and what they consist of, with their depth."""
    for node in nodes:
        yield depth, node
        yield from walk(node.children, depth + 1)
