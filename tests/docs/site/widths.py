"""``python -m tests.docs.site.widths SITE``: fails, and names them, if a screen cuts tables or blocks of code.

Debian's headless Chromium opens every page of a built site in frames of the widths of a phone and of a desktop.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CHROMIUM = shutil.which("chromium")
WIDTHS = (390, 1440)

_HARNESS = """<!doctype html><body>FRAMES<script>
onload = () => {
  const cut = [];
  for (const frame of document.querySelectorAll("iframe")) {
    const inside = frame.contentDocument, screen = inside.documentElement.clientWidth;
    inside.querySelectorAll("article :is(table, td, pre > code, p, li, h1, h2, h3)").forEach((one) => {
      const isBox = one.matches("table, td, pre > code");
      if (one.getBoundingClientRect().right > screen + 1 || isBox && one.scrollWidth > one.clientWidth + 1) {
        const page = one.closest("[data-page]").dataset.page;
        cut.push(`${page} at ${frame.width}: ${one.tagName} ${one.textContent.trim().slice(0, 40)}`);
      }
    });
  }
  document.body.dataset.cut = JSON.stringify(cut);
};
</script>"""
_FRAME = '<iframe src="{page}" width="{width}" height="900" sandbox="allow-same-origin"></iframe>'
"""Without scripts, which do nothing for the layout: the page's own ones begin to index the site for a search."""

_ARTICLE = re.compile(r"(<article\b[^>]*>)(.*?)(</article>)", re.DOTALL)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Logs nothing."""


@contextmanager
def _served(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def cut(site: Path) -> list[str]:
    """The tables and blocks that are cut: each one's page, the width of the screen, and its first words.

    All pages are shown as one, within the frame that the theme gives to each: a browser is done with that in seconds.
    """
    assert CHROMIUM is not None
    articles = {path.relative_to(site).as_posix(): _ARTICLE.search(path.read_text()) for path in site.rglob("*.html")}
    whole = "".join(f'<div data-page="{name}">{found[2]}</div>' for name, found in sorted(articles.items()) if found)
    one = _ARTICLE.sub(lambda article: article[1] + whole + article[3], (site / "index.html").read_text(), count=1)
    (site / "widths-all.html").write_text(re.sub(r"<(img|link rel=\"icon\")[^>]*>", "", one))
    frames = "".join(_FRAME.format(page="widths-all.html", width=width) for width in WIDTHS)
    (site / "widths.html").write_text(_HARNESS.replace("FRAMES", frames))
    with _served(site) as address, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
        command = [CHROMIUM, *options, "--dump-dom", f"{address}/widths.html"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    for name in ("widths.html", "widths-all.html"):
        (site / name).unlink()
    found = re.search(r'data-cut="([^"]*)"', shown)
    assert found is not None, shown[-500:]
    return list(json.loads(unescape(found[1])))


def main() -> None:
    """Prints what is cut, one a line."""
    if CHROMIUM is None:
        print("Chromium was not found: widths of the site are not tested")  # noqa: T201
        return
    found = cut(Path(sys.argv[1]))
    sys.exit("\n".join(found) if found else 0)


if __name__ == "__main__":
    main()
