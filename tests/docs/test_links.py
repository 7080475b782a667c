"""A link inside the project leads to a file that exists, and its anchor to a heading of that page."""

from pathlib import Path

from tests.docs.pages import ROOT, anchors, links, pages


def broken(page: Path, link: str) -> bool:
    """Says whether a link inside the project leads nowhere; links to other sites are not followed."""
    if "://" in link or link.startswith("mailto:"):
        return False
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists() or not target.is_relative_to(ROOT):
        return True
    return bool(anchor) and target.suffix == ".md" and anchor not in anchors(target)


def test_a_link_of_a_page_leads_to_a_file_and_a_heading() -> None:
    assert [f"{page.relative_to(ROOT)}: {link}" for page in pages() for link in links(page) if broken(page, link)] == []


def test_a_missing_file_and_a_missing_heading_are_found() -> None:
    page = ROOT / "README.md"
    assert broken(page, "docs/no-such-page.md")
    assert broken(page, "docs/architecture.md#no-such-heading")
    assert not broken(page, "docs/architecture.md")
