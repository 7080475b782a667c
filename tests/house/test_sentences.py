"""Sentences of README, CHANGELOG and docs stay short enough to be read once.

Counted is prose: fenced blocks, tables, headings and pages that are made from code are left out. Inline code is one
word, and a link counts by its text.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.project import ROOT, files

WORDS = 35

_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs")
_MADE = "<!-- Made "
"""The start of the first comment of a page that is made from code, or from what a program has seen."""

_FENCED = re.compile(r"^ *```.*?^ *```\s*$", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+")
_END = re.compile(r"(?<=[.!?])[)\"*]*\s+(?=[\"(*]*(?:[A-Z\d]|code\b))")


def pages() -> dict[str, str]:
    """The text of each page whose prose somebody has written."""
    found = {path: (ROOT / path).read_text() for path in files() if path.suffix == ".md" and path.parts[0] in _PAGES}
    return {path.as_posix(): text for path, text in found.items() if _MADE not in text}


def paragraphs(text: str) -> Iterator[str]:
    """Each paragraph and each item of a list, on one line."""
    lines: list[str] = []
    for line in [*_FENCED.sub("", text).splitlines(), ""]:
        prose = bool(line.strip()) and not line.lstrip().startswith(("|", "#", "<!--", "!["))
        if lines and (not prose or _ITEM.match(line)):
            yield " ".join(lines)
            lines = []
        if prose:
            lines.append(_ITEM.sub("", line, count=1).strip())


def sentences(text: str) -> Iterator[str]:
    for paragraph in paragraphs(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"(`+).+?\1", "code", paragraph))
        yield from _END.split(plain.replace("**", ""))


def length(sentence: str) -> int:
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


def test_sentences_end_at_full_stops_and_with_their_paragraph_or_item() -> None:
    text = (
        "# A heading\n\nOne, in v1.2 or `a. B`. `two` is\nhere.) Three\n\n- Four [a. b](c.md)\n- Five\n\n| a table |\n"
    )
    assert list(sentences(text)) == ["One, in v1.2 or code.", "code is here.", "Three", "Four a. b", "Five"]
    assert length("code - is two") == 3


def test_a_sentence_has_at_most_35_words() -> None:
    long = [
        f"{path}: {length(sentence)} words: {sentence}"
        for path, text in pages().items()
        for sentence in sentences(text)
        if length(sentence) > WORDS
    ]
    assert long == []


def test_the_pages_are_found() -> None:
    assert {Path(path).parts[0] for path in pages()} == set(_PAGES)


def test_each_change_stands_once_and_below_added_changed_or_fixed() -> None:
    versions = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]
    for version in versions:
        name, *sections = version.split("\n### ")
        assert "\n- " not in name
        titles = [section.split("\n", 1)[0] for section in sections]
        assert titles == [title for title in ("Added", "Changed", "Fixed") if title in titles]
    entries = [entry for version in versions for entry in version.split("\n- ")[1:]]
    assert len(set(entries)) == len(entries)
