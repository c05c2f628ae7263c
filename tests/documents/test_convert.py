"""Native documents printed as YAML read back as the same document."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loopwright.documents.load import to_native_yaml
from loopwright.documents.schema.document import Document
from loopwright.documents.yaml.reader import read

texts = st.one_of(
    st.text(max_size=30),
    st.text(alphabet="ab \n\t:-#|>{}[]'\"%&*!?,=<", max_size=30),
    st.sampled_from(
        ["yes", "no", "1.10", "012", "0o17", "0x1f", "~", "null", "", " ", "\n", "a\n\n", "a\n \nb",
         " x\n y", "- a", "a: b", "#", "1:30", ".inf", "<<", "=", "2026-01-07", "x\n- y\n", "…é😀", "\x85a"],
    ),
)  # fmt: skip
names = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_. -]{0,10}\Z").map(str.strip)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
clean = texts.filter(lambda t: "\0" not in t and not any("\ud800" <= c <= "\udfff" for c in t))


def _readable(value: Any) -> bool:
    """Whether a value can be in a document at all: no half characters, no NUL, plain keys."""
    if isinstance(value, str):
        return "\0" not in value and not any("\ud800" <= c <= "\udfff" for c in value)
    if isinstance(value, dict):
        return all(_readable(k) and _readable(v) for k, v in value.items())
    return all(_readable(v) for v in value) if isinstance(value, list) else True


actions = st.one_of(
    st.builds(lambda text: {"prompt": text}, clean),
    st.builds(lambda value: {"set": value}, values.filter(_readable)),
    st.builds(lambda a, b: {"workflow": a, "with": b}, clean, st.dictionaries(clean, values.filter(_readable), max_size=3)),
    st.builds(lambda a: {"shell": a}, st.lists(clean, min_size=1, max_size=3)),
    st.builds(lambda a, b: {"loop": {"execute": {"prompt": a}, "until": [{"score_at_least": 0.5}, b]}}, clean, clean),
    st.builds(lambda a: {"each": {"items": a, "execute": {"set": "{{ loop.current }}"}}}, values.filter(_readable)),
)  # fmt: skip
steps = st.builds(
    lambda name, action, needs, condition: {
        "name": name or "x", **action, **({"needs": needs} if needs else {}), **({"if": condition} if condition else {}),
    },
    names, actions, st.lists(names, max_size=3), st.none() | clean,
)  # fmt: skip
documents = st.builds(
    lambda name, text, given, inner, output: {
        "schema": "loopwright/1", "name": name or "x", "description": text, "steps": inner,
        **({"env": given} if given else {}), **({"output": output} if output else {}),
    },
    names, clean, st.dictionaries(clean, clean, max_size=3), st.lists(steps, min_size=1, max_size=3), st.none() | names,
)  # fmt: skip


@given(documents)
def test_what_is_printed_reads_back_as_the_same(data: dict[str, Any]) -> None:
    """Every document, whatever its texts hold, is the same after printing and reading."""
    document = Document.model_validate(data)
    text = to_native_yaml(document)
    again = Document.model_validate(read(text, "printed.yaml").value)
    assert again == document
    assert to_native_yaml(again) == text


def test_it_reads_as_people_write() -> None:
    """Names first, conditions and needs before the action, lists of names on a line, long text as a block."""
    document = Document.model_validate(
        {
            "schema": "loopwright/1", "name": "show", "version": "1.10", "models": ["a:m", "b:m"],
            "steps": [
                {"prompt": "one line", "name": "first"},
                {
                    "loop": {"execute": {"workflow": "child", "with": {"name": "N", "if": "x"}}, "until": "passed"},
                    "if": "first == 'yes'", "needs": ["first"], "otherwise": "", "name": "second",
                },
                {"name": "third", "prompt": "two\nlines\n"},
            ],
            "output": "second",
        }
    )  # fmt: skip
    assert to_native_yaml(document) == (
        "schema: loopwright/1\n"
        "name: show\n"
        'version: "1.10"\n'
        "models: ['a:m', 'b:m']\n"
        "\n"
        "steps:\n"
        "  - name: first\n"
        "    prompt: one line\n"
        "\n"
        "  - name: second\n"
        "    needs: [first]\n"
        "    if: first == 'yes'\n"
        "    loop:\n"
        "      execute:\n"
        "        workflow: child\n"
        "        with:\n"
        "          name: N\n"
        "          if: x\n"
        "      until: passed\n"
        '    otherwise: ""\n'
        "\n"
        "  - name: third\n"
        "    prompt: |\n"
        "      two\n"
        "      lines\n"
        "\n"
        "output: second\n"
    )
