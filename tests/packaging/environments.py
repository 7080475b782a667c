"""Makes a virtual environment with a wheel and what it requires, without a network, as an archive for Spark."""

import re
import shutil
import sys
import tarfile
import venv
from importlib import metadata
from pathlib import Path

from tests.packaging.imports import normalized


def archive(wheel: Path, folder: Path) -> Path:
    """Packs an environment with an unpacked wheel and copies of the distributions that it requires here.

    Args:
        wheel: the unpacked wheel.
        folder: where the environment and ``environment.tar.gz`` are made.

    Returns:
        The archive's path.
    """
    environment = folder / "packed"
    venv.create(environment, symlinks=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    shutil.copytree(wheel, packages, dirs_exist_ok=True)
    (own,) = metadata.distributions(path=[str(wheel)])
    for name in sorted(_required(own)):
        _copy(metadata.distribution(name), packages)
    path = folder / "environment.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as file:
        for one in environment.iterdir():
            file.add(one, one.name)
    return path


def _required(own: metadata.Distribution) -> set[str]:
    """The installed distributions that one requires, and those that they require; extras are omitted."""
    todo, found = [own], set[str]()
    while todo:
        for requirement in todo.pop().requires or ():
            (name,) = re.findall(r"^[A-Za-z0-9._-]+", requirement)
            if "extra ==" in requirement or normalized(name) in found:
                continue
            try:
                todo.append(metadata.distribution(name))
            except metadata.PackageNotFoundError:
                continue  # its marker excludes this Python
            found.add(normalized(name))
    return found


def _copy(distribution: metadata.Distribution, packages: Path) -> None:
    for path in distribution.files or ():
        if not path.is_absolute() and ".." not in path.parts and path.suffix != ".pyc":
            target = packages / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(distribution.locate_file(path)), target)


def unpacked(path: Path, folder: Path) -> Path:
    """Unpacks an archive into a folder, as Spark does for executors; returns its Python."""
    with tarfile.open(path) as file:
        file.extractall(folder, filter="fully_trusted")
    assert (folder / "bin" / "python").resolve() == Path(sys.executable).resolve()
    return folder / "bin" / "python"
