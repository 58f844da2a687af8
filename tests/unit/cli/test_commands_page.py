"""docs/COMMANDS.md is what `--help` prints; its lines fit a terminal of 80 columns."""

import html
import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture
def page(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    spec = importlib.util.spec_from_file_location("list_commands", DOCS / "list_commands.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.page()


def test_the_page_of_commands_is_their_help(page):
    committed = (DOCS / "COMMANDS.md").read_text(encoding="utf-8")
    assert committed == page, "run: python docs/list_commands.py"


def test_help_is_not_wider_than_a_terminal(page):
    """Examples are to be copied, so they are not broken; all else is."""
    help_texts = page.split("```text\n")[1:]
    lines = [line for text in help_texts for line in text.split("```")[0].split("\n")]
    assert len(lines) > 1000
    assert not [line for line in lines if len(line) > 80 and "Example: " not in line]


def test_each_command_has_an_example(page):
    sections = page.split("\n## ottla ")[1:] + page.split("\n### ottla ")[1:]
    commands = [text for text in sections if "Commands:" not in text]
    assert len(commands) > 40
    assert not [text.split("\n")[0] for text in commands if "Example: " not in text]


def test_the_pictures_show_the_help_of_today(page):
    """Of the pictures of a terminal these are the ones that do not differ from run to run."""
    for name, command in (("help", "ottla"), ("help-command", "ottla reassign execute")):
        svg = (DOCS / f"terminal-{name}.svg").read_text(encoding="utf-8")
        drawn = re.findall(r'y="([\d.]+)" textLength="[\d.]+" clip-path[^>]*>([^<]*)</text>', svg)
        lines = {}
        for y, text in drawn:
            lines[y] = lines.get(y, "") + html.unescape(text).replace("\xa0", " ").rstrip("\n")
        shown = [line.rstrip() for line in lines.values()]
        text = re.split(rf"^##+ {command}$", page, flags=re.MULTILINE)[1].split("```")[1]
        wanted = [line for line in text.split("\n")[1:] if line]
        assert [line for line in shown if line][1:] == wanted, (
            "run: python docs/draw_terminal.py help"
        )


PICTURES = sorted(DOCS.glob("terminal-*.svg"))


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_each_picture_is_on_a_page_and_no_line_of_it_is_cut(path):
    pages = [*DOCS.glob("*.md"), DOCS.parent / "README.md"]
    assert [page.name for page in pages if path.name in page.read_text(encoding="utf-8")]
    svg = path.read_text(encoding="utf-8")
    (width,) = re.findall(r'clip-terminal">\s*<rect x="0" y="0" width="([\d.]+)"', svg)
    texts = re.findall(r'<text class="[^"]*" x="([\d.]+)" y="[\d.]+" textLength="([\d.]+)"', svg)
    assert len(texts) > 10
    assert max(float(x) + float(length) for x, length in texts) <= float(width) + 14  # a line end
    drawn = DOCS / "draw_terminal.py"
    assert f'"{path.stem.removeprefix("terminal-")}": (' in drawn.read_text(encoding="utf-8")
