"""Commands for certificates: `certs init`, `issue`, `list` and `rotate`.

Invariant: no private key is ever printed.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ottla.admin.arguments import Argument, Exit, Option, UsageError
from ottla.admin.options import Dir, Output, cluster_folder
from ottla.cli.output import Format, print_changes, print_result, say
from ottla.cli.tables import bad, good
from ottla.model.errors import OttlaError

if TYPE_CHECKING:
    from ottla.admin.local.certificates import CertificateFolder

EXIT_FAILED = 1
Folder = Annotated[
    Path | None,
    Option("--folder", metavar="FOLDER", help="Where CA and certificates lie [certs of --dir]"),
]
Days = Annotated[int, Option(help="How long it is valid", min=1, max=36500)]


def _folder(folder: Path | None, directory: Path | None) -> "CertificateFolder":
    from ottla.admin.local.certificates import CertificateFolder

    return CertificateFolder(folder or cluster_folder(directory).certificates_dir)


def _print(output: Format, result: str, *files: Path) -> None:
    from ottla.admin.results import FileResult

    print_changes(output, [FileResult(str(file), result) for file in files])


def init(
    folder: Folder = None,
    directory: Dir = None,
    name: Annotated[str, Option(help="Its common name")] = "Ottla CA",
    days: Days = 3650,
    output: Output = Format.table,
) -> None:
    """Create a CA, which issues certificates to brokers and clients.

    Example: ottla certs init --folder ./certs
    """
    certificates = _folder(folder, directory)
    certificates.create_ca(name, days)
    say(f"CA made: {certificates.ca_pem}; keep {certificates.ca_key} to yourself")
    _print(output, "created", certificates.ca_pem)


def issue(
    name: Annotated[str, Argument(metavar="NAME", help="Common name, and name of the file")],
    host: Annotated[
        list[str] | None,
        Option(help="A host name or address of a broker; may be repeated. Without: a client's"),
    ] = None,
    folder: Folder = None,
    directory: Dir = None,
    days: Days = 397,
    output: Output = Format.table,
) -> None:
    """Issue a key and a certificate: a broker's with its hosts, a client's without.

    Example: ottla certs issue broker-0 --host broker0.example.com --host 10.0.0.7
    """
    certificates = _folder(folder, directory)
    file = certificates.issue(name, host or (), days)
    say(f"{file}: private key and certificate of CN={name} (trust {certificates.ca_pem})")
    _print(output, "issued", file)


def list_command(
    folder: Folder = None, directory: Dir = None, output: Output = Format.table
) -> None:
    """Show certificates, their hosts and when they expire; exit code 1 if one is not well.

    Example: ottla certs list --folder ./certs
    """
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
    every: Annotated[bool, Option("--all", help="All but the CA's")] = False,
    folder: Folder = None,
    directory: Dir = None,
    days: Days = 397,
    output: Output = Format.table,
) -> None:
    """Replace certificates by new ones of the same names; brokers load them without a restart.

    Example: ottla certs rotate --all
    """
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
