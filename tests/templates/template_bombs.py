"""Bombs: templates that try to cost too much time or memory, by what grows."""

from __future__ import annotations

NESTED = "{% set x = [] %}" + "{% set x = [x, x] %}" * 60
PAIRED = "{% set x = (1, 2) %}" + "{% set x = (x, x) %}" * 60
TWIN = NESTED + NESTED.replace(" x ", " y ").replace("[x, x]", "[y, y]")

# ScoreIndex without end.
LOOPS = {
    "two ranges": "{% for a in range(9999) %}{% for b in range(9999) %}x" + "{% endfor %}" * 2,
    "four ranges": "{% for a in range(99) %}" * 4 + "{% endfor %}" * 4,
    "five loops": "{% for a in items %}" * 5 + "{% endfor %}" * 5,
    "silent loops": "{% for a in many %}{% for b in many %}{% endfor %}{% endfor %}",
    "long loop body": "{% for a in many %}" + "{% if a %}{% endif %}" * 600 + "{% endfor %}",
    "range": "{{ range(10**9)|list }}",
    "range beyond machine words": "{{ range(10**18, 10**30)|length }}",
}

# Numbers that make much of little: repeated, raised, padded.
NUMBERS = {
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
}

# Values that double at each step.
DOUBLED = {
    "text doubled": "{% set x = 'ab' %}" + "{% set x = x ~ x %}" * 60 + "{{ x }}",
    "text added": "{% set x = 'ab' %}" + "{% set x = x + x %}" * 60 + "{{ x }}",
    "list doubled": "{% set x = [1] %}" + "{% set x = x + x %}" * 60 + "{{ x }}",
    "lists in lists, printed": NESTED + "{{ x }}",
    "lists in lists, as JSON": NESTED + "{{ x|tojson }}",
    "lists in lists, joined": NESTED + "{{ x|join }}",
    "lists in lists, compared": TWIN + "{{ x == y }}",
    "lists in lists, searched": TWIN + "{{ y in [x] }}",
    "lists in lists, tested": TWIN + "{{ x is eq y }}",
    "tuples as key": PAIRED + "{{ {x: 1} }}",
    "tuples as index": PAIRED + "{{ d[x] }}",
    "tuples, unique": PAIRED + "{{ [x]|unique }}",
    "lists nested deep": "{% set x = [] %}" + "{% set x = [x] %}" * 600 + "{{ x }}",
}

# Texts that grow.
TEXTS = {
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
}

# Work that is done again in every round.
WORK = {
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
    "literals in a loop": "{% for i in many %}" + "{%set x=[1,2,3,4,5,6]%}" * 260 + "{% endfor %}",
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
    "helper in a loop": "{% for i in many %}{% for j in many %}{{ fn() }}" + "{% endfor %}" * 2,
}

# What is kept, and long names.
KEPT = {
    "characters kept": "".join(f"{{% set a{i} = wide|list %}}" for i in range(200)),
    "wide text kept": "".join(f"{{% set a{i} = wide ~ {i} %}}" for i in range(380)),
    "slices kept": "".join(f"{{% set a{i} = wide[1:] %}}" for i in range(380)),
    "lists kept": "".join(f"{{% set a{i} = many + many %}}" for i in range(380)),
    "words kept": "".join(f"{{% set a{i} = wide.split() %}}" for i in range(380)),
    "pairs kept": "".join(f"{{% set a{i} = d.items() %}}" for i in range(380)),
    "long key": "{{ d[big] }}",
    "long attribute of map": "{{ rows|map(attribute=big) }}",
}

# Sources that are costly to read.
SOURCES = {
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
}

BOMBS: dict[str, str] = LOOPS | NUMBERS | DOUBLED | TEXTS | WORK | KEPT | SOURCES
