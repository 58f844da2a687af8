"""All commands of `ottla`, for tests of what each of them has."""

from functools import cache

import click

from ottla.cli import grammar
from ottla.cli.table import load


@cache
def every_command():
    """Return all commands by name, but those that are programs of their own.

    `known` of each are its parameters, with those that it shares with others.
    """
    return {
        " ".join(path): grammar.command(path)
        for path, node in grammar.walk(load()[0])
        if node.target and not node.is_program
    }


def asks_cluster(command):
    return any(p.name == "bootstrap_server" for p in command.known)


def parsed(words):
    """Return the name and the parameters of what somebody types; UsageError."""
    words = list(words)
    found, path = grammar.root(), []
    while isinstance(found, click.Group):
        name, found, words = found.resolve_command(click.Context(found), words)
        path.append(name)
    return " ".join(path), found.make_context("", words).params
