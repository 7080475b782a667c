"""The pages are built as a site, each in its navigation, by the generator that `make docs` runs."""

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT
from tests.docs.site.widths import CHROMIUM, cut


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # the theme's, of a release that pyproject.toml excludes
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    assert "Everything" in (tmp_path / "site" / "configuration.html").read_text()
    assert "deploy/Dockerfile" in (tmp_path / "site" / "deployment" / "index.html").read_text()
    if CHROMIUM is not None:
        assert cut(tmp_path / "site") == []
