"""What a run is doing, folded from its journal entries: the one source of every view of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..journal import Entry, surviving
from ..journal.replay import RecordedRun
from ..records import NOTHING, Evaluation, Iteration, Stop, Usage, is_judging
from ..records.codec import Json, text_of

__all__ = ["Ending", "IterationRow", "Notice", "Progress", "Shown", "depth_of", "item_at", "judged"]


@dataclass(frozen=True, slots=True)
class IterationRow:
    """A finished iteration of the loop at `path`."""

    path: str
    iteration: Iteration
    item: str = ""  # of the list that it is a row of, or in

    @property
    def label(self) -> str:
        """The loop's name and the number of the iteration."""
        return f"{self.path.rsplit('/', 1)[-1]} {self.iteration.number}"

    @property
    def depth(self) -> int:
        """How many loops enclose it."""
        return depth_of(self.path)


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a loop inside the run."""

    path: str
    stop: Stop

    @property
    def depth(self) -> int:
        """How many loops enclose it."""
        return depth_of(self.path)


@dataclass(frozen=True, slots=True)
class Notice:
    """What a person is asked or has answered, as a sentence."""

    path: str
    text: str

    @property
    def depth(self) -> int:
        """How many loops enclose it."""
        return depth_of(self.path)


Shown = IterationRow | Ending | Notice


def item_at(path: str, lists: Mapping[str, Sequence[Json]]) -> str:
    """Return the items that a path is inside of, outermost first, as text; "" outside of lists.

    `lists` are the items of lists by path; an item without text is told by its number.
    """
    found = []
    parts = path.split("/")
    for i, part in enumerate(parts):
        items = lists.get("/".join(parts[:i])) if part.isdigit() else None
        if items is not None:
            number = int(part)
            found.append(text_of(items[number - 1]) if number <= len(items) else f"item {number}")
    return " / ".join(text or "an empty item" for text in found)


def depth_of(path: str) -> int:
    """Return how many loops enclose a path: each leaves the number of its round in it."""
    return sum(part.isdigit() for part in path.split("/"))


def judged(evaluation: Evaluation | None) -> Iterator[tuple[str, str]]:
    """Iterate over (condition, answer) of the votes that say which condition they judged."""
    for vote in evaluation.votes if evaluation is not None else ():
        if isinstance(vote, dict) and "condition" in vote and "answer" in vote:
            yield str(vote["condition"]), _answer(vote["answer"])


def _answer(given: Json) -> str:
    if isinstance(given, bool):
        return "YES" if given else "NO"
    return str(given).upper()


def answered(path: str, value: Json) -> str:
    """Return what a person answered, or gave as the input of an iteration, as a sentence."""
    if path.endswith("/input"):
        return f"{path}: a person gave it: {text_of(value)}"
    if not isinstance(value, dict) or not isinstance(value.get("approve"), bool):
        return f"{path}: a person answered: {text_of(value)}"
    word = "yes" if value["approve"] else "accepted" if value.get("accept") else "no"
    more = {key: told for key, told in value.items() if key not in ("approve", "accept")}
    told = ", ".join(f"{key} {text_of(given)}" for key, given in more.items())
    return f"{path}: a person said {word}{f', {told}' if told else ''}"


class Progress:
    """How far a run is: what is in flight, what was spent, how long it was alive.

    `flying` maps the path of each effect in flight to the active second of its start, `models` that
    of each call of a model to the model's name, `heard` to the text it has said so far.
    """

    def __init__(self) -> None:
        self.flying: dict[str, float] = {}
        self.models: dict[str, str] = {}
        self.heard: dict[str, str] = {}
        self.lists: dict[str, list[Json]] = {}  # items by the path of their list
        self.spent: Usage = NOTHING
        self.judging: Usage = NOTHING  # the part of it that went into judging
        self.active = 0.0

    def recall(self, entries: Sequence[Entry]) -> list[Shown]:
        """Take up what an earlier process recorded, and return what there is to show of it."""
        kept = surviving(entries)
        shown = [item for entry in kept for item in self.hear(entry)]
        replay = RecordedRun(kept)
        self.flying.clear()  # what was in flight went down with its process
        self.spent, self.active = replay.spent(""), replay.active
        self.judging = replay.judging
        return shown

    def hear(self, entry: Entry) -> list[Shown]:
        """Take up an entry, and return what there is to show of it."""
        self.active = max(
            self.active, entry.at + entry.seconds if entry.kind in _DONE else entry.at
        )
        if entry.kind == "started":
            self.flying[entry.path] = entry.at
            if isinstance(entry.value, dict) and "model" in entry.value:
                self.models[entry.path] = str(entry.value["model"])
        elif entry.kind in _DONE:
            for known in (self.flying, self.models, self.heard):
                known.pop(entry.path, None)
            self.spent += entry.usage
            if is_judging(entry.path):
                self.judging += entry.usage
            if entry.path.endswith("/items") and isinstance(entry.value, list):
                self.lists[entry.path.removesuffix("/items")] = entry.value
        elif entry.kind == "iteration":
            item = item_at(f"{entry.path}/{entry.value.number}", self.lists)
            return [IterationRow(entry.path, entry.value, item)]
        elif entry.kind == "ended" and "/" in entry.path:
            return [Ending(entry.path, Stop.from_json(entry.value["stop"]))]
        elif entry.kind == "asked" and entry.value["request"].get("kind") not in _AT_ONCE:
            return [Notice(entry.path, f"asks a person: {entry.value['detail']}")]
        elif entry.kind == "answered":
            return [Notice(entry.path, answered(entry.path, entry.value))]
        elif entry.kind == "accepted" and entry.value is not None:
            told = ", ".join(f"{key} is {value:g} now" for key, value in entry.value.items())
            return [Notice(entry.path, f"{entry.path or 'run'}: {told}")]
        return []

    def hear_text(self, path: str, piece: str) -> None:
        """Take up text that a model says, of which only the end is ever shown."""
        self.heard[path] = (self.heard.get(path, "") + piece)[-_KEPT:]


_DONE = ("finished", "cut")
_AT_ONCE = ("iteration", "limit")  # questions at which a loop stops: how the run ends tells them
_KEPT = 2000  # characters
