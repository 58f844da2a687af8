"""Commands for certificates: `certs init`, `issue`, `list` and `rotate`.

Invariant: no private key is ever printed.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ottla.admin.options import Dir, Output, cluster_folder
from ottla.cli import Argument, Exit, Option, UsageError
from ottla.cli.output import Format, print_changes, print_result, say
from ottla.cli.tables import bad, good
from ottla.model.errors import OttlaError

if TYPE_CHECKING:
    from ottla.local.certificates import CertificateFolder

EXIT_FAILED = 1
Folder = Annotated[
    Path | None,
    Option(
        "--folder", metavar="FOLDER", help="Folder of the CA and its certificates [certs in --dir]"
    ),
]
Days = Annotated[int, Option(help="Days until it expires", min=1, max=36500)]


def _folder(folder: Path | None, directory: Path | None) -> "CertificateFolder":
    from ottla.local.certificates import CertificateFolder

    return CertificateFolder(folder or cluster_folder(directory).certificates_dir)


def _print(output: Format, result: str, *files: Path) -> None:
    from ottla.admin.results import FileResult

    print_changes(output, [FileResult(str(file), result) for file in files])


def init(
    folder: Folder = None,
    directory: Dir = None,
    name: Annotated[str, Option(help="Common name of the CA")] = "Ottla CA",
    days: Days = 3650,
    output: Output = Format.table,
) -> None:
    certificates = _folder(folder, directory)
    certificates.create_ca(name, days)
    say(f"CA made: {certificates.ca_pem}; keep {certificates.ca_key} to yourself")
    _print(output, "created", certificates.ca_pem)


def issue(
    name: Annotated[str, Argument(metavar="NAME", help="Common name, and file name")],
    host: Annotated[
        list[str] | None,
        Option(help="Host name or address of a broker; repeatable [a client's certificate]"),
    ] = None,
    folder: Folder = None,
    directory: Dir = None,
    days: Days = 397,
    output: Output = Format.table,
) -> None:
    certificates = _folder(folder, directory)
    file = certificates.issue(name, host or (), days)
    say(f"{file}: private key and certificate of CN={name} (trust {certificates.ca_pem})")
    _print(output, "issued", file)


def list_command(
    folder: Folder = None, directory: Dir = None, output: Output = Format.table
) -> None:
    from ottla.admin.results import Certificate

    found = _folder(folder, directory).statuses()
    listed = [
        Certificate(
            s.name,
            s.subject,
            list(s.hosts),
            None if s.expires is None else int(s.expires.timestamp() * 1000),
            s.days,
            s.problem or None,
        )
        for s in found
    ]
    rows = [
        (
            s.name,
            s.subject,
            ",".join(s.hosts),
            None if s.expires is None else f"{s.expires:%Y-%m-%d %H:%M}",
            s.days,
            bad(s.problem) if s.problem else good("ok"),
        )
        for s in found
    ]
    print_result(output, listed, ("NAME", "SUBJECT", "HOSTS", "EXPIRES", "DAYS", "STATE"), rows)
    if any(s.problem for s in found):
        raise Exit(EXIT_FAILED)


def rotate(
    names: Annotated[
        list[str] | None, Argument(metavar="[NAME...]", help="Names of certificates")
    ] = None,
    every: Annotated[bool, Option("--all", help="Rotate all but the CA's")] = False,
    folder: Folder = None,
    directory: Dir = None,
    days: Days = 397,
    output: Output = Format.table,
) -> None:
    if bool(names) is every:
        raise UsageError("name certificates, or add --all")
    certificates = _folder(folder, directory)
    chosen = names or certificates.names()
    if not chosen:
        raise OttlaError(
            f"no certificate in {certificates.path}; name another folder, or issue one with `ottla "
            "certs issue`"
        )
    files = []
    for name in chosen:
        files.append(certificates.rotate(name, days))
        say(f"{files[-1]}: replaced")
    _print(output, "replaced", *files)
