"""Man pages, built from the help: one for `ottla`, one for each group and each command.

Pure text (roff, man macros).
"""

from collections.abc import Iterator, Sequence

from ottla.cli.declaring import Parameter, asks_cluster, parameters
from ottla.cli.help_text import described, names, paragraphs, placeholder
from ottla.cli.parsing import EVERYWHERE
from ottla.cli.tree import Command, Group

EXIT_CODES = (
    ("0", "It held: done, or found in order."),
    ("1", "It failed, or something asked for is not in order."),
    ("2", "It was typed wrong; nothing was done."),
    ("130", "It was interrupted by Ctrl-C or a signal."),
)
ENVIRONMENT = (
    ("OTTLA_BOOTSTRAP_SERVERS", "The cluster that is asked, where no option names one."),
    ("OTTLA_PROFILE", "The profile that is used, where no option names one."),
    ("OTTLA_DIR", "Folder of the cluster of `ottla up`; ./ottla-data by default."),
    ("OTTLA_CONFIG", "The file of profiles; ~/.config/ottla/config.toml by default."),
    ("NO_COLOR", "No colours, if it is set to anything."),
    ("COLUMNS", "How wide help is."),
)


def pages(root: Group, connection: Sequence[Parameter]) -> Iterator[tuple[str, str]]:
    """Yield file name and text of each page.

    `connection` are the parameters that every command has that asks a cluster.
    """
    yield from _group([], root, connection)


def _group(
    path: list[str], group: Group, connection: Sequence[Parameter]
) -> Iterator[tuple[str, str]]:
    name = "-".join(["ottla", *path])
    lines = _head(name, group.summary)
    lines += [
        ".SH SYNOPSIS",
        f"\\fB{_text(' '.join(['ottla', *path]))}\\fR \\fICOMMAND\\fR [OPTIONS]",
    ]
    lines += [".SH DESCRIPTION", _text(group.summary)]
    lines += [
        line for text in filter(None, group.details.split("\n\n")) for line in (".PP", _text(text))
    ]
    headings = list(dict.fromkeys(child.section for child in group.children.values()))
    for heading in headings:
        lines.append(f".SH {_text((heading or 'Commands').upper())}")
        for child_name, child in group.children.items():
            if child.section == heading:
                lines += [".TP", f"\\fB{_text(child_name)}\\fR", _text(child.summary)]
    lines += _tail()
    yield f"{name}.1", "\n".join(lines) + "\n"
    for child_name, child in group.children.items():
        if isinstance(child, Group):
            yield from _group([*path, child_name], child, connection)
        elif child.target:
            page = "-".join(["ottla", *path, child_name])
            yield f"{page}.1", command_page([*path, child_name], child, connection)


def command_page(
    path: Sequence[str], command: Command, connection: Sequence[Parameter] = ()
) -> str:
    """Return the page of one command."""
    function = command.function()
    known = parameters(function)
    if asks_cluster(known):
        known += connection
    first, *others = paragraphs(function) or [command.summary]
    arguments = [p for p in known if not p.is_option]
    lines = _head("-".join(["ottla", *path]), command.summary)
    usage = " ".join(["[OPTIONS]", *(placeholder(p) for p in arguments)])
    lines += [".SH SYNOPSIS", f"\\fB{_text(' '.join(['ottla', *path]))}\\fR {_text(usage)}"]
    lines += [".SH DESCRIPTION", _text(first)]
    examples = [text for text in others if text.startswith("Example")]
    for text in others:
        if text not in examples:
            lines += [".PP", _text(text)]
    explained = [p for p in arguments if p.declared.help]
    if explained:
        lines.append(".SH ARGUMENTS")
        for p in explained:
            lines += [".TP", f"\\fI{_text(placeholder(p))}\\fR", _text(p.declared.help)]
    lines.append(".SH OPTIONS")
    for p in known:
        if p.is_option:
            lines += [".TP", f"\\fB{_text(names(p.names, p))}\\fR", _text(described(p)) or "\\&"]
    for option in EVERYWHERE.values():
        lines += [".TP", f"\\fB{_text(names(option.names, None))}\\fR", _text(option.help)]
    if examples:
        lines.append(".SH EXAMPLES")
        for text in examples:
            lines += [".PP", ".nf", _text(text.partition(":")[2].strip()), ".fi"]
    return "\n".join(lines + _tail()) + "\n"


def _head(name: str, summary: str) -> list[str]:
    return [
        f'.TH {_text(name.upper())} 1 "" "Ottla" "Ottla"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(summary.rstrip('.'))}",
    ]


def _tail() -> list[str]:
    lines = [".SH EXIT STATUS"]
    for code, meaning in EXIT_CODES:
        lines += [".TP", f"\\fB{code}\\fR", _text(meaning)]
    lines.append(".SH ENVIRONMENT")
    for variable, meaning in ENVIRONMENT:
        lines += [".TP", f"\\fB{_text(variable)}\\fR", _text(meaning)]
    return lines


def _text(text: str) -> str:
    """Return text that roff prints as it is."""
    escaped = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    )
    return f"\\&{escaped}" if escaped.startswith((".", "\\(aq")) else escaped
