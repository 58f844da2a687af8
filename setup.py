"""Makes what a package index shows from README.md; all else is in pyproject.toml.

An index shows the README without the repository, so links into it would lead nowhere: they become plain text there,
the path included, and pictures are left out. Once pyproject.toml names a repository (project.urls, Repository), they
become links into it.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def for_an_index(text: str, repository: str | None) -> str:
    """Return README.md's text with links that work where the repository is not at hand."""

    def link(found: re.Match[str]) -> str:
        picture, label, target = found.groups()
        if repository:
            kind = "raw" if picture else "blob"
            return f"{picture}[{label}]({repository.rstrip('/')}/{kind}/HEAD/{target})"
        if picture:
            return ""
        return label if target in label else f"{label} ({target} in the repository)"

    return LINK.sub(link, text)


def urls() -> dict[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project.get("urls", {})


if __name__ == "__main__":
    setup(
        long_description=for_an_index(
            (ROOT / "README.md").read_text(encoding="utf-8"), urls().get("Repository")
        ),
        long_description_content_type="text/markdown",
    )
