"""The command line: what a person types, and what is printed when it does not work.

Invariants: exit code 0 means it held, 1 it failed, 2 it was typed wrong; bad input is one line
naming the thing, the reason and the way out, never a traceback; a command imports what it needs
when it runs, so that `ottla --help` is instant; every command takes --bootstrap-server and works
with any Kafka, or finds the cluster that `ottla up` started in --dir.
"""

import sys
from collections.abc import Mapping, Sequence

from ottla.admin.arguments.declaring import Exit, UsageError, asks_cluster, parameters
from ottla.admin.arguments.tree import Group, Node, find
from ottla.admin.command_table import add, all_commands
from ottla.cli import output
from ottla.model import process

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
HELP = ("--help", "-h")


def main(arguments: Sequence[str] | None = None, others: Mapping[str, Node] | None = None) -> int:
    """Run one command and return its exit code. `others` are commands of other rooms."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        process.take_over()
    add(others or {})
    root = all_commands()
    path: list[str] = []
    try:
        if words[:1] == ["__complete"]:
            from ottla.admin.commands.shell import complete

            complete(root, words[1:])
            return EXIT_OK
        path, node, left = find(root, words)
        try:
            code = _run(path, node, left)
        except Exit as ended:
            code = ended.code
        sys.stdout.flush()  # what cannot be written is reported here, not by the interpreter
        return code
    except UsageError as error:
        output.complain(f"{' '.join(['ottla', *path])}: {error}")
        return EXIT_USAGE
    except KeyboardInterrupt:
        output.complain(process.INTERRUPTED)
        if arguments is None:
            process.leave_interrupted()
        return process.EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - those that are not of the world are raised again
        return _failed(error)


def _failed(error: Exception) -> int:
    """Say what failed in one line; an error of ours, which was not expected, is raised."""
    from ottla.model.errors import OttlaError

    if isinstance(error, OttlaError):
        output.complain(f"ottla: {error}")
        return EXIT_FAILED
    if isinstance(error, BrokenPipeError):
        process.give_up(sys.stdout)  # whoever read it has seen enough
        return EXIT_OK
    if isinstance(error, OSError):
        if error.filename == process.STANDARD_OUTPUT:
            process.give_up(sys.stdout)
        where = error.filename
        from ottla.admin.error_texts import of_system

        output.complain(f"ottla: {f'{where}: ' if where else ''}{of_system(error)}")
        return EXIT_FAILED
    raise error


def _run(path: list[str], node: Node, words: list[str]) -> int:
    if isinstance(node, Group):
        return _group(path, node, words)
    from ottla.admin.arguments import parsing

    function = node.function()
    known = parameters(function)
    asks = asks_cluster(known)
    if asks:
        from ottla.admin import connection

        known += parameters(connection.options)
    parsed = parsing.parse(known, words)
    if "help" in parsed.everywhere:
        from ottla.admin.arguments import help_text

        sys.stdout.write(help_text.of_command(path, function, known))
        return EXIT_OK
    if asks:
        connection.options(
            profile=parsed.arguments.pop("profile"),
            command_config=parsed.arguments.pop("command_config"),
        )
    prints = output.Output(
        parsed.arguments.get("output", output.Format.table),
        quiet="quiet" in parsed.everywhere,
        verbose="verbose" in parsed.everywhere,
    )
    from ottla.admin import waits

    with output.printing(prints):
        if not prints.quiet:
            waits.report_to(output.print_waits)
        try:
            code = function(**parsed.arguments)
        finally:
            waits.silence()
    return code if isinstance(code, int) else EXIT_OK


def _group(path: list[str], group: Group, words: list[str]) -> int:
    """Print the list of commands: what was asked for, or what is missing."""
    from ottla.admin.arguments import help_text

    if not path and words[:1] == ["--version"]:
        from importlib.metadata import version

        sys.stdout.write(f"ottla {version('ottla')}\n")
        return EXIT_OK
    if words and words[0] not in HELP:
        from ottla.admin.arguments.spellings import instead_of_group_option

        instead = instead_of_group_option(path, words[0], group.children)
        raise UsageError(f"name a command before {words[0]}{instead}")
    text = help_text.of_group(path, group)
    (sys.stdout if words else sys.stderr).write(text)
    return EXIT_OK if words else EXIT_USAGE
