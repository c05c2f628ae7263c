"""What README and documentation show in YAML loads as it stands there, and every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from loopwright.documents import Settings, load
from loopwright.documents.yaml.reader import read
from loopwright.models import ScriptedModel

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [*PAGES, *sorted((ROOT / "docs").glob("*/*.md")), ROOT / "examples/README.md"]
BLOCKS = [
    pytest.param(text, id=f"{page.name}-{i}")
    for page in PAGES
    for i, text in enumerate(
        re.findall(r"^```yaml\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    )
]
HEAD = "schema: loopwright/1\nname: part\nmodel: openai:gpt-4o\nsteps:\n  - name: shown\n"


@pytest.mark.parametrize("text", BLOCKS)
def test_yaml_on_a_page_loads(text: str, tmp_path: Path) -> None:
    """A document whole, the part of a step as a step's, a list of rules as scripted replies."""
    if text.startswith("- {"):
        ScriptedModel(text)
        return
    whole = "schema" in read(text.encode(), "shown.yaml").value
    file = tmp_path / "shown.yaml"
    file.write_text(text if whole else HEAD + re.sub("^", "    ", text, flags=re.MULTILINE))
    (tmp_path / "cities.py").write_text("def population(city: str) -> int: ...\n")
    load(file, Settings(execute=False))


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """A link to a file is to one that is there."""
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8"))
    inside = [link for link in links if "://" not in link]
    assert [link for link in inside if not (page.parent / link).exists()] == []
