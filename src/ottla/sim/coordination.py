"""Coordination in a run: the members and copiers, what has to come true, and the verdict on it.

Invariants: copiers write to a topic of their own and read what the plain producers write; the
internal topics have few partitions and small segments, so that they move, are compacted and get new
coordinators within a run.
"""

import math
from collections.abc import Callable, Iterator

from ottla.client.client import Client
from ottla.client.coordinators import Coordinator
from ottla.client.group_resets import commit_request, worst_code
from ottla.coordinators.transaction import MAY_EXPIRE
from ottla.model.errors import RETRIABLE
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.sim.broker_processes import COPIES
from ottla.sim.checkers import Logs, few
from ottla.sim.client_roles import Actor, ClientRoles
from ottla.sim.group_checkers import check_groups
from ottla.sim.history import Commit
from ottla.sim.machines import Machines
from ottla.sim.members import CooperativeReader, GroupReader, ask_patiently
from ottla.sim.transaction_checkers import (
    LoggedTransaction,
    check_transactions,
    latest_by_key,
    transactions_in,
)
from ottla.sim.transactors import TRANSACTION_TIMEOUT_MS, Copier

READERS, COPYING = "readers", "copying"
"""Groups: of members that only read, and of the copiers."""
MARKER_S = 15.0
"""An open transaction is over so long after its timeout, once all is healed: a look, markers."""

Stages = Iterator[tuple[str, Callable[[], bool], float | None]]


class Coordination:
    """Members and copiers over one cluster; without any of them it does nothing."""

    def __init__(self, cluster: Machines) -> None:
        self._cluster = cluster
        self._plan = plan = cluster.plan
        self._history = cluster.history
        self.client_roles = ClientRoles(
            cluster.simulation, cluster.history, plan.mean_gap_s * 1.5, plan.fault_mask
        )
        self._doomed = False
        """Whether copiers are to leave a transaction open."""
        for i in range(plan.members):
            static = f"static-{i}" if i % 2 else None
            self.client_roles.add(f"m{i}", self._reader(static), understudy=static is not None)
        for i in range(plan.copiers):
            self.client_roles.add(f"t{i}", self._copier(f"t{i}"), understudy=True)

    def _reader(self, instance_id: str | None) -> Callable[[World, str], Actor]:
        c = self._cluster
        kind = CooperativeReader if self._plan.cooperative else GroupReader
        return lambda world, process: kind(
            world, c.bootstrap, process, READERS, c.firm, c.history, instance_id
        )

    def _copier(self, transactional_id: str) -> Callable[[World, str], Actor]:
        c = self._cluster

        def make(world: World, process: str) -> Copier:
            copier = Copier(
                world, c.bootstrap, process, transactional_id, COPYING, c.firm, COPIES, c.history
            )
            copier.doomed = self._doomed  # it may follow one that was fenced in that stage
            return copier

        return make

    async def begin_groups(self, client: Client) -> None:
        """Commit an offset of each group, so that it is never forgotten.

        Coordinators forget an empty group without offsets (as Kafka's): its generations begin anew
        then, and no one could tell two members of one generation from those of two groups.
        """
        for group in (READERS, COPYING):
            request = commit_request(group, dict.fromkeys(self._cluster.firm, 0))
            now = self._cluster.simulation.now
            tried = [Commit(group, tp, 0, -1, now) for tp in self._cluster.firm]
            self._history.commits += tried
            coordinator = Coordinator(client, group, patience_s=math.inf)
            await ask_patiently(coordinator, request, worst_code, again=RETRIABLE)
            for commit in tried:
                commit.completed_s = self._cluster.simulation.now

    # --- what has to come true --------------------------------------------------------------------

    def stages(self) -> Stages:
        """Yield names, conditions and seconds allowed (None: as for all), one after the other.

        Begins once all is healed and nothing is written any more. Some transactions are left open:
        they must be aborted in time, whatever clocks have jumped (F23).
        """
        if self._plan.members:
            yield "members have consumed and committed everything", self._all_committed, None
        if self._plan.copiers:
            for copier in self.client_roles.copiers:
                copier.hurried = True
            yield "everything is copied", self._all_copied, None
            self._doomed = True
            for copier in self.client_roles.copiers:
                copier.doomed = True
            yield "copiers have left transactions open", self._left_open, None
            self.client_roles.kill_all()
            allowed_s = TRANSACTION_TIMEOUT_MS / 1000 + MARKER_S
            yield "transactions left open have timed out", self._all_ended, allowed_s
        self.client_roles.finish()
        yield "members and copiers have ended", lambda: self.client_roles.ended, None
        yield "every transaction has ended", self._all_ended, None

    def _all_committed(self) -> bool:
        """Whether the reading group's offsets are the ends of all it reads."""
        done = {
            (c.tp, c.offset)
            for c in self._history.commits
            if c.group == READERS and c.completed_s is not None
        }
        ends = {tp: self._cluster.end(tp) for tp in self._cluster.firm}
        return all(end == 0 or (tp, end) in done for tp, end in ends.items())

    def _all_copied(self) -> bool:
        """Whether a read_committed reader has as many copies as there are records."""
        copies = sum(r.process in self._history.committed_readers for r in self._history.reads)
        logs = self._cluster.replicas.records(self._cluster.firm).values()
        return copies >= sum(max(map(len, replicas.values()), default=0) for replicas in logs)

    def _left_open(self) -> bool:
        return all(copier.left_open for copier in self.client_roles.copiers)

    def _all_ended(self) -> bool:
        """Whether no coordinator has a transaction under way."""
        return not any(
            transaction.pending is not None or transaction.state not in MAY_EXPIRE
            for broker in self._cluster.brokers.values()
            for transaction in broker.services.coordination.transactions.transactions
        )

    # --- the verdict ------------------------------------------------------------------------------

    def transactions(self) -> dict[TopicPartition, list[LoggedTransaction]]:
        """Return what became of the transactions, by each partition's longest replica."""
        return {
            tp: transactions_in(max(replicas.values(), key=len, default=b""))
            for tp, replicas in self._cluster.replicas.raw(self._cluster.copies).items()
        }

    def judge(self, logs: Logs, *, complete: bool) -> list[str]:
        """Return what is wrong; `complete`: everything was to have come to its end."""
        source = {tp: max(logs[tp].values(), key=len, default=()) for tp in self._cluster.firm}
        found = check_groups(self._history, source, complete=complete)
        if self._plan.copiers:
            found += check_transactions(
                self._history, source, self.transactions(), complete=complete
            )
        return [*found, *(self._compacted_apart() if complete else ())]

    def _compacted_apart(self) -> list[str]:
        """Compare what replicas of internal topics say in the end; each compacts on its own."""
        found = []
        for tp, replicas in self._cluster.replicas.raw(self._cluster.internal).items():
            # Most replicas are the same bytes: those are read once.
            read = {data: latest_by_key(data) for data in set(replicas.values())}
            states = {broker: read[data] for broker, data in replicas.items()}
            first = next(iter(states.values()), {})
            found += [f"{tp} on broker {b}" for b, state in states.items() if state != first]
        return few("compacted replicas differ", found)
