"""`scripts/docs` fails where the site would have a dead link, a lost page or something foreign.

The stage `documents` of scripts/test builds the whole site; here are two pages with its settings.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(shutil.which("mkdocs") is None, reason="mkdocs is missing: make setup"),
]


@pytest.fixture
def site(tmp_path):
    """Make a folder with the script, our mkdocs.yml and two pages that link to each other."""
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[0]
    (tmp_path / "mkdocs.yml").write_text(f"{settings}\nnav:\n  - index.md\n  - OTHER.md\n")
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# One\n\n[two](OTHER.md#a-heading)\n")
    (tmp_path / "docs" / "OTHER.md").write_text("# Two\n\n## A heading\n\n[one](index.md)\n")
    return tmp_path


def build(folder):
    return subprocess.run(
        [folder / "scripts" / "docs"], capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.parametrize(
    ("page", "planted", "told"),
    [
        ("index.md", "[a](NOWHERE.md)", "'NOWHERE.md'"),
        ("index.md", "[a](OTHER.md#nowhere)", "'#nowhere'"),
        ("EXTRA.md", "# A page that is not in mkdocs.yml", "EXTRA.md"),
        ("index.md", '<script src="https://example.org/a.js"></script>', "example.org"),
    ],
)
def test_what_is_wrong_fails_the_build(site, page, planted, told):
    with (site / "docs" / page).open("a", encoding="utf-8") as file:
        file.write(f"\n\n{planted}\n")
    done = build(site)
    assert done.returncode == 1, done.stdout
    assert told in done.stdout + done.stderr


def test_a_site_without_faults_is_built(site):
    done = build(site)
    assert done.returncode == 0, done.stderr
    assert (site / "build" / "site" / "index.html").stat().st_size > 1000
