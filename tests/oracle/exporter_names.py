"""The names that the JMX exporter's published rules give Kafka's MBeans, as a table.

    python tests/oracle/exporter_names.py RULES.yml SOURCE > tests/vectors/exporter_names.txt

RULES.yml is a configuration of the exporter, SOURCE says where it is from. All MBeans that
test_metrics.py sees are translated. A line is an MBean without the values of its tags, an
attribute, the metric, and its labels; `{tag}` stands for the value of a tag. What no rule matches
has no line. Only names are kept, none of the rules.
"""

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
EXPORTER_NAMES = Path(__file__).parents[1] / "vectors" / "exporter_names.txt"
UNSAFE = re.compile(r"[^a-zA-Z0-9:_]|_")


def shape_text(bean: str) -> str:
    """Return an MBean with the names of its tags alone: `domain:type=T,name=N,topic`."""
    domain, _, properties = bean.partition(":")
    parts = [p if p.startswith(("type=", "name=")) else p.partition("=")[0]
             for p in properties.split(",")]  # fmt: skip
    return f"{domain}:{','.join(parts)}"


def safe(text: str) -> str:
    """Return a name with `_` for each run of characters that may not be in one."""
    return re.sub(r"_+", "_", UNSAFE.sub("_", text))


def marked(bean: str) -> str:
    """Return an MBean as the exporter's patterns see it, with `{tag}` for the value of each tag.

    Values that a pattern would not take, such as digits, are none of these rules' concern.
    """
    domain, _, properties = bean.partition(":")
    pairs = [p.partition("=")[::2] for p in properties.split(",")]
    shown = (f"{k}={v if k in ('type', 'name') else '{' + k + '}'}" for k, v in pairs)
    return f"{domain}<{', '.join(shown)}><>"


def filled(text: str, match: re.Match[str]) -> str:
    """Put groups in the place of $1, $2, ..."""
    return re.sub(r"\$(\d)", lambda m: match[int(m[1])] or "", text)


def translated(rules: list[dict[str, Any]], bean: str, attribute: str) -> str | None:
    """Return metric and labels by the first rule that matches; None without one."""
    seen = f"{marked(bean)}{attribute}: 0"
    for rule in rules:
        match = re.match(f".*(?:{rule.get('pattern', '.*')}).*", seen)
        if match is None:
            continue
        name = safe(filled(rule["name"], match)).lower()
        labels = [
            f"{safe(filled(key, match))}={filled(value, match)}"
            for key, value in rule.get("labels", {}).items()
        ]
        return " ".join([name, *labels])
    return None


def table(rules: list[dict[str, Any]], mbeans: dict[str, dict[str, str]]) -> Iterator[str]:
    """Yield the lines of the table, sorted."""
    lines = set()
    for bean, attributes in mbeans.items():
        for attribute in attributes:
            found = translated(rules, bean, attribute)
            if found is not None:
                lines.add(f"{shape_text(bean)} {attribute} {found}")
    yield from sorted(lines)


def main() -> int:
    import yaml
    from test_metrics import under_load

    path, source = sys.argv[1:]
    rules = yaml.safe_load(Path(path).read_text(encoding="utf-8"))["rules"]
    with tempfile.TemporaryDirectory() as folder, under_load(Path(folder)) as pair:
        lines = list(table(rules, pair.beans()))
    print("# Written by `python tests/oracle/exporter_names.py`, which says what a line means.")
    print(f"# Rules: {source}")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
