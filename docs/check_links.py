"""Check the built pages: internal links must have a target, and nothing remote may be loaded.

python docs/check_links.py docs/_build/html
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}


class Page(HTMLParser):
    """Anchors and links of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[tuple[str, str]] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.append((tag, value))


def faults(folder: Path) -> list[str]:
    pages = {path.resolve(): Page(path) for path in folder.rglob("*.html")}
    found = []
    for path, page in pages.items():
        name = path.relative_to(folder.resolve())
        for tag, link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https") or link.startswith("//"):
                if tag in FETCHED:
                    found.append(f"{name}: loads {link}")
                continue
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                found.append(f"{name}: {link} does not exist")
            elif parts.fragment and target in pages and parts.fragment not in pages[target].anchors:
                found.append(f"{name}: {link}: no such anchor")
    return found


def main() -> int:
    found = faults(Path(sys.argv[1]))
    print("\n".join(found) or "all links have a target, and nothing remote is loaded")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
