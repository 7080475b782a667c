"""Hooks of mkdocs.yml: a link to a file outside docs/ becomes its text, because a site has no such file."""

import re
from pathlib import PurePosixPath

from mkdocs.structure.pages import Page

_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)\s]*)\)")


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Called for each page."""
    depth = len(PurePosixPath(page.file.src_uri).parent.parts)
    return _LINK.sub(lambda link: link[1] if link[2].startswith("../" * (depth + 1)) else link[0], markdown)
