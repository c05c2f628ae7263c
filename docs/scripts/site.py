"""Check built sites: `python docs/scripts/site.py FOLDER...`.

A page may load nothing from another host, each link inside the site leads to a page and a heading that exist, and no
Markdown is left in the text. A link to another host may lead anywhere.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {
    "script": ("src",), "link": ("href",), "img": ("src", "srcset"), "iframe": ("src",),
    "source": ("src", "srcset"), "video": ("src", "poster"), "audio": ("src",), "object": ("data",),
}  # fmt: skip
NOT_LOADED = {"canonical", "alternate", "next", "prev", "edit"}
FOREIGN = re.compile(r"^(?:https?:)?//", re.IGNORECASE)
IN_STYLES = re.compile(r"""(?:url\(\s*|@import\s+)['"]?((?:https?:)?//[^'")\s]+)""", re.IGNORECASE)
# A fence that the site generator does not understand becomes a paragraph, or code inside one.
# In code, `\|` keeps its backslash.
FENCE = re.compile(r"^\s*```|^(?:console|json|python|text|toml|yaml)\b[^\n]*\n")


class Page(HTMLParser):
    """Collects the foreign addresses that a page loads, its links, its anchors and its unread fences."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.foreign: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.fences: list[str] = []
        self._within: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Read the attributes of an element."""
        values = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := values.get(name))}
        if tag in ("p", "pre", "code"):
            self._within.append(tag)
        if tag == "link" and NOT_LOADED & set((values.get("rel") or "").split()):
            return
        self.foreign += [
            value for name in LOADED.get(tag, ()) if FOREIGN.match(value := values.get(name) or "")
        ]
        for name in ("href", "src"):
            if value := values.get(name):
                self.links.append(value)

    def handle_endtag(self, tag: str) -> None:
        """Leave a paragraph or code."""
        if tag in self._within:
            del self._within[len(self._within) - 1 - self._within[::-1].index(tag) :]

    def handle_data(self, data: str) -> None:
        """Read the text outside of code blocks."""
        if "pre" not in self._within and (FENCE.search(data) or "\\|" in data):
            self.fences.append(data.strip().partition("\n")[0])


def problems(folder: Path) -> Iterator[str]:
    """Iterate over the problems of a built site, each with its page."""
    if not (folder / "index.html").exists():
        yield f"{folder}: there is no index.html"
    pages = {file: Page(file.read_text("utf-8")) for file in sorted(folder.rglob("*.html"))}
    for file, page in pages.items():
        yield from (f"{file}: loads {address}" for address in page.foreign)
        yield from (f"{file}: Markdown is not rendered: {line}" for line in page.fences)
        if file.name != "404.html":  # its links begin at the root of a server
            yield from (f"{file}: {problem}" for problem in _broken(file, pages))
    for style in sorted(folder.rglob("*.css")):
        addresses = IN_STYLES.findall(style.read_text("utf-8"))
        yield from (f"{style}: loads {address}" for address in addresses)


def _broken(file: Path, pages: dict[Path, Page]) -> Iterator[str]:
    for link in dict.fromkeys(pages[file].links):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
        if target.is_dir():
            target /= "index.html"
        if not target.exists():
            yield f"broken link {link}"
            continue
        page = pages.get(target)
        anchor = unquote(parts.fragment)
        # The theme's own anchors, such as `__search`, are made by its script.
        if (
            page is not None
            and anchor
            and not anchor.startswith("__")
            and anchor not in page.anchors
        ):
            yield f"broken anchor {link}"


def main() -> int:
    """Print each problem, and return 1 if there is one."""
    result = [problem for name in sys.argv[1:] for problem in problems(Path(name).resolve())]
    print(*result, sep="\n", end="\n" if result else "")
    return 1 if result else 0


if __name__ == "__main__":
    sys.exit(main())
