"""Three ways to read a resume, as the functions `detailed`, `keyword_focused` and
`section_by_section` of what `reading.read` returned.

Each returns `name`, `email` and `phone` ("" if not found), `skills` (texts), `experience` (objects
of `title`, `company`, `from` and `to`, null for today) and `education` (of `degree` and `school`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import lexicon

Resume = dict[str, str]
Fields = dict[str, Any]

_YEAR = r"(?:19|20)\d\d"
_POINT = rf"(?:(?:(?:{lexicon.MONTHS})[a-z]*\.?\s+|\d{{1,2}}[/.])?{_YEAR})"
_RANGE = re.compile(
    rf"({_POINT})\s*(?:-|–|—|\bto\b|\bbis\b|\buntil\b|\ba\b)\s*({_POINT}|{lexicon.PRESENT})"
    rf"|(?:from|von|de)\s+({_POINT})\s+(?:to|bis|à)\s+({_POINT})|(?:{lexicon.SINCE})\s+({_POINT})",
    re.IGNORECASE,
)
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_PHONE = re.compile(r"(?:\+|\(|\b0)[\d ()/.-]{6,}\d")
_PARTS = re.compile(rf"\s*(?:[,|;:·\t]|\s[-–—]\s|\s{{3,}}|\s(?:{lexicon.AT})\s)\s*", re.IGNORECASE)
_TITLE = re.compile("|".join(map(re.escape, lexicon.TITLES)), re.IGNORECASE)
_DEGREE = re.compile(rf"\b(?:{'|'.join(lexicon.DEGREES)})\b", re.IGNORECASE)
_SCHOOL = re.compile("|".join(lexicon.SCHOOLS), re.IGNORECASE)
_BULLET = re.compile(r"^\s*(?:[-*•·]\s+|#+\s*)")
_BEFORE = ("key", "core", "main", "other", "professional", "relevant", "technical", "work")
_NAME = re.compile(r"[^\W\d_][\w.'’-]*(?: (?:[^\W\d_]['’]?[\w.'’-]*)){1,3}")


def detailed(resume: Resume) -> Fields:
    """Read every line for what it is: dates make a job, words of learning a school."""
    lines = _clean(resume["text"])
    kept = [entry for line in lines for entry in _entries(_titled(line)[1])]
    jobs, schools = [], []
    for block in _dated(kept):
        (schools if _is_school(" ".join(block[1])) else jobs).append(block)
    learned = [_school(text) for _, text in schools] or [_school([x]) for x in kept if _learned(x)]
    return {
        **_contact(kept),
        "skills": _listed(lines),
        "experience": [_job(when, text) for when, text in jobs],
        "education": learned,
    }


def keyword_focused(resume: Resume) -> Fields:
    """Look for known words anywhere: skills, titles before a company, degrees before a school."""
    text = re.sub(r"\s+", " ", resume["text"])
    word = r"[^\W\d_][\w&.'’-]*"
    phrase = rf"{word}(?: (?:of |de |di )?{word}){{0,4}}"
    jobs = [
        {"title": found[1], "company": found[2].strip(" ."), **_when(found[3])}
        for found in re.finditer(
            rf"\b(?:as|was) ({phrase}?) at ((?:[A-Z][\w&'’-]*\.? ?){{1,4}}?) ?"
            rf"(since {_YEAR}|from {_YEAR} to {_YEAR})",
            text,
        )
    ]
    schools = [
        {"degree": found[1].strip(), "school": found[2].strip()}
        for found in re.finditer(
            rf"\b((?:{'|'.join(lexicon.DEGREES)})\b[^.,;()]*?),? (?:from |at )"
            rf"((?:[A-Z][\w'’-]*|of|de)(?: (?:[A-Z][\w'’-]*|of|de))*)",
            text,
            re.IGNORECASE,
        )
    ]
    known = [(found.start(), skill) for skill in lexicon.SKILLS if (found := _word(skill, text))]
    told = re.search(r"(?:[Mm]y name is|I am|I'm) ([^.,;]+)", text)
    contact = _contact(_clean(resume["text"]))
    name = told[1] if told and _is_name(told[1]) else contact["name"]
    skills = [text[at : at + len(skill)] for at, skill in sorted(known)]
    return {**contact, "name": name, "skills": skills, "experience": jobs, "education": schools}


def section_by_section(resume: Resume) -> Fields:
    """Find the sections, column by column, and read each as what it is called."""
    sections: dict[str, list[str]] = {"head": []}
    current = "head"
    for line in _clean(resume["columns"]):
        title, rest = _titled(line)
        if title:
            current = title
            sections.setdefault(current, [])
        if rest:
            sections[current].append(rest)
    every = [line for lines in sections.values() for line in lines]
    head = sections["head"] + sections.get("other", [])
    contact = _contact(head)
    found = _contact(every)
    return {
        "name": contact["name"] or found["name"],
        "email": found["email"],
        "phone": contact["phone"] or found["phone"],
        "skills": [s for line in sections.get("skills", ()) for s in _split(line)],
        "experience": [_job(when, text) for when, text in _dated(_items(sections, "experience"))],
        "education": [_school(group) for group in _grouped(_items(sections, "education"))],
    }


STRATEGIES: dict[str, Callable[[Resume], Fields]] = {
    "detailed": detailed,
    "keyword-focused": keyword_focused,
    "section-by-section": section_by_section,
}


# Lines.


def _clean(text: str) -> list[str]:
    """Return the lines without rules and Markdown, headings with spaces between letters closed up;
    empty ones stay."""
    lines = []
    for line in text.splitlines():
        plain = re.sub(r"\*+", "", line) if "**" in line else line
        if not re.search(r"\w", plain):
            plain = "" if not plain.strip() else "\0"
        if re.fullmatch(r"\s*(?:\S ){3,}\S\s*", plain):
            plain = plain.replace(" ", "")
        lines.append(plain.strip())
    return [line for line in lines if line != "\0"]


def _heading(line: str) -> str:
    """Return which section a line is the heading of, or nothing."""
    words = _BULLET.sub("", line).strip(" :").lower()
    for section, names in lexicon.SECTIONS.items():
        if words in names or (words.partition(" ")[2] in names and words.split()[0] in _BEFORE):
            return section
    return ""


def _titled(line: str) -> tuple[str, str]:
    """Return the section that a line begins, if it does, and what else is on it."""
    if section := _heading(line):
        return section, ""
    label, colon, rest = line.partition(":")
    if colon and (section := _heading(label)):
        return section, rest.strip()
    return "", line


def _items(sections: dict[str, list[str]], name: str) -> list[str]:
    """Return the entries of a section, those on one line apart."""
    lines = [line for line in sections.get(name, ()) if not _EMAIL.search(line)]
    return [part.strip() for line in lines for part in _entries(line) if not _PHONE.fullmatch(part)]


def _entries(line: str) -> list[str]:
    parts = [part for part in line.split(";") if re.search(_YEAR, part)]
    return parts if len(parts) > 1 else [line]


# Contact.


def _contact(lines: Iterable[str]) -> Fields:
    """Return name, email and phone of the first lines that have them."""
    found = {"name": "", "email": "", "phone": ""}
    for line in lines:
        text = re.sub(
            r"^(?:nome|name|nom|e-?mail|telefono|phone|resume of)\s*:?\s+",
            "",
            line,
            flags=re.IGNORECASE,
        )
        text = re.sub(rf"^#+\s*|{_RANGE.pattern}", " ", text, flags=re.IGNORECASE).strip()
        email, phone = _EMAIL.search(text), _PHONE.search(text)
        found["email"] = found["email"] or (email[0] if email else "")
        found["phone"] = found["phone"] or (phone[0].strip() if phone else "")
        first = re.split(r"\s*[|]\s*|\s{3,}", text)[0]
        if not found["name"] and _is_name(first):
            found["name"] = first.title() if first.isupper() else first
    return found


def _is_name(text: str) -> bool:
    capital = all(word[0].isupper() or word in ("de", "van", "von") for word in text.split())
    known = (
        _TITLE.search(text) or _heading(text) or re.search("curriculum|resume", text, re.IGNORECASE)
    )
    return bool(_NAME.fullmatch(text)) and capital and not known


# Dates, jobs and schools.


def _dated(lines: list[str]) -> list[tuple[re.Match[str], list[str]]]:
    """Return each span of time with the lines that belong to it."""
    found = []
    taken: set[int] = set()
    for place, line in enumerate(lines):
        for when in _RANGE.finditer(line):
            rest = [*_parts(line[: when.start()]), *_parts(line[when.end() :])]
            if len(rest) < 2:
                rest = _beside(lines, place, rest, taken)
            found.append((when, rest))
    return found


def _beside(lines: list[str], place: int, rest: list[str], taken: set[int]) -> list[str]:
    """Return what a line with dates lacks, from the lines before it, else from those after it; no
    line is `taken` twice."""
    for step in (-1, 1):
        near, used = place + step, []
        told: list[str] = []
        while 0 <= near < len(lines) and len(told) + len(rest) < 2 and near not in taken:
            line = lines[near]
            if not line or _RANGE.search(line) or _BULLET.match(line):
                break
            told = [*_parts(line), *told] if step < 0 else [*told, *_parts(line)]
            used.append(near)
            near += step
        if len(told) + len(rest) >= 2:
            taken.update(used)
            return [*told, *rest] if step < 0 else [*rest, *told]
    return rest


def _parts(text: str) -> list[str]:
    """Return the pieces of a line: between commas, bars, dashes, brackets and wide gaps."""
    pieces = (_BULLET.sub("", piece).strip(" ()*,.:–-") for piece in re.split(r"[()]", text))
    return [part.strip() for piece in pieces for part in _PARTS.split(piece) if part.strip()]


def _job(when: re.Match[str], texts: list[str]) -> Fields:
    title, company = [*texts[:2], "", ""][:2]
    if _TITLE.search(company) and not _TITLE.search(title):
        title, company = company, title
    return {"title": title, "company": company, **_when(when[0])}


def _when(text: str) -> Fields:
    years = [int(year) for year in re.findall(_YEAR, text)]
    return {"from": years[0], "to": years[1] if len(years) > 1 else None}


def _is_school(text: str) -> bool:
    return bool(_SCHOOL.search(text)) and not _TITLE.search(text)


def _learned(line: str) -> bool:
    return bool(_DEGREE.search(line) and _SCHOOL.search(line) and len(line) < 100)


def _school(texts: list[str]) -> Fields:
    parts = [part for text in texts for part in _parts(re.sub(rf"\b{_YEAR}\b", " ", text))]
    school = next((part for part in parts if _SCHOOL.search(part) and not _DEGREE.match(part)), "")
    school = school or next((part for part in parts[1:2]), "")
    degree = next((part for part in parts if part != school), "")
    return {"degree": degree, "school": school}


def _grouped(lines: list[str]) -> list[list[str]]:
    """Return entries: a line with both degree and school, or the lines up to the next degree."""
    groups: list[list[str]] = []
    for line in lines:
        parts = _parts(re.sub(rf"\b{_YEAR}\b", " ", line))
        if not parts:
            continue
        whole = (
            bool(groups)
            and len([p for text in groups[-1] for p in _parts(re.sub(_YEAR, " ", text))]) >= 2
        )
        if not groups or whole:
            groups.append([line])
        else:
            groups[-1].append(line)
    return groups


# Skills.


def _listed(lines: list[str]) -> list[str]:
    """Return the items under the first heading of skills, up to the next line that is none."""
    found: list[str] = []
    inside = False
    for line in lines:
        title, rest = _titled(line)
        if title or (inside and (not line and found)):
            inside = title == "skills"
            line = rest
        if inside and line:
            found += _split(line)
    return found


def _split(line: str) -> list[str]:
    pieces = re.split(r"[,;|•·]", _BULLET.sub("", line))
    return [piece.strip(" .") for piece in pieces if piece.strip(" .")]


def _word(skill: str, text: str) -> re.Match[str] | None:
    return re.search(rf"(?<![\w+#-]){re.escape(skill)}(?![\w+#-])", text, re.IGNORECASE)
