"""What is typed, what a function is called with, and what help says of it."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import click
import pytest

from ottla.cli import Argument, Option, UsageError, grammar
from ottla.cli.declaring import read_plainly
from ottla.cli.grammar import main
from ottla.cli.table import Node, load
from support.commands import every_command


class Colour(StrEnum):
    red = "red"
    blue = "a-blue"


@dataclass(kw_only=True)
class Shared:
    """Options of several commands."""

    place: Annotated[Path | None, Option(metavar="FOLDER")] = None
    set_: Annotated[list[str] | None, Option("--set", hidden=("--kafkas-set",))] = None


def example(
    kind: Annotated[str, Argument(metavar="KIND")],
    shared: Shared,
    places: Annotated[list[Path] | None, Argument(metavar="[PLACE]...")] = None,
    count: Annotated[int, Option("--count", "-n", min=1, max=9, help="How many")] = 3,
    part: Annotated[list[int] | None, Option("--part", "-p")] = None,
    colour: Annotated[Colour, Option()] = Colour.red,
    wait: Annotated[float | None, Option(min=0)] = None,
    yes: Annotated[bool, Option("--yes", "-y")] = False,
    keep: Annotated[bool, Option(help="Keep it")] = True,
) -> dict[str, object]:
    return {"kind": kind, "shared": shared, "places": places, "count": count, "part": part,
            "colour": colour, "wait": wait, "yes": yes, "keep": keep}  # fmt: skip


NODE = Node("Do it.", "broker.example", details="At some length.\n\n\b\nExample: ottla x '%k\\n'")
COMMAND = grammar._Command("example", example, NODE)
DEFAULTS = {
    "kind": "a", "shared": Shared(), "places": None, "count": 3, "part": None,
    "colour": Colour.red, "wait": None, "yes": False, "keep": True,
}  # fmt: skip

GOOD = [
    ("a", {}),
    ("a x y", {"places": [Path("x"), Path("y")]}),
    ("--count 5 a --yes x", {"count": 5, "yes": True, "places": [Path("x")]}),
    ("a -n5", {"count": 5}),
    ("a -yn5", {"count": 5, "yes": True}),
    ("a -n 5 --count=6", {"count": 6}),
    ("a -p1 -p 2 --part=-3", {"part": [1, 2, -3]}),
    ("a --part -3", {"part": [-3]}),
    ("a --colour a-blue --wait 1e1", {"colour": Colour.blue, "wait": 10.0}),
    ("a --no-keep", {"keep": False}),
    ("a --no-keep --keep", {"keep": True}),
    ("a -- --yes", {"places": [Path("--yes")]}),
    ("a -", {"places": [Path("-")]}),
    ("a --set k=v=w --set=", {"shared": Shared(set_=["k=v=w", ""])}),
    ("a --kafkas-set k --place p", {"shared": Shared(set_=["k"], place=Path("p"))}),
]


def called(typed):
    with COMMAND.make_context("example", typed.split()) as ctx:
        return COMMAND.invoke(ctx)


@pytest.mark.parametrize(("typed", "wanted"), GOOD)
def test_what_a_command_is_called_with(typed, wanted):
    assert called(typed) == DEFAULTS | wanted


BAD = [
    ("", "Missing argument 'KIND'"),
    ("a --count", "Option '--count' requires an argument"),
    ("a --count x", "'--count' / '-n': 'x' is not a valid integer"),
    ("a -n 1.5", "'1.5' is not a valid integer"),
    ("a --count 0", "0 is not in the range 1<=x<=9"),
    ("a --wait -1", "-1.0 is not in the range x>=0"),
    ("a --wait nan", "nan is not a number"),
    ("a --wait soon", "'soon' is not a valid number"),
    ("a --colour green", "'green' is not one of 'red', 'a-blue'"),
    ("a --yes=1", "Option '--yes' does not take a value"),
    ("a --cuont 1", "there is no option --cuont (did you mean --count?)"),
    ("a --cou 1", "there is no option --cou (did you mean --count?)"),
    ("a -x", "there is no option -x"),
]


@pytest.mark.parametrize(("typed", "says"), BAD)
def test_what_is_typed_wrong_is_told(typed, says):
    with pytest.raises(click.UsageError) as wrong:
        called(typed)
    assert says in wrong.value.format_message()


def test_one_argument_too_many(capsys):
    assert main(["produce", "t", "u"]) == 2
    assert "Got unexpected extra argument (u)" in capsys.readouterr().err


def test_help(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ctx = click.Context(COMMAND, info_name="ottla example", **grammar.SETTINGS)
    assert COMMAND.get_help(ctx) == (
        """\
Usage: ottla example [OPTIONS] KIND [PLACE]...

  Do it.

  At some length.

  Example: ottla x '%k\\n'

Options:
  -n, --count N        How many  [default: 3; 1<=x<=9]
  -p, --part N
  --colour red|a-blue  [default: red]
  --wait NUMBER        [x>=0]
  -y, --yes
  --keep / --no-keep   Keep it
  --place FOLDER
  --set TEXT
  -h, --help           Show this message and exit."""
    )


def server(
    config: Annotated[str, Option()],
    set_: Annotated[list[str] | None, Option("--set")] = None,
    port: Annotated[int, Option()] = 1,
    colour: Annotated[Colour, Option()] = Colour.red,
    loud: Annotated[bool, Option("--loud")] = False,
) -> dict[str, object]:
    return locals()


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("--config f", {"config": "f"}),
        ("--config f --set a --set b=c", {"config": "f", "set_": ["a", "b=c"]}),
        ("--config f --port 7 --colour a-blue", {"config": "f", "port": 7, "colour": Colour.blue}),
        ("--config=f", None),
        ("--port 7", None),
        ("--config f --loud", None),
        ("--config f --port x", None),
        ("--config f --port", None),
        ("--config -f", None),
        ("--config f --colour green", None),
        ("--conf f", None),
    ],
)
def test_a_server_reads_whole_names_and_values_without_click(typed, wanted):
    called = None if wanted is None else server(**wanted)
    assert read_plainly(server, typed.split()) == called


@pytest.mark.parametrize("name", every_command())
def test_each_command(name, monkeypatch):
    """Its module is there, its names are its own, it has an example and fits a terminal."""
    command = every_command()[name]
    monkeypatch.setenv("COLUMNS", "80")
    text = grammar.help_of(name.split())
    for line in text.splitlines():
        assert len(line) <= 80 or line.strip().startswith(("Example", "Usage")), line
    assert "Example: " in text
    names = [n for p in command.known if p.is_option for n in (*p.names, *p.declared.hidden)]
    assert len(names) == len(set(names))
    assert all(n not in text for p in command.known for n in p.declared.hidden)


def test_commands_that_are_not_there(capsys):
    assert main(["topcs", "list"]) == 2
    assert capsys.readouterr().err == "ottla: there is no command topcs (did you mean topics?)\n"
    assert main(["topics", "lst"]) == 2
    assert "there is no command topics lst (did you mean list?)" in capsys.readouterr().err
    assert main(["--topic"]) == 2
    assert "name a command before --topic" in capsys.readouterr().err
    with pytest.raises(UsageError, match="no command lst"):
        grammar.help_of(["lst"])


def test_a_group_without_a_command_lists_them(capsys):
    assert main([]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "Usage: ottla " in told.err
    assert main(["topics", "--help"]) == 0
    assert "  create" in capsys.readouterr().out


def test_help_begins_with_ten_commands(capsys):
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out.split("Commands:\n")[1]
    names = [line.split()[0] for line in listed.splitlines() if line[2:3].strip()]
    assert names == ["up", "down", "status", "broker", "topics", "produce", "consume", "groups",
                     "console", "why"]  # fmt: skip


def test_help_has_all_commands_by_task(capsys):
    root, tasks = load()
    assert main(["help"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in f"\n{out}" for name, n in root.children.items() if not n.instead)
    for task in tasks:
        assert main(["help", task]) == 0
        assert tasks[task] in capsys.readouterr().out
    assert main(["help", "topics", "create"]) == 0
    assert "--replication-factor" in capsys.readouterr().out
    assert main(["help", "nosuch"]) == 2


RENAMED = {
    "logs": "dump-log", "timeline t": "history timeline t", "replay": "history replay",
    "merge-state-changes": "history merge", "sim scenario": "sim check --print",
    "broker shutdown 1": "broker stop --leaders-only 1", "history why t-0": "why t-0",
}  # fmt: skip


@pytest.mark.parametrize("old", RENAMED)
def test_renamed_commands_still_work_and_say_their_new_name(old, capsys):
    assert grammar.renamed(old.split()) == RENAMED[old].split()
    assert " is now `ottla " in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["--version", "version"])
def test_version(typed, capsys):
    assert main([typed]) == 0
    assert capsys.readouterr().out.startswith("ottla 0.")
