"""Rules about brokers: the controller, disks, descriptors, clocks, throttles, ZooKeeper.

A decider. Invariants: facts in, findings out; one finding for each rule; what is not known is no
finding.
"""

from collections.abc import Iterator

from ottla.admin.diagnosis.facts import Facts, Found, LogDirFacts, brokers, finding, some

LEAST_FREE = 0.10
MOST_DESCRIPTORS = 0.80
MOST_SKEW_MS = 2000
ENSEMBLE = 3
MOST_STRAYS = 5


def _controller(facts: Facts) -> Iterator[Found]:
    if facts.controller in facts.silent:
        text = f"broker {facts.controller} is named as the controller, and does not respond"
        yield finding("no-controller", [], found=text)
    elif facts.controller not in facts.brokers:
        yield finding("no-controller", [])


def _silent(facts: Facts) -> Iterator[Found]:
    if facts.silent:
        yield finding("silent-broker", brokers(facts.silent), brokers=some(facts.silent))


def _log_dirs(facts: Facts) -> Iterator[Found]:
    failed = [d for d in facts.log_dirs if d.problem]
    if failed:
        problems = (
            f"broker {d.broker}, {d.path}: {d.problem}" + (f" ({d.shortage})" if d.shortage else "")
            for d in failed
        )
        yield finding("log-dir-failed", map(_named, failed), problems="; ".join(problems))
    none = [d for d in facts.log_dirs if d.shortage and not d.problem]
    if none or (facts.disk and not failed):
        shortage = f"broker {none[0].broker}: {none[0].shortage}" if none else facts.disk
        yield finding("disk-full", map(_named, none), shortage=shortage)
    full = [
        d
        for d in facts.log_dirs
        if d.total > 0
        and not d.shortage
        and (d.usable < d.total * LEAST_FREE or d.usable < d.largest_replica)
    ]
    if full:
        yield finding("disk-filling", map(_named, full), dir=full[0], least=LEAST_FREE)


def _named(log_dir: LogDirFacts) -> str:
    return f"broker {log_dir.broker}: {log_dir.path}"


def _strays(facts: Facts) -> Iterator[Found]:
    if facts.strays:
        strays = (
            f"broker {s.broker}, partition {s.partition} of topic id {s.topic_id}: "
            f"{s.bytes:,} bytes, since {s.since or 'an unknown time'}, "
            + (f"to be removed {s.removed}" if s.removed else "never removed")
            for s in facts.strays[:MOST_STRAYS]
        )
        subjects = [f"broker {s.broker}: {s.folder}" for s in facts.strays]
        yield finding("strays", subjects, strays="; ".join(strays), folder=facts.strays[0].folder)


def _descriptors(facts: Facts) -> Iterator[Found]:
    found = {b: d for b, d in facts.descriptors.items() if d.open > d.limit * MOST_DESCRIPTORS}
    for broker, first in list(found.items())[:1]:
        yield finding("descriptors", brokers(found), broker=broker, **first._asdict())


def _clocks(facts: Facts) -> Iterator[Found]:
    found = {
        b: r.broker_ms - r.zookeeper_ms
        for b, r in sorted(facts.registrations.items())
        if abs(r.broker_ms - r.zookeeper_ms) > MOST_SKEW_MS
    }
    for broker, skew in list(found.items())[:1]:
        side = "ahead of" if skew > 0 else "behind"
        yield finding(
            "clock-skew", brokers(found), broker=broker, skew_s=abs(skew) / 1000, side=side
        )


def _throttles(facts: Facts) -> Iterator[Found]:
    if facts.throttles:
        settings = ", ".join(f"{key}={value}" for key, value in facts.throttles[0].settings.items())
        yield finding(
            "forgotten-throttles",
            [f"{t.kind} {t.name}" for t in facts.throttles],
            [["reassign", "throttles", "--remove"]],
            settings=settings,
        )


def _went_back(facts: Facts) -> Iterator[Found]:
    for broker, how in list(facts.went_back.items())[:1]:
        yield finding("zookeeper-went-back", brokers(facts.went_back), broker=broker, how=how)


def _zookeepers(facts: Facts) -> Iterator[Found]:
    if facts.refusing_zookeeper:
        yield finding("zookeeper-down", [], address=facts.refusing_zookeeper)
    servers = {b: connect.partition("/")[0].split(",") for b, connect in facts.zookeepers.items()}
    few = {b: names for b, names in servers.items() if len(names) < ENSEMBLE}
    if few and not facts.made_here:  # one machine: more servers on it would go with it
        broker, names = next(iter(few.items()))
        yield finding(
            "few-zookeepers",
            brokers(few),
            broker=broker,
            count=len(names),
            names=",".join(names),
            ensemble=ENSEMBLE,
        )
    different = sorted({",".join(sorted(names)) for names in servers.values()})
    if len(different) > 1:
        yield finding("zookeepers-differ", brokers(servers), different="; ".join(different))


RULES = (
    _controller,
    _silent,
    _log_dirs,
    _strays,
    _descriptors,
    _clocks,
    _throttles,
    _went_back,
    _zookeepers,
)
