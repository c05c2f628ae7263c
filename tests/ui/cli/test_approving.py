"""`approve`, and going on with raised limits and edited inputs, on the command line."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from .conftest import Project
from .test_views import watched

ASKS = """
from loopwright import Loop, MaxIterations, ScoreAtLeast, parallel, step

async def draft(value, ctx):
    with open("effects.txt", "a") as file:
        print(f"draft {ctx.iteration}", file=file)
    return {"text": f"{value}!", "round": ctx.iteration}

async def judge(output, ctx):
    return {"score": 0.2 * ctx.iteration, "feedback": f"round {ctx.iteration} is long"}

def adapt(last):
    return f"{last.input}, {last.feedback}"

until = ScoreAtLeast(0.9) | MaxIterations(2)
both = Loop(draft, judge, adapt, until, name="both", approve=("iteration", "limit"))
plain = Loop(draft, judge, adapt, until, name="plain")

async def sign(value, ctx):
    return ctx.ask("who", {"kind": "tool", "tool": "mail", "arguments": {"to": "a"}}, "call mail?")

async def name(value, ctx):
    return ctx.ask("name", {"hint": "the first one"}, "what is your name?")

two = parallel(step(sign), step(name), name="two")
"""


@pytest.fixture
def asks(project: Project) -> Project:
    """A folder with steps that ask."""
    (project.folder / "asks.py").write_text(ASKS)
    sys.modules.pop("asks", None)
    return project


def test_a_run_that_asks_says_so_and_how_to_answer(asks: Project) -> None:
    """Exit code 4; the question, its path and the command are told by run, runs and show."""
    done = asks.call("run", "asks:both", "--input", "x", "--run-id", "one")
    assert done.code == 4
    assert "waiting at both/1/approve\n" in done.out
    assert "answer: loopwright approve one\n" in done.out
    assert "1 question: both: " in asks.call("runs").out
    assert "answer: loopwright approve one" in asks.call("show", "one").out
    data = asks.call("show", "one", "--json").json
    assert [question["path"] for question in data["questions"]] == ["both/1/approve"]
    row = asks.call("runs", "--json").json["runs"][0]
    assert (row["status"], row["questions"]) == ("suspended", 1)


def test_approve_alone_shows_what_is_asked(asks: Project) -> None:
    """The question, what it is about, and the options that answer it; --json has the same."""
    asks.call("run", "asks:two", "--run-id", "one")
    shown = asks.call("approve", "one")
    assert shown.code == 0
    assert "two/sign/who  since " in shown.out
    assert '      "to": "a"' in shown.out
    assert "answer: loopwright approve one two/sign/who with one of" in shown.out
    assert "  hint: the first one" in shown.out
    asked = asks.call("approve", "one", "--json").json["questions"]
    assert [(q["kind"], q["detail"]) for q in asked] == [
        ("tool", "call mail?"), ("free", "what is your name?"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--yes"], {"approve": True}),
        (["--no"], {"approve": False}),
        (["--no", "--reason", "not now"], {"approve": False, "reason": "not now"}),
        (["--edit", '{"to": "b"}'], {"approve": True, "arguments": {"to": "b"}}),
        (["--value", '{"approve": true}'], {"approve": True}),
    ],
)
def test_a_tool_is_approved_denied_or_edited(asks: Project, options: list[str], said: Any) -> None:
    """The step is given the answer in its long form; the other question is answered by a value."""
    asks.call("run", "asks:two", "--run-id", "one")
    first = asks.call("approve", "one", "two/sign/who", *options)
    assert first.code == 0
    assert "still waiting at two/name/name: what is your name?" in first.out
    last = asks.call("approve", "one", "--value", "Ann", "--resume", "--json")
    assert (last.code, last.json["output"]) == (0, {"sign": said, "name": "Ann"})


WRONG = [
    ([], "one has 2 open questions. Give the path of one: two/sign/who, two/name/name", ["--yes"]),
    (["two/sign/wo"], "did you mean 'two/sign/who'?", ["--yes"]),
    (["two/sign/wo"], "did you mean 'two/sign/who'?", []),
    (["two/sign/who"], "is not an answer to this question", ["--value", "7"]),
    (["two/sign/who"], "arguments: 'b' is not an object", ["--edit", "b"]),
    (
        ["two/sign/who"],
        "--accept applies to iterations; the question at two/sign/who is of the kind ",
        ["--accept"],
    ),
    (["two/sign/who"], "give one of --yes, --no", ["--yes", "--no"]),
    (["two/sign/who"], "--reason needs --no", ["--yes", "--reason", "x"]),
]


@pytest.mark.parametrize(("path", "sentence", "options"), WRONG)
def test_a_wrong_answer_is_a_sentence_and_changes_nothing(
    asks: Project, path: list[str], sentence: str, options: list[str]
) -> None:
    """Exit code 2 with what was expected; the question stays open."""
    asks.call("run", "asks:two", "--run-id", "one")
    done = asks.call("approve", "one", *path, *options)
    assert done.code == 2
    assert sentence in done.err
    assert len(asks.call("approve", "one", "--json").json["questions"]) == 2


def test_a_question_is_answered_once(asks: Project) -> None:
    """A second answer is refused, and a run without questions says what to do."""
    asks.call("run", "asks:both", "--input", "x", "--run-id", "one")
    assert asks.call("approve", "one", "--yes").code == 0
    assert "answered; resume: " in asks.call("show", "one").out
    again = asks.call("approve", "one", "both/1/approve", "--no")
    assert (again.code, "answered already" in again.err) == (2, True)
    shown = asks.call("approve", "one")
    assert shown.code == 2
    assert shown.out == "resume: loopwright resume one\n"
    assert shown.err == "loopwright: one has no open question; it is suspended\n"
    listed = asks.call("approve", "one", "--json")
    assert (listed.code, listed.json["questions"]) == (2, [])
    assert "answered, ready to resume" in asks.call("runs").out


def test_rounds_are_edited_and_limits_raised(asks: Project) -> None:
    """Feedback as text, the limit as a number, an output accepted: each goes on with --resume."""
    asks.call("run", "asks:both", "--input", "x", "--run-id", "one")
    second = asks.call("approve", "one", "--edit", "be brief", "--resume")
    assert second.code == 4
    assert "both/1/approve: answer: yes, feedback be brief" in second.out
    third = asks.call("approve", "one", "--edit", "1", "--resume", "--json")
    assert third.json["loops"]["both"]["history"][1]["input"] == "x, be brief"
    assert third.json["questions"][0]["path"] == "both/3/limit"
    asks.call("approve", "one", "--yes", "--resume")
    given = ["--accept", "--edit", '{"output": "mine"}']
    last = asks.call("approve", "one", *given, "--resume", "--json")
    assert (last.code, last.json["reason"], last.json["output"]) == (0, "accepted", "mine")
    assert len(asks.effects()) == 4


def test_an_exhausted_run_goes_on_with_a_raised_limit(asks: Project) -> None:
    """resume tells a finished run again; --max-iterations reopens it, and says so in its rows."""
    asks.call("run", "asks:plain", "--input", "x", "--run-id", "one")
    told = asks.call("resume", "one")
    assert (told.code, len(asks.effects())) == (3, 2)
    more = asks.call("resume", "one", "--max-iterations", "4")
    assert more.code == 3
    assert "plain: max_iterations is now 4" in more.out
    assert asks.effects() == ["draft 1", "draft 2", "draft 3", "draft 4"]
    low = asks.call("resume", "one", "--max-iterations", "3")
    assert (low.code, "is not above the 4 iterations" in low.err) == (2, True)
    named = asks.call("resume", "one", "--max-iterations", "9", "--loop", "plan")
    assert (named.code, "did you mean 'plain'" in named.err) == (2, True)
    assert asks.call("resume", "one", "--max-usd", "1").code == 3
    assert asks.call("resume", "one", "--max-iterations", "9", "--json").json["iterations"] == 5


def test_a_rewound_iteration_is_given_another_input(asks: Project) -> None:
    """rewind LOOP/K --input sets round K aside and gives it that input at the next resume."""
    asks.call("run", "asks:plain", "--input", "x", "--run-id", "one")
    done = asks.call("rewind", "one", "plain/2", "--input", "edited")
    assert (done.code, "plain/2 will run with the new input" in done.out) == (0, True)
    result = asks.call("resume", "one", "--json").json
    history = result["loops"]["plain"]["history"]
    assert [row["input"] for row in history] == ["x", "edited"]
    wrong = asks.call("rewind", "one", "plain/2/execute", "--input", "x")
    assert (wrong.code, "use its path" in wrong.err) == (2, True)


def test_outputs_that_are_objects_are_compared_by_their_parts(asks: Project) -> None:
    """--diff shows a line per field, so that only what changed is marked."""
    asks.call("run", "asks:plain", "--input", "x", "--run-id", "one")
    lines = asks.call("show", "one", "--diff", "1", "2").out.splitlines()
    assert '-  "round": 1,' in lines
    assert '+  "round": 2,' in lines
    assert '-  "text": "x!"' in lines


class Keyboard(io.StringIO):
    """Lines that somebody types at a terminal."""

    def isatty(self) -> bool:
        return True


def test_at_a_terminal_the_answers_are_asked_for(
    asks: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A letter, an edit, or Enter to leave it open; a wrong answer is asked for again, and so is a text
    that is not confirmed: it is not recorded."""
    asks.call("run", "asks:two", "--run-id", "one")
    monkeypatch.setattr("sys.stdin", Keyboard("[1]\ny\n" + '{"to": "c"}\ny\n' + "\n" + "n\n"))
    code, shown = watched(monkeypatch, "approve", "one")
    assert code == 0
    assert shown.count("[y]es, [n]o, or other arguments") == 2
    assert "the question stays open" in shown
    assert shown.endswith("resume: loopwright resume one\n")
    monkeypatch.setattr("sys.stdin", Keyboard("oops\nn\nAnn\ny\ny\n"))
    code, shown = watched(monkeypatch, "approve", "one")
    assert code == 0
    assert asks.call("show", "one", "--json").json["output"] == {
        "sign": {"approve": True, "arguments": {"to": "c"}}, "name": "Ann",
    }  # fmt: skip


def test_a_resumed_run_does_not_ask_what_is_answered(asks: Project) -> None:
    """Of a question with an answer only the answer is told; an open one is told."""
    asks.call("run", "asks:two", "--input", "x", "--run-id", "one")
    said = asks.call("approve", "one", "two/sign/who", "--yes", "--resume").out
    assert "asks a person: call mail?" not in said
    assert "asks a person: what is your name?" in said
    said = asks.call("approve", "one", "two/name/name", "--value", "Ann", "--resume").out
    assert "asks a person" not in said
    assert "two/name/name: answer: Ann" in said


def test_an_edited_round_is_shown_as_edited(asks: Project) -> None:
    """The iteration, the differences and the table of exports have what a person made of it."""
    asks.call("run", "asks:both", "--input", "x", "--run-id", "one")
    asks.call("approve", "one", "--edit", '{"output": "mine", "feedback": "be brief"}', "--resume")
    shown = asks.call("show", "one", "--iteration", "1").out
    assert "output:\nmine\nfeedback:\nbe brief\n" in shown
    assert "-mine" in asks.call("show", "one", "--diff", "1", "2").out
    assert ",be brief,,mine," in asks.call("export", "one", "--format", "csv").out


def test_a_suspended_run_is_cancelled(asks: Project) -> None:
    """Issue 11: cancel ends a run that waits for a person; it then has no open question, and cannot be cancelled again."""
    asks.call("run", "asks:both", "--input", "x", "--run-id", "one")
    answer = asks.call("cancel", "one")
    assert (answer.code, answer.out) == (0, "one was suspended and is now cancelled\n")
    assert "has no open question" in asks.call("approve", "one").err
    assert (
        asks.call("cancel", "one").err == "loopwright: one is cancelled; no process is running it\n"
    )


def test_the_second_of_two_answers_is_told_so(asks: Project) -> None:
    """Issue 11: the first answer counts, and the sentence says who gave it."""
    asks.call("run", "asks:both", "--input", "x", "--run-id", "one")
    asks.call("approve", "one", "both/1/approve", "--yes")
    second = asks.call("approve", "one", "both/1/approve", "--no")
    assert second.code == 2
    assert "is answered already: " in second.err and "the first answer counts" in second.err


@pytest.mark.parametrize("option", ["--yes", "--no"])
def test_a_question_for_a_value_takes_no_yes(asks: Project, option: str) -> None:
    """The answer is a value, so a yes would be recorded as the wrong one; the question stays open."""
    asks.call("run", "asks:two", "--input", "x", "--run-id", "one")
    done = asks.call("approve", "one", "two/name/name", option)
    assert done.code == 2
    assert "two/name/name asks for a value. Use --value ANSWER." in done.err
    assert "two/name/name" in asks.call("approve", "one").out
