"""The grammar of all commands: click's commands, made of the table and of functions' signatures.

Invariants: a command's module is imported when it runs or its help is printed, never to list it;
what is typed wrong is one line on standard error and exit code 2; abbreviations are not accepted
anywhere, but hinted at; what failed is one line, never a traceback, and exit code 1.
"""

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, TypeVar

import click
from click.core import ParameterSource

from ottla.cli import output
from ottla.cli.declaring import Argument, Exit, Option, Parameter, UsageError, bundles, parameters
from ottla.cli.table import Node, load
from ottla.model import process
from ottla.model.printable import printable

T = TypeVar("T")

WIDEST = 100
EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
COMPLETE = "_OTTLA_COMPLETE"
"""The variable by which a shell asks what may stand at the cursor (click)."""


def imported(target: str) -> Callable[..., Any]:
    """Import and return `module:function` of the table."""
    module, _, name = target.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"ottla.{module}"), name)
    return found


def _spellings() -> ModuleType:
    """Return what knows other tools' names: only where something is typed wrong."""
    return import_module("ottla.cli.spellings")


# -- parameters -----------------------------------------------------------------------------------


class _Integer(click.IntRange):
    name = "integer"  # as messages have it


class _Number(click.FloatRange):
    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        return self.fail(f"{value} is not a number.", param, ctx) if math.isnan(number) else number


class _Choice(click.Choice[str]):
    """The values of a StrEnum; as click's enumerations are known by their names."""

    def __init__(self, kind: type[StrEnum]) -> None:
        super().__init__([str(value) for value in kind])
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self.kind(super().convert(value, param, ctx))


def _type(p: Parameter) -> Any:
    if p.choices:
        return _Choice(p.type)
    low, high = p.declared.min, p.declared.max
    limited = low is not None or high is not None
    if p.type is int and limited:
        return _Integer(None if low is None else int(low), None if high is None else int(high))
    return _Number(low, high) if p.type is float and limited else p.type


def _clicks(p: Parameter) -> Iterator[click.Parameter]:
    """Yield what click knows a parameter as, and its hidden spellings."""
    how: dict[str, Any] = {
        "type": _type(p),
        "help": p.declared.help or None,
        "required": p.required,
        "metavar": p.metavar,
    }
    if COMPLETE in os.environ:
        from ottla.cli.completion import completer

        how["shell_complete"] = completer(p)
    if not p.is_option:
        yield click.Argument([p.name], nargs=-1 if p.many else 1, **how)
        return
    names = p.names
    if p.is_flag:
        how |= {"type": None, "is_flag": True, "metavar": None}
        positive = [n for n in names if not n.startswith("--no-") or n == names[0]]
        names = [*positive[:-1], "/".join([positive[-1], *(n for n in names if n not in positive)])]
    else:
        how["multiple"] = p.many
        if p.declared.metavar and p.choices:
            how["help"] = f"{p.declared.help} [{'|'.join(p.choices)}]"
        if p.default is not None and isinstance(p.default, str | int | float) and p.default != "":
            how |= {"default": p.default, "show_default": "[" not in p.declared.help}
    yield click.Option([p.name, *names], **how)
    if p.declared.hidden:
        yield click.Option([p.name, *p.declared.hidden], hidden=True, **how | {"required": False})


def _typed(function: Callable[..., object], ctx: click.Context) -> dict[str, object]:
    """Return the arguments of a function that were typed; the others have their defaults."""
    found: dict[str, object] = {}
    for p in parameters(function):
        if ctx.get_parameter_source(p.name) is ParameterSource.COMMANDLINE:
            value = ctx.params[p.name]
            if value != ():
                found[p.name] = list(value) if p.many else value
    for name, kind in bundles(function).items():
        own = {p.name: found.pop(p.name) for p in parameters(kind) if p.name in found}
        found[name] = kind(**own)
    return found


# -- what all commands have in common --------------------------------------------------------------


def everywhere(
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print only data and errors")] = False,
    verbose: Annotated[
        bool, Option("--verbose", "-v", help="Also print each request, its broker and its latency")
    ] = False,
) -> None:
    """Declare the options that every command has (see `around`)."""


@contextmanager
def around(typed: Mapping[str, Any]) -> Iterator[None]:
    """Have a command print as the options say that it shares with all others."""
    prints = output.Output(
        typed.get("output", output.Format.table), quiet=typed["quiet"], verbose=typed["verbose"]
    )
    from ottla.model import waits

    with output.printing(prints):
        if not prints.quiet:
            waits.report_to(output.print_waits)
        try:
            yield
        finally:
            waits.silence()


# -- commands -------------------------------------------------------------------------------------


def _help(node: Node) -> str:
    return f"{node.summary}\n\n{node.details}"


class _Command(click.Command):
    """A function, with the options that it shares with other commands."""

    def __init__(self, name: str, function: Callable[..., object], node: Node) -> None:
        shared = [] if node.is_program else parameters(everywhere)
        self.known = parameters(function) + shared
        params = [param for p in self.known for param in _clicks(p)]
        self.function = function
        self.is_program = node.is_program
        super().__init__(name, params=params, help=_help(node), context_settings=SETTINGS)

    def invoke(self, ctx: click.Context) -> object:
        common = nullcontext() if self.is_program else around(ctx.params)
        try:
            with common:
                return self.function(**_typed(self.function, ctx))
        except UsageError as error:
            raise click.UsageError(str(error), ctx) from error

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            known = [n for p in self.get_params(ctx) for n in p.opts if n.startswith("-")]
            instead = _spellings().instead_of_option(error.option_name, known, self.known)
            raise click.UsageError(
                f"there is no option {error.option_name}{instead}", ctx
            ) from None


class _Commands(click.Group):
    """A group of the table. Its commands are made when one of them is typed."""

    def __init__(self, name: str, node: Node, *, path: Sequence[str] = ()) -> None:
        super().__init__(name, help=_help(node), context_settings=SETTINGS)
        self.node = node
        self.path = path

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [name for name, child in self.node.children.items() if not child.instead]

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        node = self.node.children.get(cmd_name)
        if node is None or node.instead:
            return None
        path = [*self.path, cmd_name]
        if node.children:
            return _Commands(cmd_name, node, path=path)
        own = {"help": show_help, "version": version}
        return _Command(cmd_name, own.get(cmd_name) or imported(node.target), node)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, *rest = args
        found = self.get_command(ctx, name)
        if found is None:
            instead = _spellings().instead_of_command(self.path, name, self.node.children)
            text = f"there is no command {' '.join([*self.path, name])}{instead}"
            raise click.UsageError(text, ctx)
        return name, found, rest

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            word = error.option_name
            instead = _spellings().instead_of_group_option(self.path, word, self.node.children)
            raise click.UsageError(f"name a command before {word}{instead}", ctx) from None

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        children = self.node.children.items()
        rows = [(n, c.summary) for n, c in children if not c.instead and (self.path or c.common)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        return [
            CompletionItem(name, help=self.node.children[name].summary)
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]


SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": WIDEST}


def root() -> click.Group:
    """Return the command line."""
    return _Commands("ottla", load()[0])


def command(path: Sequence[str]) -> click.Command:
    """Return a command by its path."""
    found: click.Command = root()
    for name in path:
        assert isinstance(found, click.Group)
        child = found.get_command(click.Context(found), name)
        assert child is not None, path
        found = child
    return found


# -- running --------------------------------------------------------------------------------------


def renamed(words: Sequence[str]) -> list[str]:
    """Return the words with the new name of a command that was renamed, which is then printed."""
    if words[:1] == ["--version"]:
        return ["version"]
    node = load()[0]
    for i, word in enumerate(words):
        if word not in node.children:
            break
        node = node.children[word]
        if node.instead:
            old = " ".join(words[: i + 1])
            sys.stderr.write(f"ottla: `ottla {old}` is now `ottla {node.instead}`\n")
            return [*node.instead.split(), *words[i + 1 :]]
    return list(words)


def run(words: Sequence[str]) -> int:
    """Run a command of the table and return its exit code; what is typed wrong is one line.

    What the command raises comes through.
    """
    if os.environ.get(COMPLETE):
        from ottla.cli.completion import offer

        return offer(root(), os.environ[COMPLETE])
    return _run(root(), "ottla", renamed(words))


def _run(program: click.Command, name: str, words: Sequence[str]) -> int:
    try:
        with program.make_context(name, list(words)) as ctx:
            code = program.invoke(ctx)
    except click.exceptions.Exit as ended:  # --help
        return ended.exit_code
    except Exit as ended:
        return ended.code
    except click.exceptions.NoArgsIsHelpError as error:
        sys.stderr.write(f"{error.ctx.get_help()}\n")
        return EXIT_USAGE
    except click.UsageError as error:
        path = name if error.ctx is None else error.ctx.command_path
        sys.stderr.write(printable(f"{path}: {error.format_message().rstrip('.')}") + "\n")
        return EXIT_USAGE
    return code if isinstance(code, int) else 0


def read(kind: Callable[..., T], words: Sequence[str]) -> T:
    """Return a dataclass of options, or what a function is called with, as words give it."""
    with _Command("options", kind, Node("", "broker.")).make_context("options", list(words)) as ctx:
        return kind(**_typed(kind, ctx))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        process.take_over()
    try:
        code = run(words)
        sys.stdout.flush()  # what cannot be written is reported here, not by the interpreter
        return code
    except KeyboardInterrupt:
        output.complain(process.INTERRUPTED)
        if arguments is None:
            process.leave_interrupted()
        return process.EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - a bug of ours is raised again
        return _failed(error)


def _failed(error: Exception) -> int:
    """Say what failed in one line; an error of ours, which was not expected, is raised."""
    from ottla.model.errors import OttlaError, of_system

    if isinstance(error, OttlaError):
        output.complain(f"ottla: {error}")
        return EXIT_FAILED
    if isinstance(error, BrokenPipeError):
        process.give_up(sys.stdout)  # the reader of the pipe has closed it
        return EXIT_OK
    if isinstance(error, OSError):
        if error.filename == process.STANDARD_OUTPUT:
            process.give_up(sys.stdout)
        where = error.filename
        output.complain(f"ottla: {f'{where}: ' if where else ''}{of_system(error)}")
        return EXIT_FAILED
    raise error


# -- commands of this room ------------------------------------------------------------------------


def show_help(
    words: Annotated[list[str] | None, Argument(metavar="[COMMAND|TASK]...")] = None,
) -> None:
    node, tasks = load()
    formatter = click.HelpFormatter(max_width=WIDEST)
    shown = tasks
    if words and (len(words) > 1 or words[0] not in tasks):
        sys.stdout.write(help_of(words) + "\n")
        return
    if words:
        shown = {words[0]: tasks[words[0]]}
    for task, about in shown.items():
        rows = [
            (" ".join(path), child.summary)
            for path, child in walk(node)
            if child.task == task and not child.instead and (words or len(path) == 1)
        ]
        with formatter.section(about if words else f"{about} (ottla help {task})"):
            formatter.write_dl(rows)
    sys.stdout.write(formatter.getvalue().lstrip())


def help_of(path: Sequence[str]) -> str:
    """Return the help of a command; UsageError where there is none."""
    ctx = click.Context(root(), info_name="ottla", **SETTINGS)
    for i, name in enumerate(path):
        found = ctx.command.get_command(ctx, name) if isinstance(ctx.command, click.Group) else None
        if found is None:
            children = getattr(ctx.command, "node", Node("")).children
            instead = _spellings().instead_of_command(path[:i], name, children)
            raise UsageError(f"there is no command {' '.join(path[: i + 1])}{instead}")
        ctx = click.Context(found, info_name=name, parent=ctx, **SETTINGS)
    return ctx.command.get_help(ctx)


def walk(node: Node, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Yield all nodes below one, with their paths."""
    for name, child in node.children.items():
        yield (*path, name), child
        yield from walk(child, (*path, name))


def version() -> None:
    from importlib.metadata import version as version_of

    sys.stdout.write(f"ottla {version_of('ottla')}\n")
