"""The completion marker of reasoning agents: every text has one reading, and it is the right one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.agents import completion

WRITTEN: list[tuple[str, str | None]] = [
    # Plain, and where the answer is.
    ("TASK_COMPLETE: 42", "42"),
    ("TASK_COMPLETE:42", "42"),
    ("TASK_COMPLETE : 42", "42"),
    ("TASK_COMPLETE:\uff142", "\uff142"),
    ("TASK_COMPLETE\uff1a 42", "42"),
    ("TASK_COMPLETE:\n42", "42"),
    ("TASK_COMPLETE:\n\n\n42\n", "42"),
    ("TASK_COMPLETE: a\nb\n\nc", "a\nb\n\nc"),
    ("TASK_COMPLETE: a\r\nb", "a\r\nb"),
    ("first\rTASK_COMPLETE: 42", "42"),
    ("  TASK_COMPLETE: 42", "42"),
    ("\tTASK_COMPLETE: 42", "42"),
    ("\ufeffTASK_COMPLETE: 42", "42"),
    ("\u200bTASK_COMPLETE: 42", "42"),
    ("task_complete: 42", "42"),
    ("Task_Complete: 42", "42"),
    ("tASK_cOMPLETE: 42", "42"),
    ("TASK\\_COMPLETE: 42", "42"),
    ("TASK_COMPLETE: TASK_COMPLETE: 42", "TASK_COMPLETE: 42"),
    # Not the marker.
    ("", None),
    ("42", None),
    ("TASK_COMPLETE", None),
    ("TASK_COMPLETE 42", None),
    ("TASK_COMPLETED: 42", None),
    ("TASK COMPLETE: 42", None),
    ("TASK-COMPLETE: 42", None),
    ("TASKCOMPLETE: 42", None),
    ("MY_TASK_COMPLETE: 42", None),
    ("TASK__COMPLETE: 42", None),
    ("\uff34ASK_COMPLETE: 42", None),
    ("TA\u017fK_COMPLETE: 42", None),
    ("TASK_COMPLETE; 42", None),
    ("TASK_COMPLETE = 42", None),
    # Talked about.
    ("I will end with TASK_COMPLETE: 42", None),
    ('The user wants "TASK_COMPLETE: [answer]" at the end.', None),
    ("so TASK_COMPLETE: is what I write", None),
    ("1. TASK_COMPLETE: 42", None),
    ("- TASK_COMPLETE: 42", None),
    ("* TASK_COMPLETE: 42", None),
    ("+ TASK_COMPLETE: 42", None),
    ("> TASK_COMPLETE: 42", None),
    ("> > TASK_COMPLETE: 42", None),
    ("// TASK_COMPLETE: 42", None),
    ("<b>TASK_COMPLETE: 42</b>", None),
    ("{TASK_COMPLETE: 42}", None),
    ("Answer: TASK_COMPLETE: 42", None),
    ("| TASK_COMPLETE: 42 |", None),
    # Code.
    ("```\nTASK_COMPLETE: 42\n```", None),
    ("```text\nTASK_COMPLETE: 42\n```\nnot yet", None),
    ("~~~\nTASK_COMPLETE: 42\n~~~", None),
    ("~~~\n```\nTASK_COMPLETE: 42\n~~~", None),
    ("````\n```\nTASK_COMPLETE: 42\n```\n````", None),
    ("```\nnever closed\nTASK_COMPLETE: 42", None),
    ("```\n``` still\nTASK_COMPLETE: 42\n```", None),
    ("  ```\n  TASK_COMPLETE: 42\n  ```", None),
    ("```\ncode\n```\nTASK_COMPLETE: 42", "42"),
    ("```\ncode\n`````\nTASK_COMPLETE: 42", "42"),
    ("``` inline ``` text\nTASK_COMPLETE: 42", "42"),
    ("TASK_COMPLETE:\n```python\nx = 1\n```", "```python\nx = 1\n```"),
    ("TASK_COMPLETE: use this\n```\nTASK_COMPLETE: no\n```", "use this\n```\nTASK_COMPLETE: no\n```"),
    ("`TASK_COMPLETE: 42`", "42"),
    # Decoration.
    ("**TASK_COMPLETE: 42**", "42"),
    ("**TASK_COMPLETE:** 42", "42"),
    ("**TASK_COMPLETE**: 42", "42"),
    ("***TASK_COMPLETE:*** 42", "42"),
    ("__TASK_COMPLETE:__ 42", "42"),
    ("_TASK_COMPLETE: 42_", "42"),
    ("*TASK_COMPLETE: 42*", "42"),
    ("~~TASK_COMPLETE: 42~~", "42"),
    ("## TASK_COMPLETE: 42", "42"),
    ("### **TASK_COMPLETE:** 42", "42"),
    ('"TASK_COMPLETE: 42"', "42"),
    ("'TASK_COMPLETE: 42'", "42"),
    ("\u201cTASK_COMPLETE: 42\u201d", "42"),
    ("«TASK_COMPLETE: 42»", "42"),
    ("[TASK_COMPLETE: 42]", "42"),
    ("(TASK_COMPLETE: 42)", "42"),
    ("[TASK_COMPLETE: [42]]", "42"),
    ("**TASK_COMPLETE: [42]**", "42"),
    ("TASK_COMPLETE: **42**", "42"),
    ("TASK_COMPLETE:**42**", "42"),
    ("TASK_COMPLETE: **[42]**", "42"),
    ("TASK_COMPLETE: the **best** one", "the **best** one"),
    ("TASK_COMPLETE: **a** and **b**", "**a** and **b**"),
    ("TASK_COMPLETE: snake_case_", "snake_case_"),
    ("**TASK_COMPLETE: a **bold** word**", "a **bold** word"),
    ('TASK_COMPLETE: "42"', '"42"'),
    # Brackets.
    ("TASK_COMPLETE: [42]", "42"),
    ("TASK_COMPLETE: [ 42 ]", "42"),
    ("TASK_COMPLETE: [[1, 2], [3]]", "[[1, 2], [3]]"),
    ("TASK_COMPLETE: [a] or [b]", "[a] or [b]"),
    ("TASK_COMPLETE: [a", "[a"),
    ("TASK_COMPLETE: a]", "a]"),
    ("TASK_COMPLETE: [a]\nb", "[a]\nb"),
    ("TASK_COMPLETE: [a\nb]", "a\nb"),
    ("TASK_COMPLETE: (42)", "(42)"),
    ("TASK_COMPLETE: {\"a\": [1]}", '{"a": [1]}'),
    # Empty.
    ("TASK_COMPLETE:", None),
    ("TASK_COMPLETE:   \n \n", None),
    ("TASK_COMPLETE: []", None),
    ("TASK_COMPLETE: [ ]", None),
    ("TASK_COMPLETE: **", None),
    ("**TASK_COMPLETE:**", None),
    ('TASK_COMPLETE: ""', None),
    ("TASK_COMPLETE: \u200b", None),
    ("TASK_COMPLETE: 0", "0"),
    ("TASK_COMPLETE: .", "."),
    ("TASK_COMPLETE: No", "No"),
    # Twice.
    ("TASK_COMPLETE: 1\nTASK_COMPLETE: 2", "2"),
    ("TASK_COMPLETE: 1\nno, wait\nTASK_COMPLETE: 2\nsure", "2\nsure"),
    ("TASK_COMPLETE: 1\nTASK_COMPLETE:", None),
    ("TASK_COMPLETE: 1\n```\nTASK_COMPLETE: 2\n```", "1\n```\nTASK_COMPLETE: 2\n```"),
    ("TASK_COMPLETE: 1\nas I said, TASK_COMPLETE: 2", "1\nas I said, TASK_COMPLETE: 2"),
]  # fmt: skip

MARKERS = ["TASK_COMPLETE:", "task_complete:", "Task_Complete:", "TASK\\_COMPLETE:"]
BEFORE = [
    "",
    "Let me think.\n",
    "6 x 7\n\nTherefore:\n",
    "```\nTASK_COMPLETE: wrong\n```\n",
    "TASK_COMPLETE: old\n",
]
ANSWERS = ["42", "It is 42.", "line one\nline two", "- a\n- b", "ein Wort: schön", "[x](http://y)"]
COUNTED = [
    "{m} {a}",
    "{m} [{a}]",
    "**{m}** {a}",
    "## {m} {a}",
    "   {m}\n{a}",
    '"{m} {a}"',
    "**{m} {a}**",
]
TALKED = [
    "I should write {m} {a}", "> {m} {a}", "- {m} {a}", "```\n{m} {a}\n```", "say `{m} {a}`",
    "~~~~\n{m} {a}\n~~~~", "the marker is '{m} {a}'",
]  # fmt: skip
QUIET = ["", "Let me think.\n", "6 x 7\n\nTherefore:\n", "```\nx\n```\n"]


def generated() -> Iterator[tuple[str, str | None]]:
    """Every marker, decoration and answer after every beginning; and the same only talked about."""
    for marker, start, answer, form in itertools.product(MARKERS, BEFORE, ANSWERS, COUNTED):
        yield start + form.format(m=marker, a=answer), answer
    for marker, start, form in itertools.product(MARKERS, QUIET, TALKED):
        yield start + form.format(m=marker, a="42"), None


VARIANTS = [*WRITTEN, *generated()]


def test_there_are_at_least_five_hundred_variants() -> None:
    """The table is as large as it is meant to be, and no text is in it with two readings."""
    assert len({text for text, _ in VARIANTS}) >= 500
    assert len({text for text, _ in VARIANTS}) == len(dict(VARIANTS))


@pytest.mark.parametrize(("text", "answer"), WRITTEN)
def test_a_marker_is_read_as_it_is_meant(text: str, answer: str | None) -> None:
    """The last line-initial marker outside of code gives the rest of the message as the answer."""
    assert completion(text) == answer


def test_no_generated_variant_is_read_wrong() -> None:
    """Case, place, emphasis, quotes, brackets and code in every combination: 0 wrong."""
    wrong = [(t, completion(t), a) for t, a in VARIANTS if completion(t) != a]
    assert wrong == []


def test_a_quoted_prompt_is_not_an_answer() -> None:
    """A marker in the prompt that the reply repeats whole does not count; one of its own does."""
    prompt = "Reply with a line\nTASK_COMPLETE: done\nwhen you are."
    echo = f"You asked:\n{prompt}\nLet me see."
    assert completion(echo) == "done\nwhen you are.\nLet me see."
    assert completion(echo, prompt) is None
    assert completion(f"{echo}\nTASK_COMPLETE: now", prompt) == "now"
    assert completion("TASK_COMPLETE: done", prompt) == "done"


@given(st.text(alphabet=st.sampled_from("TASK_COMPLETE: \n`~*_\"'[]()#>-42\r\ufeff"), max_size=200))
def test_every_text_has_one_reading(text: str) -> None:
    """Reading never fails, never gives a blank answer, and never changes on a second look."""
    answer = completion(text)
    assert answer is None or answer.strip()
    assert completion(text) == answer


@given(st.text(max_size=60), st.text(max_size=60))
def test_text_without_a_marker_never_completes(before: str, after: str) -> None:
    """What does not hold the word cannot complete a task."""
    text = before + after
    assert completion(text) is None or "complete" in text.lower()


@pytest.mark.parametrize(
    "sign", [" ", "*", "`", "[", '"', "\n", "#", "\t", "TASK_COMPLETE", "```\n"]
)
def test_a_long_reply_is_read_in_one_pass(sign: str) -> None:
    """Half a million characters of anything are read: no pattern goes back over them again and again."""
    assert completion(sign * (500_000 // len(sign))) is None
