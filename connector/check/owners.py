"""Other installed distributions that have a package of this project's names: their files may replace or hide ours."""

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import orjson

OWN = "spanner-cdc-spark"
NAMES = ("connector", "spark_sink")

_RECORDED = re.compile(rf'^"?({"|".join(NAMES)})(?:/|\.py,)', re.MULTILINE)
"""A file of a package, or a module, of one of the names, in the ``RECORD`` of what a wheel installed."""


def other_owners() -> list[str]:
    """A line for each other distribution on the import path that has one of the names.

    Reads two or three small files of each distribution: ``importlib.metadata.packages_distributions`` parses every
    name of a file, which takes 20 times as long.
    """
    found: dict[str, set[str]] = {}
    for one in distributions():
        names = set(_names_of(one))
        if names and re.sub(r"[-_.]+", "-", one.name).lower() != OWN:
            found.setdefault(f"{one.name} {one.version}", set()).update(names)
    return [
        f"the distribution {other} has a package {' and '.join(sorted(names))}, too: files of the one may replace or"
        f" hide those of the other. Give {OWN} an environment of its own, or uninstall both and install {OWN} again"
        for other, names in sorted(found.items())
    ]


def _names_of(one: Distribution) -> Iterator[str]:
    """Those of the names that a distribution has, as its metadata tell."""
    yield from {*NAMES}.intersection((one.read_text("top_level.txt") or "").split())
    yield from _RECORDED.findall(one.read_text("RECORD") or "")
    if source := _editable_source(one):
        yield from (
            name for name in NAMES for root in (source, source / "src") if (root / name / "__init__.py").is_file()
        )


def _editable_source(one: Distribution) -> Path | None:
    """The folder that a distribution is installed from, if its files are used where they are."""
    text = one.read_text("direct_url.json")
    origin = orjson.loads(text) if text else {}
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return Path(url2pathname(urlsplit(origin["url"]).path))
