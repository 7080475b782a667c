"""The project speaks in the words of the glossary in CONTRIBUTING.md: its right column occurs nowhere else.

A word is found in prose and within identifiers (``file_letters``), in either case; a trailing ``*`` stands for any
ending. What may stay is listed here with the reason: names that are persisted or public, and other meanings.
"""

import re
from pathlib import Path

from tests.house.project import PACKAGES, ROOT, files

EXCEPTIONS = {
    "letter*": [
        r"[Dd]ead(?:[ _-]|\s+)?[Ll]etters?",  # the standard term
        r"[Ll]etters, (?:digits|numbers)|letter or underscore",  # of which characters an identifier consists
        r"(?:capital|lower-case|upper-case|small) letters?",
        r'"letters"|letters_\{',  # a key of `dead-letters list --json`; names of streams of replays in the spool
    ],
    "begun": [
        r"\.begun\b",  # a file of the spool, consumers/<sink>.begun; and a field of consumers/bigquery.pace
        r"\bbegun: int|\bbegun=",  # that field
    ],
    "shape*": [
        r"\.shape\b",  # NumPy's
        r'"shape"',  # a key of what consumers/bigquery.begun holds
    ],
}
"""Contexts in which a word of the right column is right; matched around it."""

_PAGES = ("README.md", "CHANGELOG.md", "docs", "deploy", "testing", "Makefile", "mkdocs.yml")
_GLOSSARY = "CONTRIBUTING.md"


def glossary() -> dict[str, re.Pattern[str]]:
    """The phrases of the glossary's right column, each with the pattern that finds it."""
    page = (ROOT / _GLOSSARY).read_text()
    table = page.split("| say | not |", 1)[1].split("\n\n", 1)[0]
    phrases = [
        phrase.strip() for row in re.findall(r"^\|[^|]+\|([^|]+)\|$", table, re.MULTILINE) for phrase in row.split(";")
    ]
    return {phrase: _pattern(phrase) for phrase in phrases if phrase.strip("- ")}


def _pattern(phrase: str) -> re.Pattern[str]:
    words = r"[\s_-]+(?:#\s*)?".join(re.escape(word) for word in phrase.rstrip("*").split())
    ending = r"[a-z]*" if phrase.endswith("*") else ""
    return re.compile(rf"(?<![A-Za-z]){words}{ending}(?![A-Za-z])", re.IGNORECASE)


def source_and_docs() -> list[Path]:
    kept = {".py", ".md", ".toml", ".yml", ".yaml", ".service", ""}
    rooms = (*PACKAGES, "benchmarks", *_PAGES)
    return [path for path in files() if path.suffix in kept and path.parts[0] in rooms]


def occurrences(text: str, phrase: str, pattern: re.Pattern[str]) -> list[str]:
    """The lines of a text on which a phrase occurs outside the contexts that are listed for it."""
    if max(re.findall("[a-z]+", phrase), key=len) not in text.lower():
        return []  # most texts, and much faster than the pattern
    allowed = [span for context in EXCEPTIONS.get(phrase, []) for span in _spans(context, text)]
    found = [match for match in pattern.finditer(text) if not any(a <= match.start() < b for a, b in allowed)]
    return [text[text.rfind("\n", 0, match.start()) + 1 :].split("\n", 1)[0].strip() for match in found]


def _spans(context: str, text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(context, text)]


def test_the_glossary_is_read() -> None:
    assert {"letter*", "begun", "fold", "ledger*"} <= glossary().keys()


def test_a_word_is_found_in_prose_and_in_identifiers_and_not_in_others() -> None:
    pattern = glossary()["letter*"]
    text = "Letters of a table\nfile_letters = 1\na dead letter\nunlettered"
    assert occurrences(text, "letter*", pattern) == ["Letters of a table", "file_letters = 1"]


def test_source_and_docs_have_no_word_of_the_right_column() -> None:
    phrases, texts = glossary(), {path: (ROOT / path).read_text() for path in source_and_docs()}
    found = {
        f"{path}: {phrase}": lines
        for path, text in texts.items()
        for phrase, pattern in phrases.items()
        if (lines := occurrences(text, phrase, pattern))
    }
    assert found == {}, f"{sum(map(len, found.values()))} occurrences"


def test_names_of_tests_have_no_word_of_the_right_column() -> None:
    names = {
        name
        for path in files()
        if path.suffix == ".py" and path.parts[0] == "tests"
        for name in re.findall(r"^\s*(?:async )?def (test_\w+)", (ROOT / path).read_text(), re.MULTILINE)
    }
    phrases = glossary().items()
    found = {name for name in names for phrase, pattern in phrases if occurrences(name, phrase, pattern)}
    assert found == set(), f"{len(found)} names"
