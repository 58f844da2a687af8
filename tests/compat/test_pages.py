"""The commands of START.md, OPERATIONS.md and README.md do what the pages say."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def pages():
    spec = importlib.util.spec_from_file_location("try_pages", DOCS / "try_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The second takes a minute.
@pytest.mark.parametrize(
    "name", ["START.md", pytest.param("OPERATIONS.md", marks=pytest.mark.alone)]
)
def test_the_commands_of_a_page_do_what_it_says(pages, name, tmp_path):
    try:
        problems = pages.try_page(DOCS / name, tmp_path)
    finally:
        pages.clean_up(tmp_path)
    assert not problems, "\n\n".join(problems)


def test_the_tour_of_the_readme_does_what_it_says(pages, tmp_path):
    try:
        problems = pages.try_tour(tmp_path)
    finally:
        pages.clean_up(tmp_path)
    assert not problems, "\n\n".join(problems)


def test_the_tour_has_its_commands(pages):
    commands = pages.tour((DOCS.parent / "README.md").read_text(encoding="utf-8"))
    assert len(commands) > 20
    assert [c.exit_code for c in commands].count(1) == 1
    assert [c.printed for c in commands if c.printed] == [["2000"]]


def test_what_is_not_as_a_page_says_is_found(pages, tmp_path):
    page = tmp_path / "PAGE.md"
    page.write_text(
        "```console\n$ echo 3 records in 7 s\n4 records in 8 s\n$ echo a 12\na 34\n"
        "$ false\n$ exit 3    # exit code 3\n```\n\n"
        "<!-- expect: b c -->\n```console\n$ printf 'b\\nc\\n'\nd\n$ echo d\nd\n```\n"
    )
    found = [problem.split("\n")[0] for problem in pages.try_page(page, tmp_path)]
    assert found == ["PAGE.md: $ echo 3 records in 7 s", "PAGE.md: $ false", "PAGE.md: $ echo d"]
