"""Man pages: the help of each command and group, as roff."""

from collections.abc import Iterator

from ottla.cli.grammar import help_of, walk
from ottla.cli.table import load

EXIT_CODES = (
    ("0", "Success."),
    ("1", "It failed, or found something that is not in order."),
    ("2", "It was typed wrong; nothing was done."),
    ("130", "It was interrupted by Ctrl-C or a signal."),
)
ENVIRONMENT = (
    ("OTTLA_BOOTSTRAP_SERVERS", "The cluster to use where no option names one."),
    ("OTTLA_PROFILE", "The profile to use where no option names one."),
    ("OTTLA_DIR", "Folder of the cluster of `ottla up`; ./ottla-data by default."),
    ("OTTLA_CONFIG", "The file of profiles; ~/.config/ottla/config.toml by default."),
    ("NO_COLOR", "No colors, if it is set to anything."),
    ("COLUMNS", "The width of help."),
)


def pages() -> Iterator[tuple[str, str]]:
    """Yield file name and text of each page."""
    root, _ = load()
    for path, node in ((), root), *walk(root):
        if not node.instead:
            name = "-".join(["ottla", *path])
            usage, _, text = help_of(path).partition("\n\n")
            yield f"{name}.1", _page(name, node.summary, usage.removeprefix("Usage: "), text)


def _page(name: str, summary: str, usage: str, text: str) -> str:
    lines = [
        f'.TH {_roff(name.upper())} 1 "" "Ottla" "Ottla"',
        ".SH NAME",
        f"{_roff(name)} \\- {_roff(summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        _roff(" ".join(usage.split())),
        ".SH DESCRIPTION",
        ".nf",
        *(
            f".SH {_roff(s[:-1].upper())}\n.nf" if s[:1].strip() else _roff(s)
            for s in text.split("\n")
        ),
        ".fi",
    ]
    for heading, rows in ("EXIT STATUS", EXIT_CODES), ("ENVIRONMENT", ENVIRONMENT):
        lines.append(f".SH {heading}")
        for term, meaning in rows:
            lines += [".TP", f"\\fB{_roff(term)}\\fR", _roff(meaning)]
    return "\n".join(lines) + "\n"


def _roff(text: str) -> str:
    """Return text that roff prints as it is."""
    escaped = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    )
    return f"\\&{escaped}" if escaped.startswith((".", "\\(aq")) else escaped
