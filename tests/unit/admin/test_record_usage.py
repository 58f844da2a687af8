"""`produce` and `consume` typed wrong: exit code 2 and one line, before a cluster is asked.

What a cluster refuses is in `tests/compat/test_produce_consume.py`.
"""

import pytest

from ottla.cli import grammar as cli

WRONG = [
    ("produce", "name a topic"),
    ("produce a -t b", "two topics"),
    ("produce t -f %q", "--format %q is not one of"),
    ("produce t -f %k%v", "nothing stands between"),
    ("produce t -H =v", "--header '=v'"),
    ("produce t -z brotli", "brotli"),
    ("produce t --timestamp soon", "--timestamp soon"),
    ("produce t --input json -f %v", "only one of them"),
    ("produce t --tombstone --input json", "--tombstone"),
    ("produce t --keep-partitions", "--keep-partitions"),
    ("consume", "name a topic"),
    ("consume t --from soon", "--from soon: write beginning"),
    ("consume t --from 1 --tail 1", "--from, --tail: only one"),
    ("consume t --grep (", "--grep ("),
    ("consume t --regex --until end (", "TOPIC ("),
    ("consume t -f %", "--format it ends with %"),
    ("consume t --follow --until end", "--follow, --until"),
    ("consume t --group g --tail 1", "--group continues"),
]


@pytest.mark.parametrize(("typed", "says"), WRONG)
def test_what_is_typed_wrong_is_one_line(typed, says, capsys):
    assert cli.main([*typed.split(), "--bootstrap-server", "127.0.0.1:1"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert says in err
