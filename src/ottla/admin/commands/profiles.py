"""`ottla profile`: clusters by name, so that no addresses have to be typed."""

from pathlib import Path
from typing import Annotated

from ottla.admin import profiles
from ottla.admin.connection import Output
from ottla.admin.options import usage
from ottla.cli import Argument, Option, UsageError
from ottla.cli.output import Format, print_changes, print_result, say

Name = Annotated[str, Argument(metavar="NAME", complete="profile")]


def _print(output: Format, name: str, result: str) -> None:
    from ottla.admin.results import ProfileResult

    print_changes(output, [ProfileResult(name, result)])


def list_command(output: Output = Format.table) -> None:
    from ottla.admin import results

    found = profiles.load()
    listed = [
        results.Profile(name, name == found.current, *profile)
        for name, profile in sorted(found.by_name.items())
    ]
    rows = [
        ("*" if p.in_use else "", p.profile, p.bootstrap_servers or p.dir, p.command_config)
        for p in listed
    ]
    if not listed:
        say("no profiles; `ottla profile set NAME -b HOST:PORT` writes one")
    print_result(output, listed, ("", "profile", "cluster", "client settings"), rows)


def set_command(
    name: Name,
    bootstrap_servers: Annotated[
        str | None,
        Option("--bootstrap-server", "-b", metavar="HOST:PORT[,…]", help="Brokers of the cluster"),
    ] = None,
    directory: Annotated[
        Path | None,
        Option("--dir", help="Folder of a cluster of `ottla up`, instead of --bootstrap-server"),
    ] = None,
    command_config: Annotated[
        Path | None, Option("--command-config", metavar="FILE", help="Kafka's client.properties")
    ] = None,
    use: Annotated[bool, Option("--use", help="Also make it the current profile")] = False,
    output: Output = Format.table,
) -> None:
    usage(profiles.check_name, [name], "")
    if bootstrap_servers is not None and directory is not None:
        raise UsageError("--bootstrap-server, --dir: only one of them")
    found = profiles.load()
    old = found.by_name.get(name, profiles.Profile())
    servers, folder = old.bootstrap_servers, old.dir
    if bootstrap_servers is not None:
        from ottla.client.client import parse_bootstrap

        usage(parse_bootstrap, [bootstrap_servers], "--bootstrap-server")
        servers, folder = bootstrap_servers, None
    if directory is not None:
        servers, folder = None, str(directory.absolute())
    config = old.command_config if command_config is None else str(command_config.absolute())
    if servers is None and folder is None and config is None:
        raise UsageError("say where the cluster is: --bootstrap-server, --dir or --command-config")
    by_name = {**found.by_name, name: profiles.Profile(servers, folder, config)}
    profiles.save(profiles.Profiles(name if use else found.current, by_name))
    say(f"profile {name} written to {profiles.path()}{', in use' if use else ''}")
    _print(output, name, "written")


def use(name: Name, output: Output = Format.table) -> None:
    found = profiles.load()
    found.find(name)
    profiles.save(found._replace(current=name))
    say(f"profile {name} is in use")
    _print(output, name, "in use")


def remove(name: Name, output: Output = Format.table) -> None:
    found = profiles.load()
    found.find(name)
    by_name = {n: p for n, p in found.by_name.items() if n != name}
    current = None if found.current == name else found.current
    profiles.save(profiles.Profiles(current, by_name))
    say(f"profile {name} removed")
    _print(output, name, "removed")


def show(output: Output = Format.table) -> None:
    from ottla.admin import results
    from ottla.admin.connection import Connection

    found = Connection().where
    cluster = str(found.folder) if found.address is None else found.address
    config = None if found.command_config is None else str(found.command_config)
    chosen = results.Chosen(cluster, config)
    print_result(output, chosen, ("cluster", "client settings"), [(cluster, config)])
