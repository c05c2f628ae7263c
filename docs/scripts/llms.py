"""Write `llms.txt` into built sites: `python docs/scripts/llms.py FOLDER...`.

It lists the pages of the navigation with their first sentence (https://llmstxt.org/), for programs that read a site by a model. Each page
is there as Markdown too, except those that are made of docstrings while the site is built.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INCLUDED = re.compile(r'^--8<-- "(.+)"$', re.MULTILINE)


def pages(entries: list[Any], title: str = "") -> Iterator[tuple[str, str]]:
    """Iterate over the pages of a part of the navigation: title and file; a page without a title is that of its part."""
    for entry in entries:
        if isinstance(entry, str):
            yield title, entry
            continue
        for name, value in entry.items():
            yield from pages(value, name) if isinstance(value, list) else [(name, value)]


def sentence(text: str) -> str:
    """Return the first sentence of a page, without links."""
    paragraph = next((part for part in text.split("\n\n")[1:] if re.match(r"[A-Z`\[*]", part)), "")
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
    return re.split(r"(?<=\.)\s", plain, maxsplit=1)[0].rstrip(".:")


def write(site: Path) -> None:
    """Write `llms.txt` and the pages as Markdown into a site."""
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    home, *parts = settings["nav"]
    lines = [f"# {settings['site_name']}", "", f"> {settings['site_description']}", ""]
    lines += [sentence((DOCS / home["Home"]).read_text("utf-8")) + ".", ""]
    for part in parts:
        (heading,) = part
        lines += [f"## {heading}", ""]
        for title, name in pages(part[heading], heading):
            text = (DOCS / name).read_text("utf-8")
            for included in INCLUDED.findall(text):
                text = (ROOT / included).read_text("utf-8")
            address = name
            if "\n::: " in text:
                address = f"{name.removesuffix('.md')}.html"
            else:
                target = site / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, "utf-8")
            about = sentence(text)
            lines.append(f"- [{title}]({address})" + (f": {about}" if about else ""))
        lines.append("")
    (site / "llms.txt").write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        write(Path(folder))
