"""Rules about brokers: the controller, disks, descriptors, clocks, throttles, ZooKeeper.

A decider. Invariants: facts in, findings out; one finding for each rule; what is not known is no
finding.
"""

from collections.abc import Iterator

from ottla.admin.diagnosis.facts import Facts, Finding, Severity, some

LEAST_FREE = 0.10
MOST_DESCRIPTORS = 0.80
MOST_SKEW_MS = 2000
ENSEMBLE = 3
MOST_STRAYS = 5


def findings(facts: Facts) -> Iterator[Finding]:
    """Yield what is wrong or unsafe with brokers."""
    yield from _controller(facts)
    yield from _silent(facts)
    yield from _log_dirs(facts)
    yield from _strays(facts)
    yield from _descriptors(facts)
    yield from _clocks(facts)
    yield from _throttles(facts)
    yield from _went_back(facts)
    yield from _zookeepers(facts)


def _controller(facts: Facts) -> Iterator[Finding]:
    silent = facts.controller in facts.silent
    if facts.controller not in facts.brokers or silent:
        yield Finding(
            "no-controller", Severity.error, [],
            f"broker {facts.controller} is named as the controller, and does not respond" if silent
            else "no live broker is the controller",
            "without a controller no leader is elected and nothing can be changed",
            "another broker takes over when its session with ZooKeeper is over; if none does, look "
            "whether ZooKeeper is up, and whether brokers can reach it",
        )  # fmt: skip


def _silent(facts: Facts) -> Iterator[Finding]:
    if facts.silent:
        yield Finding(
            "silent-broker", Severity.warning, [f"broker {b}" for b in facts.silent],
            f"the other brokers name broker {some(facts.silent)} as alive, and it does not respond",
            "until its session with ZooKeeper is over it leads what it led, and clients wait",
            "look whether its process runs and is not stopped, and whether its port can be reached",
        )  # fmt: skip


def _log_dirs(facts: Facts) -> Iterator[Finding]:
    failed = [d for d in facts.log_dirs if d.problem]
    if failed:
        yield Finding(
            "log-dir-failed", Severity.error, [f"broker {d.broker}: {d.path}" for d in failed],
            "; ".join(
                f"broker {d.broker}, {d.path}: {d.problem}"
                + (f" ({d.shortage})" if d.shortage else "")
                for d in failed
            ),
            "replicas of a log dir that failed are offline until the broker is restarted with it",
            "replace or repair the disk, then restart the broker",
        )  # fmt: skip
    none = [d for d in facts.log_dirs if d.shortage and not d.problem]
    if none or (facts.disk and not failed):
        yield Finding(
            "disk-full", Severity.error, [f"broker {d.broker}: {d.path}" for d in none],
            f"broker {none[0].broker}: {none[0].shortage}" if none else facts.disk,
            "the next write fails and takes the log dir offline, with all replicas in it",
            "free some space there, or mount it writable, and restart brokers whose log dir failed",
        )  # fmt: skip
    full = [
        d
        for d in facts.log_dirs
        if d.total > 0
        and not d.shortage
        and (d.usable < d.total * LEAST_FREE or d.usable < d.largest_replica)
    ]
    if full:
        first = full[0]
        yield Finding(
            "disk-filling", Severity.warning, [f"broker {d.broker}: {d.path}" for d in full],
            f"broker {first.broker}, {first.path}: {first.usable:,} of {first.total:,} bytes free, "
            f"its largest replica has {first.largest_replica:,}",
            f"a full disk takes the log dir offline; free should be {LEAST_FREE:.0%}, and as much "
            "as the largest replica, so that one can be moved",
            f"shorten retention (ottla configs alter --topic T --set retention.bytes=N), or move "
            f"replicas away: ottla broker drain {first.broker}",
        )  # fmt: skip


def _strays(facts: Facts) -> Iterator[Finding]:
    if facts.strays:
        yield Finding(
            "strays", Severity.warning,
            [f"broker {s.broker}: {s.folder}" for s in facts.strays],
            "; ".join(
                f"broker {s.broker}, partition {s.partition} of topic id {s.topic_id}: "
                f"{s.bytes:,} bytes, since {s.since or 'an unknown time'}, "
                + (f"to be removed {s.removed}" if s.removed else "never removed")
                for s in facts.strays[:MOST_STRAYS]
            ),
            "another topic has the name now: the old one was deleted, or ZooKeeper forgot it, as "
            "after it was restored from a backup or lost; then these may be the last copies",
            f"to remove one: rm -r {facts.strays[0].folder}; to put it back: OPERATIONS.md, "
            "Stray replicas",
        )  # fmt: skip


def _descriptors(facts: Facts) -> Iterator[Finding]:
    found = {b: d for b, d in facts.descriptors.items() if d.open > d.limit * MOST_DESCRIPTORS}
    if found:
        broker, d = next(iter(found.items()))
        yield Finding(
            "descriptors", Severity.warning, [f"broker {b}" for b in found],
            f"broker {broker} has {d.open:,} of {d.limit:,} file descriptors open",
            "each segment and each connection takes one; a broker without any refuses connections",
            "raise the limit (ulimit -n, LimitNOFILE) and restart the broker",
        )  # fmt: skip


def _clocks(facts: Facts) -> Iterator[Finding]:
    found = {
        b: r.broker_ms - r.zookeeper_ms
        for b, r in sorted(facts.registrations.items())
        if abs(r.broker_ms - r.zookeeper_ms) > MOST_SKEW_MS
    }
    if found:
        broker, skew = next(iter(found.items()))
        yield Finding(
            "clock-skew", Severity.warning, [f"broker {b}" for b in found],
            f"when broker {broker} registered its clock was {abs(skew) / 1000:.1f} s "
            f"{'ahead of' if skew > 0 else 'behind'} ZooKeeper's",
            "timestamps, retention by time and the comparison of logs rest on the brokers' clocks",
            "set the clock by NTP; the broker's registration shows the new one after a restart",
        )  # fmt: skip


def _throttles(facts: Facts) -> Iterator[Finding]:
    if facts.throttles:
        first = facts.throttles[0]
        settings = ", ".join(f"{key}={value}" for key, value in first.settings.items())
        yield Finding(
            "forgotten-throttles", Severity.warning,
            [f"{t.kind} {t.name}" for t in facts.throttles],
            f"{some([f'{t.kind} {t.name}' for t in facts.throttles])}: {settings}, while nothing "
            "is reassigned",
            "a throttle slows down replicas that have to catch up later",
            "ottla reassign throttles --remove",
            [["reassign", "throttles", "--remove"]],
        )  # fmt: skip


def _went_back(facts: Facts) -> Iterator[Finding]:
    if facts.went_back:
        broker, how = next(iter(facts.went_back.items()))
        yield Finding(
            "zookeeper-went-back", Severity.error, [f"broker {b}" for b in facts.went_back],
            f"when broker {broker} registered, ZooKeeper was older than what it had seen: {how}",
            "an older ZooKeeper has old ISRs, and lacks topics whose records brokers still have",
            "stop the brokers and put ZooKeeper's newest data back; if it was moved or restored on "
            "purpose, compare the topics with the log dirs, then restart the brokers one by one",
        )  # fmt: skip


def _zookeepers(facts: Facts) -> Iterator[Finding]:
    if facts.refusing_zookeeper:
        yield Finding(
            "zookeeper-down", Severity.error, [],
            f"{facts.refusing_zookeeper} refuses connections: no server runs there",
            "without ZooKeeper no leader is elected, and no ISR, topic or setting changes",
            "start ZooKeeper again; `ottla up` starts that of a cluster on this machine, and its "
            "log says why it exited",
        )  # fmt: skip
    servers = {b: connect.partition("/")[0].split(",") for b, connect in facts.zookeepers.items()}
    few = {b: names for b, names in servers.items() if len(names) < ENSEMBLE}
    if few and not facts.made_here:  # one machine: more servers on it would go with it
        broker, names = next(iter(few.items()))
        yield Finding(
            "few-zookeepers", Severity.risk, [f"broker {b}" for b in few],
            f"zookeeper.connect of broker {broker} names {len(names)}: {','.join(names)}",
            f"without a majority of ZooKeeper servers nothing is elected; {ENSEMBLE} survive the "
            "loss of one",
            f"run {ENSEMBLE} ZooKeeper servers and name them all in zookeeper.connect",
        )  # fmt: skip
    different = {tuple(sorted(names)) for names in servers.values()}
    if len(different) > 1:
        yield Finding(
            "zookeepers-differ", Severity.risk, [f"broker {b}" for b in servers],
            f"zookeeper.connect differs: {'; '.join(sorted(','.join(d) for d in different))}",
            "brokers that know different ZooKeeper servers lose their sessions at different times",
            "give every broker the same zookeeper.connect",
        )  # fmt: skip
