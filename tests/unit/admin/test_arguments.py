"""What is typed, what a function is called with, and what help says of it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pytest

from ottla.admin.cli import main
from ottla.cli import Argument, Option, UsageError, help_text
from ottla.cli.declaring import parameters
from ottla.cli.parsing import parse
from ottla.cli.table import all_commands
from ottla.cli.tree import Command, Group, find
from ottla.explain.entries import of_other_rooms


class Colour(StrEnum):
    red = "red"
    blue = "blue"


def example(
    kind: Annotated[str, Argument(metavar="KIND")],
    places: Annotated[list[Path] | None, Argument(metavar="[PLACE]...")] = None,
    count: Annotated[int, Option("--count", "-n", min=1, max=9, help="How many")] = 3,
    part: Annotated[list[int] | None, Option("--part", "-p")] = None,
    colour: Annotated[Colour, Option()] = Colour.red,
    wait: Annotated[float | None, Option(min=0)] = None,
    yes: Annotated[bool, Option("--yes")] = False,
    keep: Annotated[bool, Option(help="Keep it")] = True,
    set_: Annotated[list[str] | None, Option("--set")] = None,
) -> None:
    r"""Do it.

    And more, at some length that needs a second line on a terminal of eighty columns. Example: x

    Example: ottla example a '%k\n'
    """


KNOWN = parameters(example)
DEFAULTS = {
    "places": None, "count": 3, "part": None, "colour": Colour.red, "wait": None, "yes": False,
    "keep": True, "set_": None,
}  # fmt: skip

GOOD = [
    ("a", {}),
    ("a x y", {"places": [Path("x"), Path("y")]}),
    ("--count 5 a --yes x", {"count": 5, "yes": True, "places": [Path("x")]}),
    ("a -n5", {"count": 5}),
    ("a -n=5", {"count": 5}),
    ("a -n 5 --count=6", {"count": 6}),
    ("a -p1 -p 2 --part=-3", {"part": [1, 2, -3]}),
    ("a --part -3", {"part": [-3]}),
    ("a --colour blue --wait 1e1", {"colour": Colour.blue, "wait": 10.0}),
    ("a --no-keep", {"keep": False}),
    ("a --no-keep --keep", {"keep": True}),
    ("a -- --yes", {"places": [Path("--yes")]}),
    ("a -", {"places": [Path("-")]}),
    ("a --set k=v=w --set=", {"set_": ["k=v=w", ""]}),
]


@pytest.mark.parametrize(("typed", "wanted"), GOOD)
def test_what_a_command_is_called_with(typed, wanted):
    found = parse(KNOWN, typed.split())
    assert found.arguments == {"kind": "a"} | DEFAULTS | wanted
    assert found.everywhere == set()


def test_options_of_every_command():
    assert parse(KNOWN, ["a", "-qv"]).everywhere == {"quiet", "verbose"}
    assert parse(KNOWN, ["--help"]).everywhere == {"help"}
    assert parse(KNOWN, ["-h", "--yes"]).everywhere == {"help"}


BAD = [
    ("", "KIND is missing"),
    ("a --count", "--count needs a value: --count N"),
    ("a --count x", "--count x: not an integer"),
    ("a -n 1.5", "-n 1.5: not an integer"),
    ("a --count 0", "--count 0: choose 1 to 9"),
    ("a --wait -1", "--wait -1: choose 0 or more"),
    ("a --wait nan", "--wait nan: choose 0 or more"),
    ("a --wait soon", "--wait soon: not a number"),
    ("a --colour green", "--colour green: choose one of red, blue"),
    ("a --yes=1", "--yes takes no value"),
    ("a --cuont 1", "there is no option --cuont (did you mean --count?)"),
    ("a -x", "there is no option -x"),
    ("a --quiet=1", "there is no option --quiet"),
]


@pytest.mark.parametrize(("typed", "says"), BAD)
def test_what_is_typed_wrong_is_told(typed, says):
    with pytest.raises(UsageError) as wrong:
        parse(KNOWN, typed.split())
    assert says in str(wrong.value)


def test_one_argument_too_many():
    def one(name: str) -> None: ...

    with pytest.raises(UsageError, match="b is one argument too many"):
        parse(parameters(one), ["a", "b"])


def test_help(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert help_text.of_command(["example"], example, KNOWN) == (
        """\
Usage: ottla example [OPTIONS] KIND [PLACE]...

  Do it.

  And more, at some length that needs a second line on a terminal of eighty
  columns.

  Example: x

  Example: ottla example a '%k\\n'

Options:
  -n, --count N                 How many [1 to 9, default: 3]
  -p, --part N
  --colour red|blue             [default: red]
  --wait NUMBER
  --yes
  --keep, --no-keep             Keep it
  --set TEXT
  -h, --help                    Show this and exit
  -q, --quiet                   Say nothing but data and errors
  -v, --verbose                 Also say what is asked of whom, and how long it
                                took
"""
    )


def every_command(group, path=()):
    for name, node in group.children.items():
        if isinstance(node, Group):
            yield from every_command(node, (*path, name))
        elif node.target:
            yield (*path, name), node


ROOT = all_commands()
ROOT = ROOT._replace(children={**ROOT.children, **of_other_rooms()})
ALL = dict(every_command(ROOT))


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_the_list_of_commands_says_what_they_say_themselves(path, monkeypatch):
    command = ALL[path]
    function = command.function()
    first = " ".join((function.__doc__ or "").strip().partition("\n\n")[0].split())
    sentence = first.partition(". ")[0].rstrip(".") + "."
    assert command.summary == sentence.partition(" Example:")[0]
    monkeypatch.setenv("COLUMNS", "80")
    known = command.parameters()
    text = help_text.of_command(path, function, known)
    for line in text.splitlines():
        assert len(line) <= 80 or line.strip().startswith(("Example", "Usage")), line
    assert "Example: ottla" in text or "Example: " in text, "help without an example"
    names = [n for p in known if p.is_option for n in p.names]
    assert len(names) == len(set(names))
    assert not {"-h", "-q", "-v"} & set(names)


def test_commands_that_are_not_there(capsys):
    assert main(["topcs", "list"]) == 2
    assert capsys.readouterr().err == "ottla: there is no command topcs (did you mean topics?)\n"
    assert main(["topics", "lst"]) == 2
    assert "there is no command topics lst (did you mean list?)" in capsys.readouterr().err
    assert main(["--topic"]) == 2
    assert "name a command before --topic" in capsys.readouterr().err


def test_a_group_without_a_command_lists_them(capsys):
    assert main([]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "Usage: ottla COMMAND" in told.err
    assert main(["topics", "--help"]) == 0
    assert "  create" in capsys.readouterr().out
    assert find(ROOT, ["topics"])[0] == ["topics"]
    assert isinstance(find(ROOT, ["topics", "list", "x"])[1], Command)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("ottla 0.")
