"""Commands for certificates: `certs init`, `issue`, `list` and `rotate`.

Invariant: no private key is ever printed.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ottla.admin.connection import Local
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


def _folder(folder: Path | None, local: Local) -> "CertificateFolder":
    from ottla.local.certificates import CertificateFolder

    return CertificateFolder(folder or local.folder.certificates_dir)


def _print(output: Format, result: str, *files: Path) -> None:
    from ottla.admin.results import FileResult

    print_changes(output, [FileResult(str(file), result) for file in files])


def init(
    local: Local,
    folder: Folder = None,
    name: Annotated[str, Option(help="Common name of the CA")] = "Ottla CA",
    days: Days = 3650,
) -> None:
    certificates = _folder(folder, local)
    certificates.create_ca(name, days)
    say(f"CA made: {certificates.ca_pem}; keep {certificates.ca_key} to yourself")
    _print(local.output, "created", certificates.ca_pem)


def issue(
    local: Local,
    name: Annotated[str, Argument(metavar="NAME", help="Common name, and file name")],
    host: Annotated[
        list[str] | None,
        Option(help="Host name or address of a broker; repeatable [a client's certificate]"),
    ] = None,
    folder: Folder = None,
    days: Days = 397,
) -> None:
    certificates = _folder(folder, local)
    file = certificates.issue(name, host or (), days)
    say(f"{file}: private key and certificate of CN={name} (trust {certificates.ca_pem})")
    _print(local.output, "issued", file)


def list_command(local: Local, folder: Folder = None) -> None:
    from ottla.admin.results import Certificate

    found = _folder(folder, local).statuses()
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
    print_result(
        local.output, listed, ("NAME", "SUBJECT", "HOSTS", "EXPIRES", "DAYS", "STATE"), rows
    )
    if any(s.problem for s in found):
        raise Exit(EXIT_FAILED)


def rotate(
    local: Local,
    names: Annotated[
        list[str] | None, Argument(metavar="[NAME...]", help="Names of certificates")
    ] = None,
    every: Annotated[bool, Option("--all", help="Rotate all but the CA's")] = False,
    folder: Folder = None,
    days: Days = 397,
) -> None:
    if bool(names) is every:
        raise UsageError("name certificates, or add --all")
    certificates = _folder(folder, local)
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
    _print(local.output, "replaced", *files)
