"""The pages of the documentation: every code block runs, and every link leads to a page."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from docs.blocks import blocks_of, page_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DECISIONS = sorted((DOCS / "decisions").glob("*.md"))
KEPT = {
    DOCS / "architecture.md",
    DOCS / "performance.md",
    *DECISIONS,
}  # pages about the code itself
GENERATED = re.compile(r"reference/(?:python/.*|yaml|cli|outcomes|errors|warnings|decisions)\.md$")
SKILL = ROOT / "src/loopwright/.agents/skills/loopwright/SKILL.md"
PAGES = [
    ROOT / "README.md",
    SKILL,
    *sorted(
        page for page in DOCS.rglob("*.md") if page not in KEPT and not GENERATED.search(str(page))
    ),
]
LINKED = [
    *PAGES,
    *sorted(KEPT),
    ROOT / "AGENTS.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "CHANGELOG.md",
    ROOT / "examples/README.md",
    *sorted(ROOT.glob("examples/*/README.md")),
]
SKIPS = 5


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for one page, with the examples in it, as the working folder of its blocks."""
    place = tmp_path / "page"
    place.mkdir()
    (place / "examples").symlink_to(ROOT / "examples")
    for name in [name for name in os.environ if name.startswith("LOOPWRIGHT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(place / ".home"))
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))
    before = set(sys.modules)
    monkeypatch.setitem(sys.modules, "page", ModuleType("page"))  # the module of the page's classes
    yield place
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "") or "").startswith(str(place)):
            del sys.modules[name]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_of_a_page_runs(
    page: Path, folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python in one namespace for each page, YAML through `check`, console commands in a shell."""
    if "postgres:///runs" in page.read_text("utf-8"):  # the server is that of the environment
        server = request.getfixturevalue("postgres_server")
        for name, value in server.environment("runs").items():
            monkeypatch.setenv(name, value)
    for example in page_of(page, folder).examples():
        example.evaluate()


def test_at_most_five_blocks_are_skipped() -> None:
    """A block that is not run gives its reason; few may."""
    reasons = [
        (name_of(page), block.skip)
        for page in PAGES
        for _, _, block in blocks_of(page.read_text("utf-8"))
        if block.skip
    ]
    assert len(reasons) <= SKIPS, reasons
    assert all(len(reason) > 10 for _, reason in reasons)


def test_a_python_file_on_a_page_is_used_on_it() -> None:
    """A block with a file name is only compiled, so a later block must run or import the file."""
    for page in PAGES:
        text = page.read_text("utf-8")
        for _, end, block in blocks_of(text):
            if block.language == "python" and block.title and not block.skip:
                used = Path(block.title).stem
                if used.startswith("test_") and "pytest" in text:
                    continue
                rest = text[end:]
                assert re.search(rf"\b{used}(?:\.py|:)|import {used}|from {used}", rest), (
                    f"{name_of(page)}: {block.title} is never used"
                )


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_links_lead_to_a_file(page: Path) -> None:
    """A link inside the project leads to a file, or to a page that `make docs` generates."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    inside = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    missing = [
        link
        for link in inside
        if not (page.parent / link).exists()
        and not GENERATED.search((page.parent / link).as_posix())
    ]
    assert missing == []


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_anchors_name_a_heading(page: Path) -> None:
    """A link to a heading names one that the page has."""
    for target, anchor in re.findall(r"\]\(([^)#\s]*\.md)?#([^)]+)\)", page.read_text("utf-8")):
        file = page.parent / target if target else page
        if not file.exists():
            continue
        assert anchor in anchors(file.read_text("utf-8")), f"{target}#{anchor}"


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as the site makes them."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    words = (re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in plain)
    return {re.sub(r"[\s]+", "-", heading) for heading in words}


def test_every_page_is_in_the_navigation() -> None:
    """mkdocs.yml names every page but the decisions, which a generated page lists, each once, and no page that does not exist."""
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    listed = re.findall(r"[\w/-]+\.md", text.partition("\nnav:")[2])
    assert len(listed) == len(set(listed))
    written = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    decisions = {f"decisions/{page.name}" for page in DECISIONS}
    generated = {name for name in {*listed, *written} if GENERATED.search(name)}
    assert set(listed) - generated == written - decisions - generated
    assert yaml.safe_load(text.replace("!!python/name:", "")) is not None


def test_the_english_of_the_pages() -> None:
    """docs/style.md bans dashes as punctuation, exclamation marks and a list of words."""
    banned = re.compile(
        r"\u2014|\u2013(?=\s)| - (?=[a-z])|\w!(?=\s|$)|\bas it stands\b|\bby the letter\b|\bso many\b"
    )
    for page in PAGES:
        text = re.sub(
            r"^[ \t]*```.*?^[ \t]*```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL
        )
        text = re.sub(r"`[^`\n]*`", "", text)
        if page.name != "style.md":
            assert banned.findall(text) == [], name_of(page)


def test_the_paths_of_the_architecture_exist() -> None:
    """Each path on the page is a file or folder of the package, the tests or the documentation."""
    text = (DOCS / "architecture.md").read_text("utf-8")
    paths = set(re.findall(r"`([\w./]+(?:\.py|/))`", text))
    roots = (ROOT / "src" / "loopwright", ROOT)
    assert len(paths) > 40
    assert [
        path for path in sorted(paths) if not any((root / path).exists() for root in roots)
    ] == []


# The terms of the project, each with one meaning in Python, YAML, the command line and the page.
TERMS = (
    "adapt, attempt, best, budget, call, candidate, checklist, condition, context, criterion, deadline, default, dialect, "
    "document, effect, error, evaluation, evaluator, execute, feedback, fingerprint, guard, input, iteration, journal, judge, "
    "ledger, limit, loop, memory, model, option, output, path, prompt, provider, reason, result, resume, retry, rewind, run, "
    "score, setting, status, step, template, tool, undecided, usage, verdict, warning, workflow"
)


def test_the_glossary_defines_the_terms_in_alphabetical_order() -> None:
    """Each term has one definition; a term that no page uses would be missing here."""
    text = (DOCS / "more" / "glossary.md").read_text("utf-8")
    defined = re.findall(r"^(\S[^\n]*)\n:   \S", text, re.MULTILINE)
    assert set(TERMS.split(", ")) <= set(defined)
    assert defined == sorted(set(defined), key=str.lower)


def test_each_extra_of_the_package_is_on_the_install_page() -> None:
    """The table has the extras of pyproject.toml, each with its size."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    text = (DOCS / "start" / "install.md").read_text("utf-8")
    assert set(re.findall(r"^\| `(\w+)` \| .* \| \+\d+ MB, \d+ \|$", text, re.MULTILINE)) == set(
        extras
    )
