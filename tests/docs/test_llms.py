"""What a program that reads the site by a model finds: `llms.txt`, and the pages as Markdown."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site with what the script writes, without the generated pages of the reference."""
    spec = importlib.util.spec_from_file_location("llms", ROOT / "docs/scripts/llms.py")
    assert spec is not None and spec.loader is not None
    llms = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(llms)
    docs = tmp_path / "docs"
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    for name in re.findall(r"[\w/-]+\.md", text.partition("\nnav:")[2]):
        source = ROOT / "docs" / name
        target = docs / name
        target.parent.mkdir(parents=True, exist_ok=True)
        generated = name.startswith("reference/") and name != "reference/index.md"
        made = "# Part\n\nImport these names.\n\n::: loopwright.Loop\n"
        target.write_text(made if generated else source.read_text("utf-8"), "utf-8")
    monkeypatch.setattr(llms, "DOCS", docs)
    llms.write(tmp_path / "site")
    return tmp_path / "site"


def test_llms_txt_lists_every_page_of_the_navigation(site: Path) -> None:
    """In the form of https://llmstxt.org/: a title, a summary, and parts with links that lead to Markdown where there is some."""
    text = (site / "llms.txt").read_text("utf-8")
    assert text.startswith("# Loopwright\n\n> ")
    nav = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    pages = re.findall(r"[\w/-]+\.md", nav)
    links = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)(?:: .+)?$", text, re.MULTILINE)
    assert [link.replace(".html", ".md") for link in links] == [p for p in pages if p != "index.md"]
    assert [link for link in links if link.endswith(".md") and not (site / link).is_file()] == []
    assert (
        "guide/judge.md): A judge is a model that decides whether an output meets a criterion\n"
        in text
    )
    assert "reference/python/loopwright.html): Import these names\n" in text
    assert (site / "more/changes.md").read_text("utf-8").startswith("# Changelog")
