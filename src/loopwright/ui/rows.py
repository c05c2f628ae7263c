"""The progress of a run, computed from its journal entries, for all views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..journal import Entry, surviving
from ..journal.replay import RecordedRun
from ..progress import depth_of
from ..records import NOTHING, Evaluation, Iteration, Stop, Usage, is_judging, number_text
from ..records.codec import Json, text_of
from ..records.display import cost, plural
from .formatting import limit_text


class _AtPath:
    """Something at the path of a loop."""

    __slots__ = ()
    path: str

    @property
    def depth(self) -> int:
        """The number of outer loops."""
        return depth_of(self.path)


@dataclass(frozen=True, slots=True)
class IterationRow(_AtPath):
    """A finished iteration of the loop at `path`."""

    path: str
    iteration: Iteration
    item: str = ""  # the item of a list that it belongs to
    sentences: int = 0  # in `until` of the loop, asked or not; 0 if unknown

    @property
    def label(self) -> str:
        """The loop's name and the number of the iteration."""
        return f"{self.path.rsplit('/', 1)[-1]} {self.iteration.number}"


@dataclass(frozen=True, slots=True)
class Ending(_AtPath):
    """The end of a loop inside the run."""

    path: str
    stop: Stop


@dataclass(frozen=True, slots=True)
class Notice(_AtPath):
    """A question to a person, or the answer, as a sentence."""

    path: str
    text: str


Shown = IterationRow | Ending | Notice


def item_at(path: str, lists: Mapping[str, Sequence[Json]]) -> str:
    """Return the items of lists that a path is inside, outermost first; "" outside lists.

    `lists` are the items of lists by path. A missing item is named by its number.
    """
    names = []
    parts = path.split("/")
    for i, part in enumerate(parts):
        items = lists.get("/".join(parts[:i])) if part.isdigit() else None
        if items is not None:
            number = int(part)
            names.append(text_of(items[number - 1]) if number <= len(items) else f"item {number}")
    return " / ".join(text or "an empty item" for text in names)


def answers_of(evaluation: Evaluation | None) -> Iterator[tuple[str, str]]:
    """Iterate over (condition, answer) of the votes that name their condition, and of the sentences of `until`."""
    for sentence, passed in verdicts_of(evaluation):
        yield sentence, "UNDECIDED" if passed is None else _answer(passed)
    for vote in evaluation.votes if evaluation is not None else ():
        if isinstance(vote, dict) and "condition" in vote and "answer" in vote:
            yield str(vote["condition"]), _answer(vote["answer"])


def verdicts_of(evaluation: Evaluation | None) -> Iterator[tuple[str, bool | None]]:
    """Iterate over the sentences of `until` that were asked, with their answers; None for an undecided one."""
    verdicts = None if evaluation is None else evaluation.verdicts
    for sentence, verdict in (verdicts or {}).items():
        yield sentence, verdict["passed"]


def _answer(value: Json) -> str:
    if isinstance(value, bool):
        return "YES" if value else "NO"
    return str(value).upper()


def answer_text(path: str, value: Json) -> str:
    """Return a person's answer, or new input of an iteration, as a sentence."""
    if path.endswith("/input"):
        return f"{path}: new input: {text_of(value)}"
    if not isinstance(value, dict) or not isinstance(value.get("approve"), bool):
        return f"{path}: answer: {text_of(value)}"
    word = "yes" if value["approve"] else "accepted" if value.get("accept") else "no"
    more = [
        f"{key} {text_of(item)}" for key, item in value.items() if key not in ("approve", "accept")
    ]
    return f"{path}: answer: {', '.join([word, *more])}"


def noise_text(measured: Json) -> str:
    """Return the noise of past runs that a loop measured at its start."""
    return f"sigma {measured['sigma']:.3g} of {plural(measured['runs'], 'past run')}"


def _notice(entry: Entry) -> str:
    """Return a question, an answer or a changed limit as a sentence, or ""."""
    # A page leaves out long values, and a question may contain an output.
    if entry.kind == "asked" and entry.value is None:
        return "asks a person"
    if entry.kind == "asked" and entry.value["request"].get("kind") not in _AT_END:
        return f"asks a person: {entry.value['detail']}"
    if entry.kind == "answered":
        return answer_text(entry.path, entry.value)
    if entry.kind == "accepted" and entry.value is not None:
        raised = ", ".join(f"{key} is now {number_text(n)}" for key, n in entry.value.items())
        return f"{entry.path or 'run'}: {raised}"
    if entry.kind == "forked":
        spent = Usage.from_json(entry.value["inherited"])
        inherited = f", inherited: {cost(spent)}" if cost(spent) else ""
        return f"continues {entry.value['run_id']} from {entry.value['path']}{inherited}"
    if entry.kind == "noise":
        return ", ".join(f"{loop}: {noise_text(one)}" for loop, one in entry.value.items())
    if entry.kind == "would_stop":
        loop, normal = entry.path.rsplit("/", 1)[-1], entry.value
        why = Stop.from_json(normal["stop"]).detail
        count = plural(normal["iterations"], "iteration")
        return f"{loop}: normal end after {count} ({why}); later iterations are explored"
    if entry.kind == "tuned":
        change = entry.value
        new = "removed"
        if change["new"] is not None:
            new = f"now {limit_text(change['key'], change['new'])}"
        why = f" ({change['reason']})" if change["reason"] else ""
        return f"{change['loop'] or 'run'}: {change['who']} tuned {change['key']}, {new}{why}"
    return ""


class Progress:
    """The progress of a run: effects in flight, usage, active seconds.

    By path of an effect in flight, `in_flight` holds the active second of its start; for model calls,
    `models` holds the model's name and `replies` the end of the reply so far. `bounds`, as
    recorded with the run, have the number of sentences of each loop.
    """

    def __init__(self, bounds: Mapping[str, Json] | None = None) -> None:
        loops = (bounds or {}).get("loops", ())
        self.sentences = {loop["name"]: loop.get("sentences", 0) for loop in loops}
        self.in_flight: dict[str, float] = {}
        self.models: dict[str, str] = {}
        self.replies: dict[str, str] = {}
        self.lists: dict[str, list[Json]] = {}  # items by the path of their list
        self.spent: Usage = NOTHING
        self.judging: Usage = NOTHING  # part of `spent`
        self.active = 0.0

    def recall(self, entries: Sequence[Entry]) -> list[Shown]:
        """Apply the entries of an earlier process, and return the items to show."""
        # Discarded entries cost money too: `RecordedRun` counts it, the rows leave it out.
        survivors = surviving(entries)
        shown = [item for entry in survivors for item in self.apply(entry)]
        replay = RecordedRun(survivors)
        self.in_flight.clear()  # effects in flight ended with their process
        self.spent, self.active = replay.spent(""), replay.active
        self.judging = replay.judging
        return shown

    def apply(self, entry: Entry) -> list[Shown]:
        """Apply an entry, and return the items to show."""
        end = entry.at + entry.seconds if entry.kind in _DONE else entry.at
        self.active = max(self.active, end)
        if entry.kind == "started":
            self.in_flight[entry.path] = entry.at
            if isinstance(entry.value, dict) and "model" in entry.value:
                self.models[entry.path] = str(entry.value["model"])
        elif entry.kind in _DONE:
            self._finish(entry)
        elif entry.kind == "iteration":
            item = item_at(f"{entry.path}/{entry.value.number}", self.lists)
            return [self.row(entry.path, entry.value, item)]
        # The end of the outermost loop is the end of the run, which is reported apart.
        elif entry.kind == "ended" and "/" in entry.path:
            return [Ending(entry.path, Stop.from_json(entry.value["stop"]))]
        text = _notice(entry)
        return [Notice(entry.path, text)] if text else []

    def row(self, path: str, iteration: Iteration, item: str) -> IterationRow:
        """Return the row of an iteration of the loop at a path."""
        return IterationRow(path, iteration, item, self.sentences.get(path.rsplit("/", 1)[-1], 0))

    def _finish(self, entry: Entry) -> None:
        """Apply the end of an effect."""
        for by_path in (self.in_flight, self.models, self.replies):
            by_path.pop(entry.path, None)
        self.spent += entry.usage
        if is_judging(entry.path):
            self.judging += entry.usage
        if entry.path.endswith("/items") and isinstance(entry.value, list):
            self.lists[entry.path.removesuffix("/items")] = entry.value

    def add_text(self, path: str, piece: str) -> None:
        """Append a piece of a model's reply; only the end is kept, because only the end is shown."""
        self.replies[path] = (self.replies.get(path, "") + piece)[-_MAX_REPLY:]

    def set_text(self, path: str, text: str) -> None:
        """Replace the end of the text of an effect in flight."""
        self.replies[path] = text[-_MAX_REPLY:]


_DONE = ("finished", "cut")
_AT_END = ("iteration", "limit")  # questions that stop a loop; the end of the run shows them
_MAX_REPLY = 2000  # characters: several lines of a wide terminal
