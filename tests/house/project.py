"""The project's own files, as git lists them; without git, as they lie in its folders."""

import shutil
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("connector", "spark_sink", "emulator")
_FOLDERS = (*PACKAGES, "benchmarks", "docs", "tests")


@cache
def files() -> tuple[Path, ...]:
    """Every file of the project, relative to its root."""
    if shutil.which("git") and (ROOT / ".git").exists():
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
        return tuple(Path(name) for name in names if (ROOT / name).exists())
    found = (path for folder in _FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file())
    return tuple(path.relative_to(ROOT) for path in found if "__pycache__" not in path.parts)


def modules() -> list[Path]:
    """Every Python file of the project, relative to its root."""
    return [path for path in files() if path.suffix == ".py"]
