"""The pages are built as a site, each in its navigation, by the generator that `make docs` runs."""

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.messages.catalogue import FILLED, alarms, errors, logged
from tests.docs.pages import ROOT
from tests.docs.site.widths import CHROMIUM, cut


@pytest.mark.long
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # the theme's, of a release that pyproject.toml excludes
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    assert "Everything" in (tmp_path / "site" / "configuration.html").read_text()
    assert "deploy/Dockerfile" in (tmp_path / "site" / "deployment" / "index.html").read_text()
    index = json.loads((tmp_path / "site" / "search" / "search_index.json").read_text())
    found = _plain(html.unescape(re.sub("<[^>]+>", "", " ".join(one["text"] for one in index["docs"]))))
    parts = {max(map(_plain, one.text.split(FILLED)), key=len) for one in (*errors(), *alarms(), *logged())}
    assert {part for part in parts if part not in found} == set(), "the search does not find these messages"
    if CHROMIUM is not None:
        assert cut(tmp_path / "site") == []


def _plain(text: str) -> str:
    """A text without what is markup, in messages and pages alike."""
    return " ".join(re.sub(r"[`*\\|]", "", text).split())
