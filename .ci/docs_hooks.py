"""Hooks of mkdocs.yml: links to files outside docs/, and names of columns for screens too narrow for tables."""

import html
import re
from pathlib import PurePosixPath

from mkdocs.structure.pages import Page

_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_HEAD = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
_ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
_LONG = re.compile(r"<code>[^<\s]{60,}</code>")
_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)\s]*)\)")


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """A link to a file outside docs/ becomes its text, because a site has no such file."""
    depth = len(PurePosixPath(page.file.src_uri).parent.parts)
    return _LINK.sub(lambda link: link[1] if link[2].startswith("../" * (depth + 1)) else link[0], markdown)


def on_page_content(content: str, **_: object) -> str:
    """Each cell of a table gets the name of its column, which docs/assets/site.css shows on a phone.

    Names of tests and paths may wrap between their parts.
    """
    content = _LONG.sub(lambda name: re.sub("(/|::|_)(?!code>)", r"\1<wbr>", name[0]), content)
    return _TABLE.sub(_labelled, content)


def _labelled(table: re.Match[str]) -> str:
    names = [html.escape(html.unescape(re.sub("<[^>]+>", "", name)).strip()) for name in _HEAD.findall(table[0])]
    return _ROW.sub(lambda row: _with_names(row[0], names), table[0])


def _with_names(row: str, names: list[str]) -> str:
    left = iter(names)
    return re.sub(r"<td\b", lambda _: f'<td data-label="{next(left, "")}"', row)
