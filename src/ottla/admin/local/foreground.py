"""`ottla up --foreground`: stay with the cluster, say which process dies, stop all at the end.

Invariants: leaves nothing running, whichever way it ends.
"""

import time
from collections.abc import Sequence

from ottla.admin.local import cluster as local_cluster
from ottla.admin.local.cluster_dir import ClusterDir
from ottla.cli.output import say
from ottla.model.process import ended_in_order

LOOK_S = 0.3


def stay(folder: ClusterDir, first_words: Sequence[str]) -> None:
    """Say `first_words`, watch the processes until Ctrl-C; return when all of them are stopped."""
    with ended_in_order():
        _stay(folder, first_words)


def _stay(folder: ClusterDir, first_words: Sequence[str]) -> None:
    dead: set[int] = set()
    try:
        for line in (*first_words, "Ctrl-C stops all of it"):
            say(line)
        while True:
            for broker in folder.existing().brokers:
                if not broker.running and broker.id not in dead:
                    dead.add(broker.id)
                    say(f"broker {broker.id} is gone: {folder.last_words(broker.id)}")
                elif broker.running and broker.id in dead:
                    dead.discard(broker.id)
                    say(f"broker {broker.id} is back")
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        say("stopping")
    finally:
        local_cluster.down(folder)
