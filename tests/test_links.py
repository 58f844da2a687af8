"""Links of the documents lead somewhere, anchors included; so do those on a package index."""

import re
import runpy
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
CODE = re.compile(r"^(```+).*?^\1$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)


def without_code(text):
    return CODE.sub("", text)


def anchors(text):
    """The names that code forges, and our site, give to headings."""
    found = []
    fenced = re.compile(r"^(```+).*?^\1$", re.MULTILINE | re.DOTALL)
    for heading in HEADING.findall(fenced.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.append(f"{name}-{found.count(name)}" if name in found else name)
    return found


def dead(page, text):
    lost = []
    for link in LINK.findall(without_code(text)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = page if not path else page.parent / path
        if not target.exists():
            lost.append(f"{link}: there is no {path}")
        elif anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
            lost.append(f"{link}: no heading of this name")
    return lost


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_leads_somewhere(page):
    assert not dead(page, page.read_text(encoding="utf-8"))


def test_each_test_and_story_in_the_checklist_exists():
    text = (ROOT / "docs" / "CHECKLIST.md").read_text(encoding="utf-8")
    tests, stories = re.findall(r"`([\w/]+\.py)::(\w+)`", text), re.findall(r"story `(\w+)`", text)
    assert len(tests) > 400
    assert stories
    folder = ROOT / "tests"
    sources = {path: (folder / path).read_text(encoding="utf-8") for path, _ in tests}
    assert not [one for one in tests if not re.search(rf"\bdef {one[1]}\(", sources[one[0]])]
    assert not [name for name in stories if not (folder / "stories" / f"{name}.txt").exists()]


def test_a_package_index_shows_no_link_into_the_repository():
    setup = runpy.run_path(str(ROOT / "setup.py"))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = setup["for_an_index"](text, setup["urls"]().get("Repository"))
    assert [link for link in LINK.findall(text) if "docs/" in link]
    assert not [link for link in LINK.findall(shown) if not link.startswith("https://")]
    assert "docs/ARCHITECTURE.md" in shown


def test_with_a_repository_the_links_lead_into_it():
    for_an_index = runpy.run_path(str(ROOT / "setup.py"))["for_an_index"]
    text = "![p](docs/p.svg) [a](docs/A.md#b) [c](https://example.org/) [d](#e)"
    assert for_an_index(text, "https://example.org/x/") == (
        "![p](https://example.org/x/raw/HEAD/docs/p.svg) "
        "[a](https://example.org/x/blob/HEAD/docs/A.md#b) [c](https://example.org/) [d](#e)"
    )
    assert for_an_index(text, None) == (
        " a (docs/A.md#b in the repository) [c](https://example.org/) [d](#e)"
    )
