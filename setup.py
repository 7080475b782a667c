"""The project's links on an index, which its owner names when building; pyproject.toml declares everything else.

``PROJECT_REPOSITORY`` is the address of the repository, ``PROJECT_DOCUMENTATION`` that of the site. Without them a
wheel has no links: none is better than one that leads nowhere.
"""

import os

from setuptools import setup

_repository = os.environ.get("PROJECT_REPOSITORY", "").rstrip("/")
_documentation = os.environ.get("PROJECT_DOCUMENTATION", "")
_links = {
    "Documentation": _documentation,
    "Repository": _repository,
    "Issues": _repository and f"{_repository}/issues",
    "Changelog": _repository and f"{_repository}/blob/main/CHANGELOG.md",
}

setup(project_urls={name: link for name, link in _links.items() if link})
