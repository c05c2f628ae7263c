"""Templates, lenient: what is undefined is empty, with a warning."""

from __future__ import annotations

import pytest
from templating import VALUES

from loopwright.templates import TemplateError, compile_template


@pytest.mark.parametrize(
    ("source", "expected", "warnings"),
    [
        ("a {{ d.zz.yy }} b", "a  b", ["there is no field 'zz'"]),
        ("{{ d.zz }}{{ name }}", "Ada", ["there is no field 'zz'"]),
        ("{{ nme|upper|trim }}", "", ["'nme' is not defined; did you mean 'name'?"]),
        (
            "{{ d.zz + 1 }}{{ 'a' ~ d.yy }}{{ -d.xx }}",
            "",
            ["there is no field 'zz'", "there is no field 'yy'", "there is no field 'xx'"],
        ),
        ("{{ name|replace('a', d.zz) }}{{ d.zz[1:] }}", "", ["there is no field 'zz'"]),
        ("{% for x in d.zz %}x{% else %}none{% endfor %}", "none", ["there is no field 'zz'"]),
        ("{% if d.zz %}x{% else %}y{% endif %}{{ d.zz or 'z' }}{{ 'n' if not d.zz }}", "yzn", []),
        (
            "{% if d.zz > 1 %}x{% endif %}{{ 1 < d.yy }}",
            "False",
            ["there is no field 'zz'", "there is no field 'yy'"],
        ),
        (
            "{{ d.zz is none }}{{ d.zz is defined }}{{ d.yy|default('x') }}",
            "Falsex",
            ["there is no field 'zz'"],
        ),
        ("{{ rows|map(attribute='in.w')|join('+') }}", "1+", ["there is no field 'in'"]),
        ("{{ rows|selectattr('in')|length }}", "1", ["there is no field 'in'"]),
        ("{{ [d.zz, 1] }}", '["", 1]', ["there is no field 'zz'"]),
        (
            "{{ same(d.zz) }}{{ nof(1) }}",
            "None",
            ["there is no field 'zz'", "'nof' is not defined"],
        ),
        ("{% for i in range(3) %}{{ d.zz }}{% endfor %}", "", ["there is no field 'zz'"]),
        ("{{ words|first }}{{ []|first }}", "b", ["first: the list is empty"]),
    ],
)
def test_lenient_leaves_what_is_undefined_empty(
    source: str, expected: str, warnings: list[str]
) -> None:
    """B29: something undefined empties its own expression only, with a warning for each."""
    template = compile_template(source, strict=False)
    rendered = template.render_noting(VALUES, {"same": lambda value: value})
    assert (rendered.text, list(rendered.warnings)) == (expected, warnings)


def test_lenient_is_about_the_undefined_only() -> None:
    """Other mistakes stay errors in lenient mode."""
    with pytest.raises(TemplateError, match="does not work on text and a number"):
        compile_template("{{ name - 1 }}", strict=False).render(VALUES)


def test_warnings_have_a_limit() -> None:
    """A loop over undefined things does not collect warnings without end."""
    template = compile_template(
        "{% for i in range(500) %}{{ d['z' ~ i] }}{% endfor %}", strict=False
    )
    assert len(template.render_noting(VALUES).warnings) == 100
