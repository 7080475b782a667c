"""The programs of docs/embedding.md, written to files and run as a reader of the page would run them."""

import os
import re
import subprocess
from pathlib import Path

from tests.docs.clean import BIN

PAGE = Path(__file__).parents[3] / "docs" / "embedding.md"
_PROGRAM = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def programs() -> dict[str, str]:
    """The page's programs, by the name in their first line."""
    return dict(_PROGRAM.findall(PAGE.read_text(encoding="utf-8")))


def configuration() -> str:
    """The page's configuration."""
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return str(text)


def written(folder: Path) -> Path:
    """Writes every program into a folder."""
    for name, text in programs().items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def started(folder: Path, name: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts a program of the page in a folder."""
    env = {key: value for key, value in os.environ.items() if key != "SPANNER_EMULATOR_HOST"}
    return subprocess.Popen(
        [str(BIN / "python"), "-W", "error", name, *arguments],
        cwd=folder,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def output(folder: Path, name: str, *, code: int = 0, timeout: float = 300) -> str:
    """The output of a program that is run to its end."""
    with started(folder, name) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{name} did not end: {process.communicate()}") from None
    assert process.returncode == code, f"{name} ended with {process.returncode}: {out}{err}"
    assert "Traceback" not in err, err
    return out
