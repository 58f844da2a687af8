"""Records on a terminal."""

from ottla.admin.commands import consume


def test_what_would_steer_a_terminal_is_escaped():
    """Into a pipe bytes go as they are."""
    shown = consume.for_terminal
    assert shown(b"\x1b]0;title\x07\x9b2J\r\n") == b"\\x1b]0;title\\x07\\x9b2J\\r\n"
    assert shown("größe 名前\t\n".encode()) == "größe 名前\t\n".encode()
    assert shown("\x9b\u202e".encode()) == b"\\x9b\\u202e"
