"""Plans that a seed draws, so that sizes and settings vary as well as faults."""

import random

from ottla.sim.faults import DRAWN, Drawn
from ottla.sim.plans import ALWAYS, FLIPPED_BIT, Plan


def drawn(seed: int, *, coordinated: bool = False) -> Plan:
    """Return a plan whose sizes and settings are drawn by the seed, too.

    `coordinated` adds members of groups and transactional copiers, and leaves all else as it is.
    """
    rng = random.Random(f"{seed}/plan")
    extra = random.Random(f"{seed}/coordinated")
    members, copiers = extra.choice(((0, 1), (0, 2), (2, 1), (2, 2), (3, 0), (3, 2), (3, 3)))
    cooperative = random.Random(f"{seed}/cooperative").random() < 0.5
    log_dirs = random.Random(f"{seed}/log dirs").choice((1, 2, 2, 2, 3))
    more = random.Random(f"{seed}/aimed")
    asked_for = DRAWN[Drawn.HALF] if more.random() < 0.5 else ()
    if more.random() < 0.7:  # an auditor and little memory cost time
        asked_for = tuple(name for name in asked_for if name != FLIPPED_BIT)
    crash_detection = random.Random(f"{seed}/crash detection").random() < 0.7
    if crash_detection:
        asked_for = (*asked_for, *DRAWN[Drawn.WITH_CRASH_DETECTION])
    # A stream of its own: without these faults a seed draws what it drew before there were any.
    trust = random.Random(f"{seed}/statements")
    durable_zookeeper = trust.random() < 0.7
    if trust.random() < 0.6:
        statements = DRAWN[Drawn.AS_STATEMENT]
        asked_for = (*asked_for, *(n for n in statements if trust.random() < 0.5))
    brokers = rng.choice((3, 3, 4, 4, 5, 6, 7))
    replicas = min(brokers, rng.choice((2, 3, 3, 3, 4)))
    return Plan(
        seed,
        brokers=brokers,
        replicas=replicas,
        min_isr=min(replicas, rng.choice((1, 2, 2, 2, 3))),
        seconds=rng.choice((10.0, 20.0, 20.0, 40.0)),
        partitions=rng.choice((1, 2, 4)),
        unclean_partitions=rng.choice((0, 1, 2)),
        producers=rng.choice((1, 1, 2)),
        no_retry_producers=rng.choice((0, 1)),
        consumers=1,
        administrators=max(rng.choice((0, 2, 3, 4)), int(log_dirs > 1)),
        log_dirs=log_dirs,
        mean_gap_s=rng.choice((1.0, 1.5, 2.5, 4.0)),
        pause_s=extra.choice((0.3, 0.6, 1.0)),
        slowness=extra.choice((0.0, 1.0, 1.0, 4.0)),
        short_turns=random.Random(f"{seed}/turns").random() < 0.3,
        crash_detection=crash_detection,
        durable_zookeeper=durable_zookeeper,
        evicted=extra.choice((0.0, 0.01, 0.2)),
        compacted=random.Random(f"{seed}/compacted").random() < 0.25,
        in_order=extra.random() < 0.2,
        hard=extra.random() < 0.5,
        small_fetches=extra.random() < 0.3,
        faults=(ALWAYS, *asked_for),
        operators=rng.random() < 0.7,
        members=members if coordinated else 0,
        copiers=copiers if coordinated else 0,
        cooperative=coordinated and members > 0 and cooperative,
    )
