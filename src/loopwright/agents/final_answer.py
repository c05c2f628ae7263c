"""The final answer of a reasoning agent, after the marker `TASK_COMPLETE: [final answer]`, and its executions.

Rules of the marker:

1. The marker counts at the beginning of a line, outside code fences, in any case. Emphasis, heading signs,
   quotation marks and a bracket before it are decoration. In the middle of a line, in a list or in a block
   quotation the marker is only mentioned and does not count.
2. The last marker counts. The answer is the rest of the message after it, over any number of lines. A marker
   before the placeholder of the instructions (`[final answer]`) or of the task (`<the sum>`) repeats it and
   does not count. Markers in a thinking block do not count either, and such a block at the end of the message
   is no part of the answer.
3. Decoration that begins before the marker ends after the answer. One pair of brackets (or of emphasis, on a
   single line) around the answer is removed, unless the answer is a list such as `[1, 2, 3]`.
4. An answer that consists of decoration only is not an answer, so the task is not complete.
5. Markers in a quotation of the complete prompt do not count.
6. In the last iteration more places count: in a list, after a sentence or a word such as "Therefore,", and
   inside a fence, whose rest is the answer.
7. No text is an error.

Executions are derived from the journal. An execution begins with the effect `begin` at the path of the agent (task,
settings and time). Its calls are the attempts of models below that path. It ends with the report of the agent, or
with the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import ConfigurationError, nearest
from ..journal import Entry, Journal, RunInfo, surviving
from ..models.reply_text import own_words, read_json
from ..records.codec import Json, sanitised

__all__ = [
    "MARKER",
    "STATUSES",
    "Execution",
    "completion",
    "execution_of",
    "executions",
]

MARKER = "TASK_COMPLETE:"
MAX_PLACEHOLDER = 500  # characters of a marker line that are compared with the task

_OPENING = "\"'\u201c\u201d\u2018\u2019«»„*_~`"  # decoration around a marker or an answer
_SIGNS = re.escape(_OPENING)
_INVISIBLE = "\ufeff\u200b\u200c\u200d\u2060"
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})(.*)", re.DOTALL)
_LINE = re.compile(
    rf"[\s{_INVISIBLE}]*+(?:\#{{1,6}}[ \t]++)?"
    rf"(?P<before>[{_SIGNS}\[\(]*+)(?P<gap>[ \t]*+)"
    rf"TASK\\?_COMPLETE(?P<between>[{_SIGNS}]*+)[ \t]*+[:\uff1a](?P<after>[{_SIGNS}]*+)",
    re.IGNORECASE | re.ASCII,
)
_CLOSING = {
    "[": "]", "(": ")", "\u201c": "\u201d", "\u2018": "\u2019", "«": "»", "„": "\u201c",
}  # fmt: skip
# The text after the marker in the instructions and the notice, which is not an answer.
_PLACEHOLDER = re.compile(
    r"[\s*_]*[\[<(](?:your |the )?(?:final )?answer[\])>][^\n]*", re.IGNORECASE
)
_IN_BRACKETS = re.compile(r"<.*>|\[.*\]|\{.*\}|\(.*\)|[.\u2026]+")
_NAMED = re.compile(r"TASK\\?_COMPLETE[^:\uff1a\n]{0,5}[:\uff1a]", re.IGNORECASE)
_THOUGHT = re.compile(
    r"^[ \t]*(<(?:think|thinking|thought)>)|</(?:think|thinking|thought)>",
    re.IGNORECASE | re.MULTILINE,
)
# Text before a marker in the last iteration: the sign of a list, the end of a sentence, a word such as "so".
_LEAD = re.compile(
    r"[\s>]*(?:[-+*•]|\d{1,3}[.)])?[\s>]*"
    r"(?:(?:.*[.!?:;,\u2013\u2014>-]|therefore|so|thus|hence|finally|and)\s*)?",
    re.IGNORECASE,
)
_EMPHASIS = ("***", "___", "**", "__", "~~", "*", "_", "`")


def completion(text: str, prompt: str = "", *, lenient: bool = False) -> str | None:
    """Return the final answer in a message, or None if the message does not complete the task.

    Args:
        text: The message.
        prompt: The task. Markers in a quotation of it do not count. Default: none.
        lenient: Whether to apply the rules of the last iteration. Default: False.

    Returns:
        The answer without the marker and its decoration, or None.

    Example:
        >>> completion("It is 6 times 7.\\nTASK_COMPLETE: [42]")
        '42'
        >>> completion("I must end with TASK_COMPLETE: and my answer.") is None
        True
    """
    own, quoted = own_words(text, value=True), prompt.strip()
    # Only a task with the marker could be mistaken for an answer.
    if quoted and _LINE.search(quoted):
        own = own.replace(quoted, "")
    parts, at = [], 0
    for start, end in _thoughts(own):
        parts += [own[at:start], "\n" * (end - start)]
        at = end
    visible = "".join((*parts, own[at:]))
    own = own[: len(visible.rstrip())]
    named = [_line_of(prompt[match.end() :]) for match in _NAMED.finditer(prompt)]
    markers = [
        (match, end)
        for match, end in _markers(visible)
        if not _repeats(own[end : end + MAX_PLACEHOLDER], named)
    ]
    answer = _answer(markers[-1][0], own[markers[-1][1] :]) if markers else ""
    # The strict rules come first, so that the last iteration reads a correct reply like any other.
    if not answer and lenient:
        answer = _leniently(own, named)
    return answer or None


def _thoughts(text: str) -> Iterator[tuple[int, int]]:
    """Iterate over the thinking blocks that begin a line: start and end."""
    start = None
    for tag in _THOUGHT.finditer(text):
        if tag[1] and start is None:
            start = tag.start()
        elif not tag[1] and start is not None:
            yield start, tag.end()
            start = None


def _line_of(text: str) -> str:
    """Return the first line of a text without its decoration."""
    return text.strip(_OPENING + " \t\r\n").split("\n", 1)[0].rstrip(_OPENING + " \t\r")


def _repeats(rest: str, named: Sequence[str]) -> bool:
    """Whether the text after a marker is the placeholder of the instructions, or one `named` by the task."""
    if _PLACEHOLDER.match(rest):
        return True
    line = _line_of(rest)
    if _IN_BRACKETS.fullmatch(line):
        return any(one.startswith(line) for one in named)
    # A single word is an answer that the task asks for, and several texts are a choice.
    return " " in line and [one.rstrip(".") for one in named] == [line.rstrip(".")]


def _leniently(text: str, named: Sequence[str]) -> str:
    """Return the answer after the last marker by the rules of the last iteration, or ""."""
    answer, fence, start = "", "", 0
    for line in re.split(r"(?<=\n)|(?<=\r)(?!\n)", text):
        edge = _FENCE.match(line)
        if edge and (not fence or (edge[1].startswith(fence) and not edge[2].strip())):
            fence = "" if fence else edge[1]
        # A cheap test before the pattern.
        elif (place := line.upper().rfind("TASK")) >= 0:
            lead = line[:place].rstrip("".join(_OPENING) + "[( \t")
            match = _LINE.match(line, len(lead)) if _LEAD.fullmatch(line, 0, len(lead)) else None
            rest = text[start + match.end() :] if match else ""
            if match and not _repeats(rest[:MAX_PLACEHOLDER], named):
                if fence:
                    rest = re.split(rf"(?m)^[ \t]*{re.escape(fence)}[`~]*[ \t]*$", rest)[0]
                answer = _answer(match, rest) or answer
        start += len(line)
    return answer


def _markers(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Iterate over the markers that count: the match in the line, and the start of the answer."""
    fence = ""
    start = 0
    for line in re.split(r"(?<=\n)|(?<=\r)(?!\n)", text):
        edge = _FENCE.match(line)
        if fence:
            if edge and edge[1].startswith(fence) and not edge[2].strip():
                fence = ""
        elif edge and not (edge[1][0] == "`" and "`" in edge[2]):
            fence = edge[1]
        # With a gap behind it a star is the sign of a list and not emphasis.
        elif (match := _LINE.match(line)) and not (match["gap"] and match["before"] == "*"):
            yield match, start + match.end()
        start += len(line)


def _answer(match: re.Match[str], rest: str) -> str:
    """Return the answer without the decoration of the marker and of the answer."""
    answer = rest.strip().strip(_INVISIBLE).strip()
    # Decoration that opens before the marker closes after it, or at the end of the answer.
    left, closed = match["before"], match["between"] + match["after"]
    for sign in reversed(left):
        end = _CLOSING.get(sign, sign)
        if end in closed:
            closed = closed.replace(end, "", 1)
        elif answer.endswith(end):
            answer = answer.removesuffix(end).rstrip()
    if closed and not left:  # the decoration belongs to the answer, as in `TASK_COMPLETE:**42**`
        answer = match["after"] + answer
    answer = _unbracketed(_plain(answer))
    return answer if answer.strip(_OPENING + "[]() \t\r\n") else ""


def _plain(answer: str) -> str:
    """Return an answer of one line without the emphasis around it."""
    if "\n" in answer or "\r" in answer:
        return answer
    for sign in _EMPHASIS:
        inner = answer[len(sign) : -len(sign)]
        around = answer.startswith(sign) and answer.endswith(sign)
        if around and len(answer) > 2 * len(sign) and sign[0] not in inner:
            return inner.strip()
    return answer


def _unbracketed(answer: str) -> str:
    """Return an answer without the pair of square brackets around it."""
    if not (answer.startswith("[") and answer.endswith("]")):
        return answer
    depth = 0
    for place, sign in enumerate(answer):
        depth += (sign == "[") - (sign == "]")
        if depth == 0 and place < len(answer) - 1:
            return answer  # the first bracket closes before the end, so the two are not a pair
    return answer if _is_list(answer) else answer[1:-1].strip()


def _is_list(answer: str) -> bool:
    """Return whether an answer in brackets is a list, and not one decorated word or number."""
    # `[42]` is a decorated number, `[1, 2]` and `["a"]` are lists.
    reading = read_json(answer)
    value = reading.value
    if reading.problem:
        return bool(re.fullmatch(r"\[\s*(['\"]).*\1\s*\]", answer, re.DOTALL))
    return len(value) != 1 or not isinstance(value[0], int | float) or isinstance(value[0], bool)


STATUSES = ("pending", "running", "completed", "failed")
_ATTEMPT = re.compile(r"(?:.*/)?attempt-[0-9]+")


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a reasoning agent.

    Args:
        run_id: The ID of its run.
        path: Its path in the run.
        agent: The name of the agent.
        status: `pending` (no call was made yet, or the run waits or is interrupted), `running`,
            `completed` or `failed`.
        prompt: The task.
        result: The answer, or None.
        error: The sanitised error, or "" without one.
        interaction_count: The number of model calls.
        last_interaction_at, started_at, completed_at: Seconds since the epoch, or None. `completed_at`
            is never before `started_at`.
        iterations: The number of iterations.
        limit_reached: Whether the agent used all its iterations.
        input_params: The settings of the agent.
    """

    run_id: str
    path: str
    agent: str
    status: str
    prompt: str
    result: Json = None
    error: str = ""
    interaction_count: int = 0
    last_interaction_at: float | None = None
    started_at: float | None = None
    completed_at: float | None = None
    iterations: int = 0
    limit_reached: bool = False
    input_params: Mapping[str, Json] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        return {name: getattr(self, name) for name in self.__slots__} | {
            "input_params": dict(self.input_params)
        }


async def executions(
    journal: Journal, *, run_id: str = "", status: str = "", limit: int = 50
) -> list[Execution]:
    """Return the executions of the latest runs, newest run first, or those of one run.

    Args:
        journal: The journal of the runs.
        run_id: The ID of one run, or a unique prefix of it. Default: the latest runs.
        status: The status of the executions. Default: all.
        limit: The maximum of runs. Default: 50.

    Returns:
        The executions. Those of one run are in the order in which they began.

    Raises:
        RunNotFound: If there is no run `run_id`.
        ConfigurationError: For an unknown status.
    """
    if status and status not in STATUSES:
        hint = nearest(str(status), STATUSES)
        raise ConfigurationError(
            f"executions: status: {status!r} is none of {', '.join(STATUSES)}{hint}"
        )
    rows = [await journal.find(run_id)] if run_id else await journal.runs(limit=limit)
    every: list[Execution] = []
    for row in rows:
        every += execution_of(row, await journal.entries(row.run_id))
    return [one for one in every if not status or one.status == status]


def execution_of(info: RunInfo, entries: Sequence[Entry]) -> list[Execution]:
    """Return the executions in one run, in the order in which they began.

    Args:
        info: The row of the run.
        entries: Its entries.
    """
    entries = surviving(entries)  # without the entries that a rewind discarded
    ended = next((e for e in entries if e.kind == "ended" and not e.path), None)
    return [
        _execution(info, e, entries, ended)
        for e in entries
        if e.kind == "finished" and e.path.endswith("/begin")
        if isinstance(e.value, dict) and e.value.get("kind") == "reasoning"
    ]


def _execution(
    info: RunInfo, begun: Entry, entries: Sequence[Entry], ended: Entry | None
) -> Execution:
    path = begun.path.removesuffix("/begin")
    inside = [e for e in entries if e.path == path or e.path.startswith(f"{path}/")]
    calls = [e.at for e in inside if e.kind == "started" and _ATTEMPT.fullmatch(e.path)]
    # A resumed execution reports again; the last report counts.
    report = next((e.value for e in reversed(inside) if e.kind == "reported"), None)
    value = begun.value
    started = float(value["started_at"])
    common = {
        "run_id": info.run_id,
        "path": path,
        "agent": value["agent"],
        "prompt": value["prompt"],
        "started_at": started,
        "input_params": value["input_params"],
    }
    if report is not None:
        names = ("interaction_count", "last_interaction_at", "iterations", "limit_reached")
        return Execution(
            **common,
            **{name: report[name] for name in names},
            status=report["status"],
            result=report.get("result"),
            error=report.get("error", ""),
            completed_at=report["completed_at"],
        )
    records = [e for e in inside if e.kind == "iteration"]
    # Entries have active seconds, and the beginning has the only wall-clock time.
    last = started + max(0.0, max(calls, default=0.0) - begun.at) if calls else None
    recorded = [float((e.value.steps or {}).get("at") or 0.0) for e in records]
    status, error, result = "pending", "", None
    if ended is not None:
        status, error = "failed", sanitised(f"{info.reason}: {info.detail}")
        # A limit ended it: the result is the latest text, without the marker.
        texts = [e.value.output for e in records if isinstance(e.value.output, str)]
        result = (completion(texts[-1], lenient=True) or texts[-1].strip()) if texts else None
    elif calls and info.status == "running":
        status = "running"
    return Execution(
        **common,
        status=status,
        error=error,
        interaction_count=len(calls),
        last_interaction_at=max([last, *recorded]) if last is not None else None,
        iterations=len(records),
        completed_at=max(started, info.updated) if ended is not None else None,
        result=result,
    )
