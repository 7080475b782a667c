"""The pages that are published, with their headings, links and fenced blocks."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

FENCED = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```\s*$", re.MULTILINE | re.DOTALL
)
LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")


class Block(NamedTuple):
    """A fenced block: the page and line where it begins, its language and its text."""

    place: str
    language: str
    text: str


def pages() -> list[Path]:
    """Returns README.md, CHANGELOG.md, CONTRIBUTING.md and every page under docs/."""
    top = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md"))]


def prose(page: Path) -> str:
    """Returns a page's text without its fenced blocks."""
    return FENCED.sub("", page.read_text())


def links(page: Path) -> list[str]:
    """Returns the targets of a page's links, as written."""
    return LINK.findall(re.sub(r"`[^`\n]*`", "code", prose(page)))


def anchors(page: Path) -> set[str]:
    """Returns the anchors that GitHub gives to a page's headings: the second of the same name ends with -1."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#{1,6} +(.+?)\s*$", prose(page), re.MULTILINE):
        text = LINK.sub(lambda link: link.group(0)[1 : link.group(0).index("]")], heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def blocks(*languages: str) -> Iterator[Block]:
    """Yields the fenced blocks in one of these languages."""
    for page in pages():
        text = page.read_text()
        for match in FENCED.finditer(text):
            if match["language"] in languages:
                line = text.count("\n", 0, match.start()) + 1
                yield Block(f"{page.relative_to(ROOT)}:{line}", match["language"], match["text"])
