"""Opens the page in Debian's headless Chromium, and returns what it became."""

import itertools
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any

from connector.telemetry import server as product

CHROMIUM = shutil.which("chromium")
_UNSEEN = re.compile(r"<(script|style|title)\b.*?</\1>|<[^>]*\shidden(=\"\")?[^>]*>.*?</(section|p|form)>", re.DOTALL)
_PROBE = b"""
addEventListener("securitypolicyviolation", (event) => console.error("CSP " + event.violatedDirective));
const given = document.currentScript.dataset;
if (given.token) sessionStorage.setItem("token", given.token);
setTimeout(() => { document.body.dataset.wide = document.documentElement.scrollWidth - innerWidth;
  const drawings = [...document.querySelectorAll(".plot svg")];
  const scales = drawings.map((one) => one.getBoundingClientRect().width / one.viewBox.baseVal.width);
  document.body.dataset.scale = Math.min(...scales);
  document.body.dataset.cut = [...document.querySelectorAll(".plot text")].filter((one) => one.getBBox().x < 0
    || one.getBoundingClientRect().right > one.closest("svg").getBoundingClientRect().right + 1)
    .map((one) => one.textContent).join(" ");
  if (given.clicked) document.querySelector(`footer a[href="${given.clicked}"]`).click();
  document.body.dataset.requests = performance.getEntriesByType("resource").map((one) => one.name).join(" "); }, 1500);
addEventListener("DOMContentLoaded", () => {
  const lost = document.getElementById("lost");
  new MutationObserver(() => lost.hidden || fetch("/lost")).observe(lost, { attributes: true, childList: true }); });
"""


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was opened: its DOM as HTML, and what the browser logged."""

    html: str
    console: list[str]

    @property
    def text(self) -> str:
        """The text of the page, without markup."""
        visible = re.sub(
            r"<(script|style|title)\b.*?</\1>|<[^>]*\shidden(=\"\")?[^>]*>.*?</(section|p|form)>",
            " ",
            self.html,
            flags=re.S,
        )
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", visible))

    def data(self, name: str) -> str:
        """An attribute that the probe has set on the body."""
        found = re.search(rf'<body[^>]*data-{name}="([^"]*)"', self.html)
        assert found is not None, self.html[:500]
        return found[1]


class _Silent:
    """Answers /api/status once, if it hangs, and no other request until the page says that it has no answer."""

    def __init__(self, *, hangs: bool) -> None:
        self._answers = itertools.count(0 if hangs else -sys.maxsize)
        self._lost = threading.Event()

    def holds(self, path: str) -> bool:
        """True if a request is held until then; it may be answered when this returns."""
        if path == "/lost":
            self._lost.set()
        if path in ("/held.js", "/lost") or (path == "/api/status" and next(self._answers) > 0):
            return self._lost.wait(60)
        return False


@contextmanager
def served(status: dict[str, Any] | None, token: str = "", clicked: str = "", *, hangs: bool = False) -> Iterator[str]:
    """The page's own files with the product's headers, and an answer of /api/status, or none.

    The browser has typed the token, if there is one, and clicks on the link in the end, if there is one. A server that
    ``hangs`` answers /api/status once; the page is loaded when it says that there is no answer any more.
    """
    folder = resources.files(product.__package__ or "") / "page"

    probe = f'<script src="/probe.js" data-token="{token}" data-clicked="{clicked}"></script>'.encode()
    probe += b'<script src="/held.js" async></script>' if hangs else b""
    silent = _Silent(hangs=hangs)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if silent.holds(path):
                self._answer(204, "text/javascript", b"")
            elif path == "/api/status" and token and self.headers["Authorization"] != f"Bearer {token}":
                self._answer(401, "text/plain", b"")
            elif path == "/api/status":
                self._answer(200 if status else 503, "application/json", json.dumps(status).encode())
            elif path == "/probe.js":
                self._answer(200, "text/javascript", _PROBE)
            elif path in product._PAGE:
                name, kind = product._PAGE[path]
                body = (folder / name).read_bytes()
                if path == "/":
                    body = body.replace(b"</head>", probe + b"</head>")
                self._answer(200, kind, body)
            else:
                self._answer(404, "text/plain", b"")

        def _answer(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            for name, value in {**product._HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def opened(
    status: dict[str, Any] | None, folder: Path, *, width: int = 1200, height: int = 1500, dark: bool = False,
    picture: Path | None = None, token: str = "", clicked: str = "", hangs: bool = False,
) -> Page:  # fmt: skip
    """Opens the page, lets three seconds pass in it, and returns it; with a picture, if one is wanted.

    Where the server ``hangs`` it is returned once it says so: the browser's own time waits for each answer.
    """
    assert CHROMIUM is not None
    output = [f"--screenshot={picture}"] if picture else ["--dump-dom"]
    with served(status, token, clicked, hangs=hangs) as url:
        done = subprocess.run(
            [
                *(
                    CHROMIUM,
                    "--headless=new",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--disable-dev-shm-usage",
                    "--hide-scrollbars",
                ),
                *(
                    f"--user-data-dir={folder / 'profile'}",
                    f"--window-size={width},{height}",
                ),
                *([] if hangs else ["--virtual-time-budget=3000"]),
                *("--enable-logging=stderr", "--no-first-run", "--disable-background-networking"),
                *(["--blink-settings=preferredColorScheme=0"] if dark else []),
                *output,
                url,
            ],
            capture_output=True,
            timeout=90,
            check=True,
        )
    console = [line for line in done.stderr.decode(errors="replace").splitlines() if "CONSOLE" in line]
    return Page(done.stdout.decode(), console)
