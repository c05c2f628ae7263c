"""How resumes look: text, HTML and PDF, each layout as a function of a person."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Callable

from pdf import Line, page
from people import Person

# Section names and words, by language: skills, experience, education, today.
WORDS = {
    "en": ("Skills", "Experience", "Education", "present"),
    "de": ("Kenntnisse", "Berufserfahrung", "Ausbildung", "heute"),
    "fr": ("Compétences", "Expérience professionnelle", "Formation", "aujourd'hui"),
    "es": ("Habilidades", "Experiencia laboral", "Formación académica", "actualidad"),
    "pt": ("Competências", "Experiência profissional", "Formação", "presente"),
    "it": ("Competenze", "Esperienza lavorativa", "Istruzione", "oggi"),
    "nl": ("Vaardigheden", "Werkervaring", "Opleiding", "heden"),
}
Draw = Callable[[Person], str | bytes]


def _span(person: Person, start: int, end: int, dash: str = " – ") -> str:
    return f"{start}{dash}{end or WORDS[person.language][3]}"


def _contact(person: Person, between: str) -> str:
    return between.join(part for part in (person.email, person.phone) if part)


def text_classic(person: Person) -> str:
    """Headings in capitals, a job's dates after it, what was done in bullets."""
    skills, jobs, schools, _ = WORDS[person.language]
    lines = [person.name, _contact(person, "\n"), "", jobs.upper()]
    for title, company, start, end in person.jobs:
        lines += [
            f"{title}, {company}  {_span(person, start, end)}",
            "  - Kept promises, on time",
            "",
        ]
    lines += [skills.upper(), person.skills, "", schools.upper()]
    lines += [f"{degree}, {school}, {year}" for degree, school, year in person.schools]
    return "\n".join(lines) + "\n"


def text_underlined(person: Person) -> str:
    """Underlined headings, dates first, the name in capitals."""
    skills, jobs, schools, _ = WORDS[person.language]
    lines = [person.name.upper(), _contact(person, " - "), ""]
    lines += [jobs, "=" * len(jobs)]
    for title, company, start, end in person.jobs:
        lines += [f"{_span(person, start, end, '-')} : {title}", f"    {company}"]
    lines += ["", skills, "=" * len(skills), *(f"* {s.strip()}" for s in person.skills.split(","))]
    lines += ["", schools, "=" * len(schools)]
    lines += [f"{year} : {degree}\n    {school}" for degree, school, year in person.schools]
    return "\n".join(lines) + "\n"


def text_compact(person: Person) -> str:
    """A line for each thing, with its label before it."""
    skills, jobs, schools, _ = WORDS[person.language]
    told = "; ".join(f"{t} ({c}, {_span(person, a, b, '-')})" for t, c, a, b in person.jobs)
    learned = "; ".join(f"{degree} ({school}, {year})" for degree, school, year in person.schools)
    return (
        f"{person.name} | {_contact(person, ' | ')}\n{skills}: {person.skills}\n"
        f"{jobs}: {told}\n{schools}: {learned}\n"
    )


def text_prose(person: Person) -> str:
    """No sections at all: a letter about oneself."""
    first, *earlier = person.jobs
    told = [f"My name is {person.name}."]
    told.append(f"I have been working as {first[0]} at {first[1]} since {first[2]}.")
    told += [f"Before that I was {t} at {c} from {a} to {b}." for t, c, a, b in earlier]
    told += [f"I hold a {d} from {s} ({y})." for d, s, y in person.schools]
    *some, last = [item.strip() for item in person.skills.split(",")]
    told.append(f"Every day I use {', '.join(some)} and {last}.")
    told.append(f"You reach me at {_contact(person, ' or ')}.")
    return textwrap.fill(" ".join(told), 72) + "\n"


def text_columns(person: Person) -> str:
    """Two columns of text: contact and skills on the left, the rest on the right."""
    skills, jobs, schools, _ = WORDS[person.language]
    left = [
        *_contact(person, "\n").split("\n"),
        "",
        skills,
        *map(str.strip, person.skills.split(",")),
    ]
    right = [jobs]
    for title, company, start, end in person.jobs:
        right += [title, company, _span(person, start, end), ""]
    right += [schools, *(part for degree, school, _ in person.schools for part in (degree, school))]
    rows = max(len(left), len(right))
    left += [""] * (rows - len(left))
    right += [""] * (rows - len(right))
    pairs = zip(left, right, strict=True)
    return f"{person.name}\n\n" + "\n".join(f"{a:<34}{b}".rstrip() for a, b in pairs) + "\n"


def text_labels(person: Person) -> str:
    """A form that was filled in."""
    skills, jobs, schools, _ = WORDS[person.language]
    lines = ["CURRICULUM VITAE", "", f"Nome: {person.name}", f"E-mail: {person.email}"]
    lines += [f"Telefono: {person.phone}", "", f"{skills}:", person.skills, "", f"{jobs}:"]
    for title, company, start, end in person.jobs:
        lines += [_span(person, start, end), f"{title} presso {company}"]
    lines += ["", f"{schools}:", *(f"{d} - {s} ({y})" for d, s, y in person.schools)]
    return "\n".join(lines) + "\n"


def text_markdown(person: Person) -> str:
    """Markdown, as from a web page's editor."""
    skills, jobs, schools, _ = WORDS[person.language]
    lines = [f"# {person.name}", "", _contact(person, " · "), "", f"## {skills}", ""]
    lines += [f"- {item.strip()}" for item in person.skills.split(",")]
    lines += ["", f"## {jobs}", ""]
    for title, company, start, end in person.jobs:
        lines += [f"**{title}**, *{company}* ({_span(person, start, end)})", ""]
    lines += [f"## {schools}", "", *(f"**{d}**, *{s}* ({y})" for d, s, y in person.schools)]
    return "\n".join(lines) + "\n"


def text_pipes(person: Person) -> str:
    """Everything between bars, months spelled out."""
    skills, jobs, schools, today = WORDS[person.language]
    lines = [f"{person.name} | Resume", _contact(person, " | "), "", f"PROFESSIONAL {jobs.upper()}"]
    for title, company, start, end in person.jobs:
        until = f"Dec {end}" if end else today.title()
        lines.append(f"{title} | {company} | Mar {start} - {until}")
    lines += ["", f"KEY {skills.upper()}", person.skills.replace(", ", " | ")]
    lines += ["", schools.upper(), *(f"{d} | {s} | {y}" for d, s, y in person.schools)]
    return "\n".join(lines) + "\n"


def text_company_first(person: Person) -> str:
    """The company before the title, dates as months of the year."""
    skills, jobs, schools, today = WORDS[person.language]
    lines = [person.name, person.email, f"Phone {person.phone}", "", f"Work {jobs.lower()}"]
    for title, company, start, end in person.jobs:
        lines += ["", company, f"{title}, 03/{start} - {f'11/{end}' if end else today}"]
    lines += ["", schools, *(f"{s}: {d}, {y}" for d, s, y in person.schools), "", skills]
    return "\n".join([*lines, person.skills.replace(", ", "; ")]) + "\n"


def text_dates_below(person: Person) -> str:
    """Title, company and dates on a line each, and an objective before all of it."""
    skills, jobs, schools, _ = WORDS[person.language]
    lines = ["Resume of", person.name, "", "Objective", "To build things that last.", "", jobs]
    for title, company, start, end in person.jobs:
        lines += [title, company, _span(person, start, end), ""]
    lines += [skills, *(f"• {item.strip()}" for item in person.skills.split(",")), ""]
    lines += [*([schools] if person.schools else []), "Contact", _contact(person, ", ")]
    return "\n".join(lines) + "\n"


def _page(person: Person, body: str) -> str:
    head = f'<meta charset="utf-8"><title>{html.escape(person.name)}</title>'
    style = "<style>body { font-family: serif } .when { float: right }</style>"
    code = f"<!doctype html>\n<html lang={person.language}><head>{head}{style}</head>\n"
    return f"{code}<body>\n{body}\n</body></html>\n"


def html_lists(person: Person) -> str:
    """Headings, paragraphs and lists."""
    skills, jobs, schools, _ = WORDS[person.language]
    e = html.escape
    told = [f"<h1>{e(person.name)}</h1><p>{e(_contact(person, ' | '))}</p>", f"<h2>{jobs}</h2>"]
    told += [
        f"<h3>{e(t)}, {e(c)} <span class=when>{_span(person, a, b)}</span></h3>"
        for t, c, a, b in person.jobs
    ]
    items = "".join(f"<li>{e(item.strip())}</li>" for item in person.skills.split(","))
    told.append(f"<h2>{skills}</h2><ul>{items}</ul><h2>{schools}</h2>")
    told += [f"<p>{e(d)}, {e(s)}, {y}</p>" for d, s, y in person.schools]
    return _page(person, "\n".join(told))


def html_table(person: Person) -> str:
    """A table: dates on the left, what was then on the right."""
    skills, jobs, schools, _ = WORDS[person.language]
    e = html.escape
    rows = [f"<tr><th colspan=2>{jobs}</th></tr>"]
    rows += [
        f"<tr><td>{_span(person, a, b)}</td><td><b>{e(t)}</b><br>{e(c)}</td></tr>"
        for t, c, a, b in person.jobs
    ]
    rows.append(f"<tr><th colspan=2>{schools}</th></tr>")
    rows += [f"<tr><td>{y}</td><td><b>{e(d)}</b><br>{e(s)}</td></tr>" for d, s, y in person.schools]
    rows.append(
        f"<tr><th colspan=2>{skills}</th></tr><tr><td></td><td>{e(person.skills)}</td></tr>"
    )
    head = f"<tr><td colspan=2><b>{e(person.name)}</b></td></tr>"
    return _page(
        person,
        f"<table>\n{head}<tr><td>{e(_contact(person, '<br>'))}</td></tr>"
        + "\n".join(rows)
        + "\n</table>",
    ).replace("&lt;br&gt;", "<br>")


def html_definitions(person: Person) -> str:
    """Definition lists, the contact at the end."""
    skills, jobs, schools, _ = WORDS[person.language]
    e = html.escape
    told = [f"<header><h1>{e(person.name)}</h1></header><section><h2>{skills}</h2>"]
    told.append(f"<p>{e(person.skills)}</p></section><section><h2>{jobs}</h2><dl>")
    told += [
        f"<dt>{e(t)}</dt><dd>{e(c)}</dd><dd>{_span(person, a, b, ' to ')}</dd>"
        for t, c, a, b in person.jobs
    ]
    told.append(f"</dl></section><section><h2>{schools}</h2><dl>")
    told += [f"<dt>{e(d)}</dt><dd>{e(s)}</dd><dd>{y}</dd>" for d, s, y in person.schools]
    told.append(f"</dl></section><footer>{e(_contact(person, ' / '))}</footer>")
    return _page(person, "\n".join(told))


def html_breaks(person: Person) -> str:
    """As in 1999: bold words for headings, and line breaks."""
    skills, jobs, schools, _ = WORDS[person.language]
    e = html.escape
    told = [f"<font size=5>{e(person.name)}</font><br>{e(_contact(person, ', '))}<br><br>"]
    told.append(f"<b>{jobs}</b><br>")
    told += [f"{_span(person, a, b)} &nbsp; {e(t)} - {e(c)}<br>" for t, c, a, b in person.jobs]
    told.append(f"<br><b>{schools}</b><br>")
    told += [f"{y} &nbsp; {e(d)} - {e(s)}<br>" for d, s, y in person.schools]
    told.append(f"<br><b>{skills}</b><br>{e(person.skills)}<br>")
    return _page(person, "\n".join(told))


def pdf_single(person: Person) -> bytes:
    """One column on a page."""
    lines = text_classic(person).splitlines()
    sizes = {0: 18}
    found, y = [], 780.0
    for number, text in enumerate(lines):
        found.append(Line(60, y, text, sizes.get(number, 10)))
        y -= 24 if number == 0 else 15
    return page(found)


def _columns(person: Person, narrow: float, wide: float) -> list[Line]:
    """Contact and skills in the narrow column, jobs and schools in the wide one, row by row."""
    skills, jobs, schools, _ = WORDS[person.language]
    small = [
        *_contact(person, "\n").split("\n"),
        "",
        skills,
        *map(str.strip, person.skills.split(",")),
    ]
    large = [jobs]
    for title, company, start, end in person.jobs:
        large += [f"{title}, {company}", _span(person, start, end), ""]
    large += [*([schools] if person.schools else []), *(f"{d}, {s}" for d, s, _ in person.schools)]
    found = [Line(60, 790, person.name, 18)]
    for number in range(max(len(small), len(large))):
        y = 750 - 16 * number
        for x, column in sorted(((narrow, small), (wide, large)), key=lambda item: item[0]):
            if number < len(column) and column[number]:
                found.append(Line(x, y, column[number], 10))
    return found


def pdf_left_column(person: Person) -> bytes:
    """A narrow column on the left, written row by row across the page."""
    return page(_columns(person, 60, 260))


def pdf_right_column(person: Person) -> bytes:
    """A narrow column on the right, written row by row across the page."""
    return page(_columns(person, 400, 60))


def pdf_spaced(person: Person) -> bytes:
    """Headings with a space between their letters."""
    skills, jobs, schools, _ = WORDS[person.language]
    rows = [(person.name, 20), (_contact(person, "  |  "), 10), ("", 10)]
    for heading, told in (
        (skills, [person.skills]),
        (jobs, [f"{_span(person, a, b)}   {t}, {c}" for t, c, a, b in person.jobs]),
        (schools, [f"{y}   {d}, {s}" for d, s, y in person.schools]),
    ):
        rows += [(" ".join(heading.upper()), 11), *((text, 10) for text in told), ("", 10)]
    return page([Line(60, 780 - 20 * n, text, size) for n, (text, size) in enumerate(rows) if text])


def pdf_prose(person: Person) -> bytes:
    """A letter on a page."""
    rows = text_prose(person).splitlines()
    return page([Line(60, 780 - 16 * n, text, 11) for n, text in enumerate(rows)])


LAYOUTS: dict[str, Draw] = {
    draw.__name__: draw
    for draw in (
        text_classic, text_underlined, text_compact, text_prose, text_columns, text_labels,
        text_markdown, text_pipes, text_company_first, text_dates_below, html_lists, html_table,
        html_definitions, html_breaks, pdf_single, pdf_left_column, pdf_right_column, pdf_spaced,
        pdf_prose,
    )
}  # fmt: skip
