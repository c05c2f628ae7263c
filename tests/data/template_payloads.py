"""Hostile templates: escapes that try to reach out, and bombs that try to cost too much.

Each payload is a name and a template source. `run_all` renders every one in a process of its own
and reports how it ended; run as a script it prints these reports as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from loopwright.templates import TemplateError, TemplateValue, compile_template

CANARY = "canary-3f1c"
CPU_SECONDS = 20
MEMORY_BYTES = 2 * 1024**3
WATCHED = ("open", "exec", "import", "os.", "subprocess.", "socket.", "ctypes.", "shutil.", "pty.")


class Host:
    """A callable that holds a secret, as a careless caller may pass one."""

    api_key = CANARY

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        return "called"


def values() -> dict[str, Any]:
    """What the payloads are rendered with."""
    return {
        "name": "Ada",
        "items": [3, 1, 2],
        "d": {"a": 1, "b": {"c": [1, 2]}},
        "rows": [{"k": "x", "v": 1}, {"k": "y", "v": 2}],
        "obj": TemplateValue("text", {"response": "r"}),
        "big": "ab c " * 20_000,
        "wide": "\U0001f600 é" * 20_000,
        "many": list(range(10_000)),
        "deep": [{"n": {"n": {"n": {"n": 1}}}}] * 1000,
        "second": "{{ fn.api_key }}{% for i in range(9) %}x{% endfor %}",
    }


ESCAPES: dict[str, str] = {
    "class walk": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "class by item": "{{ ''['__class__']['__mro__'] }}",
    "class by computed item": "{{ ''['__cl' ~ 'ass__'] }}",
    "class of a value": "{{ name.__class__ }}",
    "class of a list": "{{ [].__class__.__base__ }}",
    "class of a mapping": "{{ {}.__class__ }}",
    "class of a number": "{{ 1 .__class__ }}",
    "class of null": "{{ none.__class__ }}",
    "attribute of a number": "{{ items[0].real }}",
    "class of a tuple": "{{ (1, 2).__class__.__bases__ }}",
    "attr filter": "{{ ''|attr('__class__') }}",
    "attr filter, mapped": "{{ ['x']|map('attr', '__class__')|list }}",
    "attribute of map": "{{ ['x']|map(attribute='__class__')|list }}",
    "attribute of sort": "{{ items|sort(attribute='__class__') }}",
    "attribute of sum": "{{ items|sum(attribute='real') }}",
    "attribute of join": "{{ items|join(',', attribute='__doc__') }}",
    "attribute of selectattr": "{{ rows|selectattr('__class__')|list }}",
    "attribute of unique": "{{ items|unique(attribute='__class__') }}",
    "groupby": "{{ items|groupby('__class__') }}",
    "self": "{{ self.__init__.__globals__ }}",
    "self, private": "{{ self._TemplateReference__context }}",
    "cycler": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "lipsum": "{{ lipsum.__globals__['os'].system('id') }}",
    "joiner": "{{ joiner.__init__.__globals__.os }}",
    "namespace": "{{ namespace.__init__.__globals__ }}",
    "namespace, made": "{% set ns = namespace(x=1) %}{{ ns.x }}",
    "namespace, set": "{% set d.a = 2 %}",
    "dict global": "{{ dict.__base__ }}",
    "range": "{{ range.__class__ }}",
    "builtins": "{{ __builtins__ }}",
    "context": "{{ context.environment }}",
    "environment": "{{ environment.globals }}",
    "flask request": "{{ request.application.__globals__ }}",
    "flask config": "{{ config.items() }}",
    "meter": "{{ ['~meter'] }}{{ context['~meter'] }}",
    "function globals": "{{ fn.__globals__ }}",
    "function code": "{{ fn.__code__.co_consts }}",
    "function attribute": "{{ fn.api_key }}",
    "function item": "{{ fn['api_key'] }}",
    "function call of call": "{{ fn.__call__(1) }}",
    "function printed": "{{ fn }}",
    "function as text": "{{ fn|string }}",
    "function joined": "{{ fn ~ '' }}",
    "function as JSON": "{{ [fn]|tojson }}",
    "function as item": "{{ {'f': fn}.f.api_key }}",
    "function as argument": "{{ fn(fn) }}",
    "function given on": "{{ [fn]|map(attribute='api_key')|list }}",
    "result called": "{{ fn()() }}",
    "result's attribute": "{{ fn().__class__ }}",
    "method object": "{{ name.upper.__self__ }}",
    "method of item": "{{ name['upper']() }}",
    "value's own fields": "{{ obj.text }}{{ obj.fields }}",
    "value's dict": "{{ obj.__dict__ }}",
    "CVE-2016-10745 format": "{{ '{0.__class__}'.format(1) }}",
    "CVE-2019-10906 format_map": "{{ '{a.__class__}'.format_map({'a': 1}) }}",
    "CVE-2024-56326 indirect format": "{% set f = '{0.__class__}'.format %}{{ f(1) }}",
    "CVE-2024-56326 format in list": "{{ (['{0.__class__}'.format]|first)(1) }}",
    "CVE-2025-27516 attr format": "{{ ('{0.__class__}'|attr('format'))(1) }}",
    "CVE-2024-22195 xmlattr": "{{ {'a onload=x': 1}|xmlattr }}",
    "CVE-2024-56201 file name": "{% include 'x\\nimport os' %}",
    "format filter": "{{ '%s'|format(fn) }}",
    "percent": "{{ '%s' % fn }}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}{{ os }}",
    "from import": "{% from 'os' import system %}",
    "extends": "{% extends '/etc/passwd' %}",
    "block": "{% block b %}{{ super() }}{% endblock %}",
    "macro": "{% macro m() %}{{ caller.__globals__ }}{% endmacro %}{{ m() }}",
    "call": "{% call fn() %}x{% endcall %}",
    "filter block": "{% filter upper %}x{% endfilter %}",
    "do": "{% do items.append(1) %}",
    "autoescape": "{% autoescape true %}x{% endautoescape %}",
    "debug": "{% debug %}",
    "trans": "{% trans %}x{% endtrans %}",
    "star arguments": "{{ fn(*items) }}",
    "double star arguments": "{{ fn(**d) }}",
    "keyword context": "{{ fn(context=1, environment=2).__class__ }}",
    "list changed": "{{ items.append(4) }}",
    "list emptied": "{{ items.clear() }}",
    "mapping changed": "{{ d.update({'a': 2}) }}",
    "mapping default set": "{{ d.setdefault('x', 1) }}",
    "loop class": "{% for i in items %}{{ loop.__class__ }}{% endfor %}",
    "loop private": "{% for i in items %}{{ loop._iterator }}{% endfor %}",
    "loop printed": "{% for i in items %}{{ loop }}{% endfor %}",
    "loop called": "{% for i in items %}{{ loop(items) }}{% endfor %}",
    "loop changed": "{% for i in items %}{{ loop.changed.__globals__ }}{% endfor %}",
    "loop given on": "{% for i in items %}{{ fn(loop) }}{% endfor %}",
    "recursive loop": "{% for i in items recursive %}{{ loop(items) }}{% endfor %}",
    "generator frame": "{{ (items|select).gi_frame }}",
    "undefined class": "{{ nothing.__class__.__init__.__globals__ }}",
    "undefined field's class": "{{ d.zzz.__init__.__globals__ }}",
    "undefined's own": "{{ nothing._undefined_exception }}",
    "caller": "{{ caller() }}",
    "varargs": "{{ varargs }}{{ kwargs }}",
    "compatibility letters": "{{ name.__\u217dlass__ }}",
    "compatibility name": "{{ \u017felf }}",
    "lone surrogate": "{{ '\\ud800' }}",
    "test with callable": "{{ fn is callable }}",
    "map of select": "{{ [items]|map('select', 'callable')|list }}",
}


def _bombs() -> dict[str, str]:
    nested = "{% set x = [] %}" + "{% set x = [x, x] %}" * 60
    paired = "{% set x = (1, 2) %}" + "{% set x = (x, x) %}" * 60
    twin = nested + nested.replace(" x ", " y ").replace("[x, x]", "[y, y]")
    return {
        "two ranges": "{% for a in range(9999) %}{% for b in range(9999) %}x" + "{% endfor %}" * 2,
        "four ranges": "{% for a in range(99) %}" * 4 + "{% endfor %}" * 4,
        "five loops": "{% for a in items %}" * 5 + "{% endfor %}" * 5,
        "silent loops": "{% for a in many %}{% for b in many %}{% endfor %}{% endfor %}",
        "long loop body": "{% for a in many %}" + "{% if a %}{% endif %}" * 600 + "{% endfor %}",
        "range": "{{ range(10**9)|list }}",
        "range beyond machine words": "{{ range(10**18, 10**30)|length }}",
        "text times": "{{ 'a' * 10**9 }}",
        "times text": "{{ 10**9 * 'a' }}",
        "list times": "{{ [1] * 10**9 }}",
        "times twice": "{% set a = 'a' * 999 %}{{ a * 999 }}",
        "power": "{{ 9**9**9 }}",
        "power in steps": "{% set a = 2 %}" + "{% set a = a * a %}" * 64 + "{{ a }}",
        "power of a fraction": "{{ 1.5**99999999 }}",
        "complex power": "{{ (-8)**0.5 }}",
        "endless number": "{{ 1e999 }}",
        "long number": "{{ " + "9" * 5000 + " }}",
        "padding by percent": "{{ '%999999999d' % 1 }}",
        "padding by format": "{{ '{:>999999999}'.format(1) }}",
        "center": "{{ 'a'|center(900000000) }}",
        "ljust": "{{ 'a'.ljust(900000000) }}",
        "rjust": "{{ 'a'.rjust(900000000) }}",
        "zfill": "{{ 'a'.zfill(900000000) }}",
        "expandtabs": "{{ '\t'.expandtabs(900000000) }}",
        "center method": "{{ 'a'.center(900000000) }}",
        "indent": "{{ 'a'|indent(900000000, true) }}",
        "indent by text": "{{ ('\n' * 999)|indent(big) }}",
        "JSON indent": "{{ items|tojson(indent=900000000) }}",
        "round": "{{ 1.5|round(900000000) }}",
        "text doubled": "{% set x = 'ab' %}" + "{% set x = x ~ x %}" * 60 + "{{ x }}",
        "text added": "{% set x = 'ab' %}" + "{% set x = x + x %}" * 60 + "{{ x }}",
        "list doubled": "{% set x = [1] %}" + "{% set x = x + x %}" * 60 + "{{ x }}",
        "lists in lists, printed": nested + "{{ x }}",
        "lists in lists, as JSON": nested + "{{ x|tojson }}",
        "lists in lists, joined": nested + "{{ x|join }}",
        "lists in lists, compared": twin + "{{ x == y }}",
        "lists in lists, searched": twin + "{{ y in [x] }}",
        "lists in lists, tested": twin + "{{ x is eq y }}",
        "tuples as key": paired + "{{ {x: 1} }}",
        "tuples as index": paired + "{{ d[x] }}",
        "tuples, unique": paired + "{{ [x]|unique }}",
        "lists nested deep": "{% set x = [] %}" + "{% set x = [x] %}" * 600 + "{{ x }}",
        "replace": "{% set x = 'a' * 999 %}{{ x|replace('a', x)|replace('a', x) }}",
        "replace nothing": "{{ big|replace('', big) }}",
        "replace method": "{{ big.replace('a', big) }}",
        "join": "{{ many|join(big) }}",
        "join method": "{{ big.join(many) }}",
        "output": "{% for i in many %}{{ big }}{% endfor %}",
        "fixed text": "{% for i in many %}" + "x" * 150_000 + "{% endfor %}",
        "captured": "{% set x %}{% for i in many %}{{ big }}{% endfor %}{% endset %}",
        "captured fixed text": "{% set x %}{% for i in many %}"
        + "x" * 9999
        + "{% endfor %}{% endset %}",
        "search in a loop": "{% for i in many %}{% if 'zz' in big %}{% endif %}{% endfor %}",
        "search, written out": "{%if'zz'in big%}{%endif%}" * 600,
        "sort in a loop": "{% for i in many %}{% set y = many|sort %}{% endfor %}",
        "unique in a loop": "{% for i in many %}{% set y = many|unique %}{% endfor %}",
        "split in a loop": "{% for i in many %}{% set y = big.split() %}{% endfor %}",
        "words in a loop": "{% for i in many %}{% set y = big|wordcount %}{% endfor %}",
        "title in a loop": "{% for i in many %}{% set y = wide|title %}{% endfor %}",
        "map in a loop": "{% for i in many %}{% set y = many|map('string') %}{% endfor %}",
        "select in a loop": "{% for i in many %}{% set y = many|select('odd') %}{% endfor %}",
        "sum in a loop": "{% for i in many %}{% set y = many|sum %}{% endfor %}",
        "slice in a loop": "{% for i in many %}{% set y = big[::-1] %}{% endfor %}",
        "fields in a loop": "{% for i in many %}"
        + ("{%if d" + ".b" * 40 + "%}{%endif%}") * 50
        + "{% endfor %}",
        "nothing printed in a loop": "{% for i in many %}" + "{{''}}" * 1_600 + "{% endfor %}",
        "literals in a loop": "{% for i in many %}"
        + "{%set x=[1,2,3,4,5,6]%}" * 260
        + "{% endfor %}",
        "sums in a loop": "{% for i in many %}" + "{%set x=a+a+a+a+a+a%}" * 300 + "{% endfor %}",
        "undefined in a loop": "{% for i in many %}{{ d.nothing }}{{ nothing }}{% endfor %}",
        "undefined, each other": "{% for i in many %}{{ d['nothing' ~ i] }}{% endfor %}",
        "starts in a loop": "{% for i in many %}{% set y = big.startswith(big) %}{% endfor %}",
        "strip in a loop": "{% for i in many %}{% set y = big.strip(wide) %}{% endfor %}",
        "strip few in a loop": "{% for i in many %}{% set y = big.strip(big[:60]) %}{% endfor %}",
        "equal in a loop": "{% for i in many %}{% set y = big == big ~ '' %}{% endfor %}",
        "in list in a loop": "{% for i in many %}{% set y = 'x' in many %}{% endfor %}",
        "field path": "{{ rows|map(attribute='a' ~ big.replace(' ', '.')) }}",
        "field path in a loop": "{% for i in many %}{% set y = deep|map(attribute='n.n.n') %}"
        "{% endfor %}",
        "range in a loop": "{% for i in many %}{% set y = range(10000) %}{% endfor %}",
        "result in a loop": "{% for i in many %}{% set y = rows_of() %}{% endfor %}",
        "helper in a loop": "{% for i in many %}{% for j in many %}{{ fn() }}"
        + "{% endfor %}" * 2,
        "characters kept": "".join(f"{{% set a{i} = wide|list %}}" for i in range(200)),
        "wide text kept": "".join(f"{{% set a{i} = wide ~ {i} %}}" for i in range(380)),
        "slices kept": "".join(f"{{% set a{i} = wide[1:] %}}" for i in range(380)),
        "lists kept": "".join(f"{{% set a{i} = many + many %}}" for i in range(380)),
        "words kept": "".join(f"{{% set a{i} = wide.split() %}}" for i in range(380)),
        "pairs kept": "".join(f"{{% set a{i} = d.items() %}}" for i in range(380)),
        "long key": "{{ d[big] }}",
        "long attribute of map": "{{ rows|map(attribute=big) }}",
        "many expressions": "{{a}}" * 40_000,
        "fewer expressions": "{{a}}" * 1_650,
        "many names": "".join(f"{{{{a{i}}}}}" for i in range(20_000)),
        "many conditions": "{% if a %}{% endif %}" * 9_000,
        "fewer conditions": "{% if a %}{% endif %}" * 700,
        "brackets": "{{ " + "(" * 90_000 + ")" * 90_000 + " }}",
        "square brackets": "{{ " + "[" * 90_000 + "]" * 90_000 + " }}",
        "nots": "{{ " + "not " * 40_000 + "a }}",
        "minuses": "{{ " + "-" * 150_000 + "1 }}",
        "sum of many": "{{ 1" + "+1" * 90_000 + " }}",
        "few sums": "{{ 1" + "+1" * 900 + " }}",
        "powers": "{{ 1" + "**1" * 60_000 + " }}",
        "filters": "{{ a" + "|d" * 90_000 + " }}",
        "fields": "{{ a" + ".b" * 90_000 + " }}",
        "items": "{{ a" + "[0]" * 60_000 + " }}",
        "ors": "{{ a" + " or a" * 30_000 + " }}",
        "comparisons": "{{ 1" + "<1" * 60_000 + " }}",
        "joins": "{{ a" + "~a" * 90_000 + " }}",
        "else-ifs": "{% if a %}" + "{% elif a %}" * 15_000 + "{% endif %}",
        "nested ifs": "{% if 1 %}" * 9_000 + "{% endif %}" * 9_000,
        "nested ifs, fewer": "{% if 1 %}" * 45 + "x" + "{% endif %}" * 45,
        "nested withs": "{% with a=1 %}" * 5_000 + "{% endwith %}" * 5_000,
        "inline ifs": "{{ " + "a if a else " * 15_000 + "a }}",
        "long list": "{{ [" + "1," * 90_000 + "] }}",
        "long mapping": "{{ {" + "1:1," * 45_000 + "} }}",
        "long text": "{{ '" + "\\u0041" * 30_000 + "' }}",
        "opened only": "{{" * 99_000,
        "comment opened only": "{#" * 99_000,
        "raw opened only": "{% raw %}" * 20_000,
        "tags of spaces": "{%" + " " * 190_000 + "%}",
        "stripped spaces": ("x" + " " * 90 + "\n") * 2_000
        + "{%- if 1 -%}"
        + " " * 9_000
        + "{%- endif %}",
        "too long": "x" * 200_001,
        "divided by nothing": "{{ 1 / 0 }}{{ 1 % 0 }}{{ 1 // 0.0 }}",
    }  # fmt: skip


BOMBS = _bombs()
PAYLOADS: dict[str, str] = {f"escape: {name}": source for name, source in ESCAPES.items()} | {
    f"bomb: {name}": source for name, source in BOMBS.items()
}


def render(source: str, *, strict: bool = True) -> tuple[str, str]:
    """Compile and render a payload: how it ended, and its text or the error."""
    helpers: dict[str, Callable[..., Any]] = {
        "fn": Host(),
        "rows_of": lambda: [{"n": 1, "t": "x"}] * 1000,
    }
    try:
        template = compile_template(source, strict=strict)
        return "rendered", template.render(values() | {"a": 1}, helpers)
    except TemplateError as error:
        return "refused", str(error)


def _report(source: str, strict: bool, events: list[str]) -> dict[str, Any]:
    events.clear()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun, used = time.perf_counter(), time.process_time()
    outcome, text = render(source, strict=strict)
    seconds = time.perf_counter() - begun
    processor = time.process_time() - used
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "outcome": outcome,
        "text": text[:400],
        "leaked": CANARY in text,
        "seconds": seconds,
        "processor_seconds": processor,
        "megabytes": grown / 1024,
        "events": [event for event in events if event != "exec"],
    }


def _in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do work in a forked process with limits, and return what it reports, or how it died."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        with os.fdopen(writer, "w") as out:
            out.write(json.dumps(work()))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if text else {"outcome": f"died with status {status}"}


def run_all(*, strict: bool = True) -> dict[str, dict[str, Any]]:
    """Render every payload in a process of its own, watched by an audit hook."""
    render("{% for i in items %}{{ i|string }}{{ fn('x') }}{% endfor %}")  # loads what loads late
    events: list[str] = []
    sys.addaudithook(
        lambda event, args: events.append(event) if event.startswith(WATCHED) else None
    )
    reports = {}
    for name, source in PAYLOADS.items():
        reports[name] = _in_child(partial(_report, source, strict, events))
    return reports


if __name__ == "__main__":
    json.dump(run_all(strict="--lenient" not in sys.argv), sys.stdout)
