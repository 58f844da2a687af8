"""Properties files, as `java.util.Properties` reads them (compared in tests/oracle)."""

import pytest

from ottla.model.errors import ConfigError
from ottla.model.properties import as_properties, load_properties, load_settings, parse_properties


def test_only_newline_and_carriage_return_end_a_line():
    data = "a=1\x85b=2\x0bc\x0c\x1c\r\nd=3\re=4\nf = \xe9".encode("iso-8859-1")
    assert load_properties(data) == {
        "a": "1\x85b=2\x0bc\x0c\x1c",
        "d": "3",
        "e": "4",
        "f": "\xe9",
    }


def test_what_continues_and_what_does_not():
    assert parse_properties("a=1\\\n   # 2\nb=3\\\\\nc=\\\r\n  4\n#5\\\nd=6\\") == {
        "a": "1# 2",
        "b": "3\\",
        "c": "4",
        "d": "6",
    }


def test_two_escapes_may_make_one_character():
    assert parse_properties(r"a=\ud83d\ude00\u00E9\q\t") == {"a": "😀éq\t"}


@pytest.mark.parametrize("text", [r"dir=D:\users", r"a=\u12", r"a=\u12g4", r"a\u=1"])
def test_a_malformed_escape_is_one_line(text):
    with pytest.raises(ConfigError, match=r"^malformed \\u escape: [^\n]*$"):
        parse_properties(text)
    with pytest.raises(ConfigError, match=r"^x.properties: malformed"):
        load_settings(text.encode(), "x.properties")


def test_clients_do_not_see_blanks_around_values():
    assert load_settings(b"password= a b \t\n", "f") == {"password": "a b"}


@pytest.mark.parametrize("value", ["", " a", "a ", "C:\\x", "é€😀", "a\nb\r\t\f", "#!=:"])
def test_what_is_written_reads_back(value):
    settings = {f"k{value}": value}
    assert load_properties(as_properties(settings).encode("ascii")) == settings
