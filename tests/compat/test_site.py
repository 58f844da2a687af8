"""`scripts/docs` fails where the site would have a dead link, a lost page or something foreign."""

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
def copy(tmp_path):
    for name in ("docs", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    return tmp_path


def build(folder):
    return subprocess.run(
        [folder / "scripts" / "docs"], capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.parametrize(
    ("page", "planted", "told"),
    [
        ("START.md", "[a](NOWHERE.md)", "'NOWHERE.md'"),
        ("START.md", "[a](WHY.md#nowhere)", "'#nowhere'"),
        ("EXTRA.md", "# A page that is not in mkdocs.yml", "EXTRA.md"),
        ("START.md", '<script src="https://example.org/a.js"></script>', "example.org"),
    ],
)
def test_what_is_wrong_fails_the_build(copy, page, planted, told):
    with (copy / "docs" / page).open("a", encoding="utf-8") as file:
        file.write(f"\n\n{planted}\n")
    done = build(copy)
    assert done.returncode == 1, done.stdout
    assert told in done.stdout + done.stderr


def test_the_site_is_built(copy):
    done = build(copy)
    assert done.returncode == 0, done.stderr
    assert (copy / "build" / "site" / "index.html").stat().st_size > 1000
