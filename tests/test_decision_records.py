"""docs/adr: one plain sequence of numbers, and links that lead to the record they name."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
LIST = DOCS / "adr" / "README.md"
RECORDS = sorted(set((DOCS / "adr").glob("*.md")) - {LIST})


def test_each_record_has_a_number_of_its_own_in_its_name_and_its_title():
    numbers = []
    for path in RECORDS:
        name = re.fullmatch(r"(\d{4})-[a-z0-9-]+\.md", path.name)
        assert name, f"{path.name}: four digits, a hyphen, words"
        title = path.read_text(encoding="utf-8").split("\n", 1)[0]
        assert title.startswith(f"# {int(name[1])}. "), f"{path.name}: {title}"
        numbers.append(name[1])
    assert len(set(numbers)) == len(numbers), "two records have one number"


def test_each_link_to_a_record_leads_to_the_one_it_names():
    link = re.compile(
        r"\[(?:adr/)?(\d{4})\]\((?:\.\./)?(?:docs/)?(?:adr/)?(\d{4}-[a-z0-9-]+\.md)\)"
    )
    names = {path.name for path in RECORDS}
    links = [
        (path.name, *found)
        for path in [DOCS.parent / "README.md", *DOCS.rglob("*.md")]
        for found in link.findall(path.read_text(encoding="utf-8"))
    ]
    assert len(links) > 10
    assert not [one for one in links if one[2] not in names or not one[2].startswith(one[1])]


def test_the_list_has_each_record_with_its_title():
    titles = [path.read_text(encoding="utf-8").split("\n", 1)[0] for path in RECORDS]
    rows = [
        f"| [{path.name[:4]}]({path.name}) | {title.partition('. ')[2]} |"
        for path, title in zip(RECORDS, titles, strict=True)
    ]
    listed = [line for line in LIST.read_text(encoding="utf-8").split("\n") if "](0" in line]
    assert listed == rows
