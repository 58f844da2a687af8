"""HTML pages that need no other file: elements made of text, which is escaped.

Pure. Invariants: what `tag` is given is data and is escaped, control characters are shown as text;
only `Html`, which `tag` and `joined` make, is put in as it is; a page has a Content-Security-Policy
that allows no connection. Jinja's templates take `Html` as it is, too.
"""

from collections.abc import Iterable
from html import escape

from ottla.model.printable import printable

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bb8855", "#888888")
"""Of brokers in a drawing."""
_STYLE = """
body{font:14px system-ui,sans-serif;margin:1.5em;max-width:80em;color:#222;background:#fff}
h1{font-size:1.3em}h2{font-size:1.1em}table{border-collapse:collapse}
td,th{padding:.15em .8em .15em 0;text-align:left;vertical-align:top}
th{border-bottom:1px solid #999}button{margin-right:.4em}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}}
"""


class Html(str):
    """HTML that was made here."""

    __slots__ = ()

    def __html__(self) -> "Html":
        return self


def _escaped(value: object) -> str:
    if isinstance(value, Html):
        return value
    text = str(value)
    return escape("\n".join(map(printable, text.split("\n"))))


def joined(parts: Iterable[object]) -> Html:
    """Return parts one after the other."""
    return Html("".join(map(_escaped, parts)))


def tag(name: str, *children: object, **attributes: object) -> Html:
    """Return an element; of its attributes `class_` is class, `data_x` data-x, None none."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{given}>{joined(children)}</{name}>")


def table(head: Iterable[object], rows: Iterable[Html]) -> Html:
    """Return a table of rows (`tr`) below its head."""
    names = tag("tr", *(tag("th", name, scope="col") for name in head))
    return tag("table", names, *rows)


def page(title: str, body: Iterable[object], style: str = "", script: str = "") -> Html:
    """Return a whole page; `style` and `script` are ours."""
    scripts = "; script-src 'unsafe-inline'" if script else ""
    return Html(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv='
        f"\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'"
        f'{scripts}"><title>{_escaped(title)}</title><style>{_STYLE}{style}</style>'
        f"{tag('h1', title)}{joined(body)}{f'<script>{script}</script>' if script else ''}</html>\n"
    )
