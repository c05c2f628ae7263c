"""Templates: loops whose variable is called `loop`, and the value of that name outside of them."""

from __future__ import annotations

import pytest

from loopwright.templates import compile_template

ITEMS = [{"iteration": 1, "index": "i", "sub": [7, 8]}]


@pytest.mark.parametrize(
    ("source", "expected", "meaning"),
    [
        ("{% for loop in xs %}{{ loop.iteration }}{% endfor %}", "1", "the item"),
        ("{% for loop in xs %}{{ loop.iteration }}{{ loop.index }}{% endfor %}", "1i", "the item"),
        ("{% for loop in xs %}{{ loop['iteration'] }}{% endfor %}", "1", "the item"),
        ("{% for loop in [5, 6] %}{{ loop }}{% endfor %}", "56", "the item"),
        ("{% for loop in [5, 6] %}{{ loop.index }}{% endfor %}", "12", "that counter"),
        ("{% for loop in [5, 6] %}{{ loop.cycle('a', 'b') }}{% endfor %}", "ab", "that counter"),
        ("{% for loop in [5, 6] %}x{% endfor %}", "xx", "that counter"),
        ("{% for k, loop in {'a': 1}.items() %}{{ k }}{{ loop }}{% endfor %}", "a1", "the item"),
        ("{% for loop in [1, 5] if loop > 2 %}{{ loop }}{% endfor %}", "5", "the item"),
        ("{% for loop in [1, 5] if loop > 2 %}x{% endfor %}", "x", "the item"),
        (
            (
                "{% for loop in xs %}{% for s in loop.sub %}{{ loop.index }}"
                "{{ loop.iteration }}{{ s }} {% endfor %}{% endfor %}"
            ),
            "117 218 ",
            "the item",
        ),
        ("{% for loop in [] %}{% else %}{{ loop.last.output }}{% endfor %}", "out", "that counter"),
        (
            "{% for loop in [1] %}{% raw %}{{ loop }}{% endraw %}{{ 'for loop in' }}{% endfor %}",
            "{{ loop }}for loop in",
            "that counter",
        ),
        (
            (
                "{% for loop in [3] %}{% with loop = 4 %}{{ loop.x|d }}{% endwith %}{{ loop + 1 }}"
                "{% endfor %}"
            ),
            "4",
            "the item",
        ),
        ("{% for loop in [3] %}{{ loop_item }}{{ loop }}{% endfor %}", "mine3", "the item"),
    ],
)
def test_a_loop_variable_called_loop_is_renamed(source: str, expected: str, meaning: str) -> None:
    """`{% for loop in … %}` works: used as data it is the item, else Jinja's counter."""
    template = compile_template(source)
    values = {"xs": ITEMS, "loop": {"last": {"output": "out"}}, "loop_item": "mine"}
    assert template.render(values) == expected
    assert template.notes == (
        (
            "line 1: 'loop' is the name of Jinja's own counter, so the variable of "
            f"{{% for loop in … %}} was renamed; inside, 'loop' means {meaning}"
        ),
    )


def test_loops_called_loop_inside_each_other_keep_apart() -> None:
    """Each such loop has its own item; the inner list is an item of the outer one."""
    inner = "{% for loop in loop.sub %}{{ loop }}{% endfor %}"
    source = "{% for loop in xs %}" + inner + "{{ loop.iteration }}{% endfor %}"
    template = compile_template(source)
    assert template.render({"xs": ITEMS}) == "781"
    assert len(template.notes) == 2


def test_an_outer_loop_value_is_there_outside_of_loops() -> None:
    """The name `loop` is free at the top level, and can be kept under another name."""
    inner = "{% for x in [1] %}{{ loop.index }}{{ outer.n }}{% endfor %}"
    source = "{{ loop.n }}{% set outer = loop %}" + inner
    template = compile_template(source)
    assert template.names == {"loop"}
    assert template.render({"loop": {"n": 9}}) == "919"
    assert template.notes == ()
