"""Catalogue: every figure of a broker, with its kind, its unit and what it means.

Pure. A line is an MBean, its kind, its unit and its meaning, with `|` between; tags stand without
values. Tests keep it equal to what brokers show.

Kinds: `gauge` has `Value`; `meter` counts (`Count`, `OneMinuteRate`); `times` has `Count`, `Mean`,
`Min`, `Max` and percentiles; `timer` is both; `share` a meter of what is between 0 and 1;
`attributes` has attributes of its own.
"""

from dataclasses import dataclass
from functools import cache

from ottla.broker.metrics.exposition import HISTOGRAM, parse_bean, samples_of

_QUOTA = "kafka.server:type="
ATTRIBUTES = {
    "kafka.server:type=socket-server-metrics": (
        "connection-count",
        "connection-creation-total",
        "connection-close-total",
        "successful-authentication-total",
        "failed-authentication-total",
        "successful-reauthentication-total",
        "failed-reauthentication-total",
    ),
    f"{_QUOTA}Produce": ("byte-rate", "throttle-time"),
    f"{_QUOTA}Fetch": ("byte-rate", "throttle-time"),
    f"{_QUOTA}Request": ("request-time", "throttle-time"),
}
"""Those of MBeans of the kind `attributes`."""

BEANS = """\
kafka.network:type=RequestChannel,name=RequestQueueSize | gauge | requests | requests read and not dispatched: each waits for those before it on its connection, since there is no queue across connections ([REQUESTS.md](REQUESTS.md))
kafka.network:type=RequestChannel,name=ResponseQueueSize | gauge | responses | answers that are there and not handed to the socket: they wait for an answer before them, or for the end of this turn of the loop
kafka.network:type=RequestMetrics,name=RequestsPerSec,request,version | meter | requests | requests by kind and version; a fetch counts as Fetch, and as FetchConsumer or FetchFollower
kafka.network:type=RequestMetrics,name=ErrorsPerSec,request,error | meter | errors | errors in responses, by kind of request and error, `NONE` too: of a response, and of each topic or partition in it that has an error code of its own
kafka.network:type=RequestMetrics,name=TotalTimeMs,request | times | ms | from when all of a request had come until its response was handed to the system: the sum of the next five; percentiles are of the last 256 that were timed, each 64th of its kind and version
kafka.network:type=RequestMetrics,name=RequestQueueTimeMs,request | times | ms | the part of TotalTimeMs until the dispatch. A request waits for those before it on its connection, which Kafka would not have read yet, and for a loop that was busy for long
kafka.network:type=RequestMetrics,name=LocalTimeMs,request | times | ms | the part of TotalTimeMs from the dispatch until the handler returned
kafka.network:type=RequestMetrics,name=RemoteTimeMs,request | times | ms | the part of TotalTimeMs after the handler returned: waiting for followers, for records, for a worker
kafka.network:type=RequestMetrics,name=ResponseQueueTimeMs,request | times | ms | the part of TotalTimeMs after the response was ready: waiting for an earlier response of the connection and for the end of the loop's turn
kafka.network:type=RequestMetrics,name=ResponseSendTimeMs,request | times | ms | the last part of TotalTimeMs, until the system has taken the response or keeps it for a client that reads slowly
kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent | share | share of time, 0 to 1 | share of the last minute in which the loop's thread neither ran nor waited for a core (`/proc/thread-self/schedstat`). Elsewhere than on Linux, waiting for a core counts as idle. Time in which a disk lets the loop wait counts as idle, too: `event loop stalled` in server.log reports that
kafka.network:type=SocketServer,name=MemoryPoolUsed | gauge | bytes | what is in use of `queued.max.request.bytes`, for frames over 64 KiB
kafka.network:type=SocketServer,name=MemoryPoolAvailable | gauge | bytes | what is left of `queued.max.request.bytes`, for frames over 64 KiB
kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent | share | share of time, 0 to 1 | the same as NetworkProcessorAvgIdlePercent: network and handlers are one thread. `Count` are idle nanoseconds, as in Kafka
kafka.server:type=socket-server-metrics,listener,networkProcessor | attributes | connections | connections of a listener that there are, that were made, that ended; clients that were authenticated by SASL or TLS and that were not, and the same of sessions that go on; networkProcessor is always 0
kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic | meter | records | records that were appended for clients
kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic | meter | bytes | bytes of the batches that were appended for clients, as stored
kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec,topic | meter | bytes | bytes of batches sent to consumers
kafka.server:type=BrokerTopicMetrics,name=BytesRejectedPerSec,topic | meter | bytes | bytes of batches above `max.message.bytes`
kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesInPerSec,topic | meter | bytes | bytes of batches copied from leaders
kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesOutPerSec,topic | meter | bytes | bytes of batches sent to followers
kafka.server:type=BrokerTopicMetrics,name=ProduceMessageConversionsPerSec | meter | records | records converted from an old format: always 0, as there are none
kafka.server:type=BrokerTopicMetrics,name=FetchMessageConversionsPerSec | meter | records | records converted to an old format: always 0
kafka.server:type=BrokerTopicMetrics,name=TotalProduceRequestsPerSec,topic | meter | batches | batches of produce requests, taken or refused: one for each partition of a request
kafka.server:type=BrokerTopicMetrics,name=FailedProduceRequestsPerSec,topic | meter | batches | batches of TotalProduceRequestsPerSec that were refused for another reason than that leadership moved or that the batch is too large or damaged
kafka.server:type=BrokerTopicMetrics,name=TotalFetchRequestsPerSec,topic | meter | reads | reads of a partition for a fetch. Kafka reads each partition of a session for each fetch, this broker only those with news
kafka.server:type=BrokerTopicMetrics,name=FailedFetchRequestsPerSec,topic | meter | reads | reads of TotalFetchRequestsPerSec that failed for another reason than that leadership moved or the offset is not there
kafka.server:type=Produce,user,client-id | attributes | bytes/s, ms | where there are quotas, of the 200 busiest who share one of this kind: `byte-rate` of what they produced, `throttle-time`: how long they were last held back, 0 if not lately. A user or client without a bound of its own is empty; both are percent-encoded, as in Kafka
kafka.server:type=Fetch,user,client-id | attributes | bytes/s, ms | as Produce, of what they were sent: `byte-rate`, `throttle-time`
kafka.server:type=Request,user,client-id | attributes | %, ms | as Produce, of the loop's time that their requests took: `request-time`, `throttle-time`
kafka.server:type=DelayedOperationPurgatory,name=NumDelayedOperations,delayedOperation | gauge | operations | `Fetch` and `Produce` that wait
kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation | gauge | operations | operations that wait, with those that are done and not swept out yet
kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions | gauge | sessions | fetch sessions that are kept
kafka.server:type=FetchSessionCache,name=NumIncrementalFetchPartitionsCached | gauge | partitions | partitions in the fetch sessions that are kept
kafka.server:type=FetchSessionCache,name=IncrementalFetchSessionEvictionsPerSec | meter | sessions | fetch sessions that had to make room for others
kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions | gauge | partitions | partitions led here whose ISR lacks a replica; those that a reassignment adds are not counted before it is done
kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount | gauge | partitions | partitions led here with fewer replicas in sync than `min.insync.replicas`: acks=all is refused
kafka.server:type=ReplicaManager,name=AtMinIsrPartitionCount | gauge | partitions | partitions led here with just as many replicas in sync as `min.insync.replicas`: one less, and acks=all is refused
kafka.server:type=ReplicaManager,name=ReassigningPartitions | gauge | partitions | partitions led here whose replicas are being changed
kafka.server:type=ReplicaManager,name=LeaderCount | gauge | partitions | partitions led here
kafka.server:type=ReplicaManager,name=PartitionCount | gauge | partitions | replicas that are online here
kafka.server:type=ReplicaManager,name=OfflineReplicaCount | gauge | partitions | replicas in log dirs that failed, and damaged ones
kafka.server:type=ReplicaManager,name=IsrShrinksPerSec | meter | changes | ISR changes that this broker asked for as leader and that were written. The controller takes dead brokers out by itself, as Kafka's does: that is no shrink here
kafka.server:type=ReplicaManager,name=IsrExpandsPerSec | meter | changes | as IsrShrinksPerSec, of replicas that were added
kafka.server:type=ReplicaManager,name=FailedIsrUpdatesPerSec | meter | requests | requests for ISR changes that were refused whole or lost, and are sent again
kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId | gauge | records | how far the follower that is furthest behind has to go
kafka.server:type=ReplicaFetcherManager,name=FailedPartitionsCount,clientId | gauge | partitions | replicas that cannot be copied until their leadership changes
kafka.server:type=FetcherLagMetrics,name=ConsumerLag,clientId,topic,partition | gauge | records | how far a follower is behind its leader
kafka.server:type=KafkaServer,name=BrokerState | gauge | number of the state | 0 NOT_RUNNING, 1 STARTING, 2 RECOVERY, 3 RUNNING, 6 PENDING_CONTROLLED_SHUTDOWN, 7 SHUTTING_DOWN ([STATES.md](STATES.md))
kafka.server:type=KafkaServer,name=linux-disk-read-bytes | gauge | bytes | what this process has read from disks since its start (`/proc/self/io`)
kafka.server:type=KafkaServer,name=linux-disk-write-bytes | gauge | bytes | what this process has written to disks since its start (`/proc/self/io`)
kafka.server:type=SessionExpireListener,name=ZooKeeperSyncConnectsPerSec | meter | events | connections to ZooKeeper that were made, also anew within a session
kafka.server:type=SessionExpireListener,name=ZooKeeperDisconnectsPerSec | meter | events | connections to ZooKeeper that were lost
kafka.server:type=SessionExpireListener,name=ZooKeeperExpiresPerSec | meter | events | sessions that ended though this broker lived
kafka.server:type=SessionExpireListener,name=ZooKeeperAuthFailuresPerSec | meter | events | times that ZooKeeper refused who this broker is (SASL)
kafka.server:type=ZooKeeperClientMetrics,name=ZooKeeperRequestLatencyMs | times | ms | how long ZooKeeper took to respond, of the last 256 requests
kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs | times | ms | how long it took to write a log to its disk (fsync), of the last 256 times; many small files are written in another way, and do not count
kafka.log:type=LogCleaner,name=cleaner-recopy-percent | gauge | % | how many of the bytes that the last cleaning of a log read were kept
kafka.log:type=LogCleaner,name=max-clean-time-secs | gauge | s | how long the last cleaning of a log took
kafka.log:type=LogCleaner,name=max-buffer-utilization-percent | gauge | % | how full the map of keys of the last cleaning was (`log.cleaner.dedupe.buffer.size`): at 100 a log is cleaned in several passes
kafka.log:type=LogCleanerManager,name=max-dirty-percent | gauge | % | the part that can be cleaned of the compacted log that is dirtiest, when the cleaner looked last
kafka.log:type=LogCleanerManager,name=time-since-last-run-ms | gauge | ms | time since the cleaner looked last; while it cleans, that grows
kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count,logDirectory | gauge | replicas | compacted logs that the cleaner leaves alone, because it found damage there (`log cannot be cleaned` in the log)
kafka.log:type=LogCleanerManager,name=uncleanable-bytes,logDirectory | gauge | bytes | bytes of compacted logs that the cleaner leaves alone; Kafka counts only what would be cleaned
kafka.log:type=LogManager,name=OfflineLogDirectoryCount | gauge | log dirs | log dirs that failed
kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory | gauge | 0 or 1 | whether a log dir failed
kafka.log:type=Log,name=Size,topic,partition | gauge | bytes | bytes of a replica's segments
kafka.log:type=Log,name=NumLogSegments,topic,partition | gauge | segments | segments of a replica
kafka.log:type=Log,name=LogStartOffset,topic,partition | gauge | offset | first offset of a replica
kafka.log:type=Log,name=LogEndOffset,topic,partition | gauge | offset | offset of the next record
kafka.cluster:type=Partition,name=ReplicasCount,topic,partition | gauge | replicas | replicas that are assigned, without those that a reassignment adds and has not finished; this and the next four are 0 where the partition is not led here
kafka.cluster:type=Partition,name=InSyncReplicasCount,topic,partition | gauge | replicas | replicas in the ISR
kafka.cluster:type=Partition,name=UnderReplicated,topic,partition | gauge | 0 or 1 | whether the ISR lacks a replica
kafka.cluster:type=Partition,name=UnderMinIsr,topic,partition | gauge | 0 or 1 | whether the ISR has fewer replicas than `min.insync.replicas`
kafka.cluster:type=Partition,name=AtMinIsr,topic,partition | gauge | 0 or 1 | whether the ISR has just as many replicas as `min.insync.replicas`
kafka.cluster:type=Partition,name=LastStableOffsetLag,topic,partition | gauge | records | how far open transactions hold readers of committed records back
kafka.controller:type=KafkaController,name=ActiveControllerCount | gauge | 0 or 1 | whether this broker is the controller
kafka.controller:type=KafkaController,name=OfflinePartitionsCount | gauge | partitions | partitions without a leader; this and what follows is 0 on brokers that are not the controller, as in Kafka
kafka.controller:type=KafkaController,name=ActiveBrokerCount | gauge | brokers | live brokers
kafka.controller:type=KafkaController,name=GlobalTopicCount | gauge | topics | topics of the cluster
kafka.controller:type=KafkaController,name=GlobalPartitionCount | gauge | partitions | partitions of the cluster
kafka.controller:type=KafkaController,name=PreferredReplicaImbalanceCount | gauge | partitions | partitions that are not led by the first of their replicas
kafka.controller:type=KafkaController,name=TopicsToDeleteCount | gauge | topics | topics whose deletion was asked for and is not done
kafka.controller:type=ControllerEventManager,name=EventQueueSize | gauge | events | events that wait for the controller's loop
kafka.controller:type=ControllerChannelManager,name=TotalQueueSize | gauge | requests | requests of the controller that wait, to all brokers
kafka.controller:type=ControllerChannelManager,name=QueueSize,broker-id | gauge | requests | requests of the controller that wait, to one broker
kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec | meter | partitions | partitions that got a leader that was not in sync: records may be lost
kafka.controller:type=ControllerStats,name=LeaderElectionRateAndTimeMs | timer | ms | how long the controller took for each change of the live brokers, of the last 256. Of an event all partitions are elected in one time
kafka.controller:type=ControllerStats,name=ControllerChangeRateAndTimeMs | timer | ms | how long the controller took for its election, of the last 256
kafka.controller:type=ControllerStats,name=TopicChangeRateAndTimeMs | timer | ms | how long the controller took for new topics and partitions, of the last 256
kafka.controller:type=ControllerStats,name=TopicDeletionRateAndTimeMs | timer | ms | how long the controller took for deletions of topics, of the last 256
kafka.controller:type=ControllerStats,name=IsrChangeRateAndTimeMs | timer | ms | how long the controller took for changes of ISRs, of the last 256
kafka.controller:type=ControllerStats,name=LogDirChangeRateAndTimeMs | timer | ms | how long the controller took for log dirs that failed, of the last 256
kafka.controller:type=ControllerStats,name=ManualLeaderBalanceRateAndTimeMs | timer | ms | how long the controller took for elections that were asked for, of the last 256
kafka.controller:type=ControllerStats,name=AutoLeaderBalanceRateAndTimeMs | timer | ms | how long the controller took for the regular return of leadership to first replicas, of the last 256
kafka.controller:type=ControllerStats,name=PartitionReassignmentRateAndTimeMs | timer | ms | how long the controller took for reassignments, of the last 256
kafka.controller:type=ControllerStats,name=ListPartitionReassignmentRateAndTimeMs | timer | ms | how long the controller took for lists of reassignments, of the last 256
kafka.controller:type=ControllerStats,name=TopicUncleanLeaderElectionEnableRateAndTimeMs | timer | ms | how long the controller took for unclean elections that were allowed for a topic, of the last 256
kafka.controller:type=ControllerStats,name=ControlledShutdownRateAndTimeMs | timer | ms | how long the controller took for brokers that stop in order, of the last 256
kafka.controller:type=ControllerStats,name=LeaderAndIsrResponseReceivedRateAndTimeMs | timer | ms | how long the controller took for responses of brokers to LeaderAndIsr, of the last 256
kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups | gauge | groups | groups that this broker coordinates
kafka.coordinator.group:type=GroupMetadataManager,name=NumOffsets | gauge | offsets | committed offsets of the groups that this broker coordinates
kafka.coordinator.group:type=GroupMetadataManager,name=NumGroupsEmpty | gauge | groups | groups without members
kafka.coordinator.group:type=GroupMetadataManager,name=NumGroupsPreparingRebalance | gauge | groups | groups that wait for their members to join
kafka.coordinator.group:type=GroupMetadataManager,name=NumGroupsCompletingRebalance | gauge | groups | groups that wait for their leader's assignment
kafka.coordinator.group:type=GroupMetadataManager,name=NumGroupsStable | gauge | groups | groups whose members have their assignments
kafka.coordinator.group:type=GroupMetadataManager,name=NumGroupsDead | gauge | groups | always 0: a group without members and offsets is gone at once
ottla:type=EventLoop,name=LatenessMs | attributes | s; ms in JMX | how late the event loop runs what is due, looked at fifty times a second while the figures are read; time in which its thread waits for a core is left out (`/proc/thread-self/schedstat`): `Max` of the last minute, and since the start how often it was late by at least 10, 20, … ms (`CountFrom20`)
ottla:type=SocketServer,name=ResponseBytes | gauge | bytes | bytes of responses that clients have not read yet, of `ottla.queued.max.response.bytes`
ottla.server:type=ReplicaManager,name=LostRecordsPerSec | meter | records | committed records that this broker cut off, since its leader, elected uncleanly, does not have them; which ones is in its log (`lost records`)
ottla.server:type=ReplicaManager,name=DoubtfulRecordsPerSec | meter | records | records that this broker cut off and that may have been acknowledged, as its high watermark may have been behind: mostly after a crash; which ones is in its log (`truncated records may have been acknowledged`)
ottla.server:type=Purgatory,name=ParkedPerSec | meter | operations | requests that had to wait for followers, for records or for a time
ottla.server:type=Purgatory,name=ExpiredPerSec | meter | operations | requests that had to wait (ParkedPerSec) and ended because their time was over
ottla.server:type=ZooKeeperSession,name=State,state | gauge | 0 or 1 | whether the session with ZooKeeper is in this state: connected, suspended (the connection is lost, the session may go on), dead
ottla.server:type=ZooKeeper,name=WentBack | gauge | 0 or 1 | whether ZooKeeper was older than what this broker knew of it when it registered: restored, or replaced by an older copy ([adr/0025](adr/0025-a-disk-names-the-life-that-wrote-it.md))
ottla.server:type=Metrics,name=SeriesLeftOut | gauge | series | series of topics and partitions that this page leaves out, beyond `ottla.metrics.max.series`, and of clients with quotas that used something lately, beyond the 200 busiest of each kind
ottla.log:type=LogManager,name=DamagedLogCount | gauge | replicas | logs here of which records cannot be read ([adr/0008](adr/0008-a-damaged-replica-gives-up-and-is-copied-anew.md)); above 0 for longer than a copy takes, the log says which, and that no other replica is in sync
ottla.log:type=LogManager,name=SetAsideLogCount | gauge | replicas | damaged logs that are kept until their records have been copied anew
ottla.log:type=LogManager,name=CorruptReads | gauge | reads | reads refused since the start because a batch was not what had been written
ottla.log:type=TailCache,name=Bytes | gauge | bytes | memory of the last batches of all logs, from which consumers and followers that keep up are served
ottla.log:type=TailCache,name=MaxBytes | gauge | bytes | the most bytes of the tail cache
ottla.log:type=TailCache,name=HitsPerSec | meter | reads | reads that the tail cache served
ottla.log:type=TailCache,name=MissesPerSec | meter | reads | reads that the tail cache did not serve and that went to a file
ottla.controller:type=ControllerStats,name=LeadersElectedPerSec | meter | partitions | partitions that got a leader by an election
ottla.controller:type=ControllerStats,name=ElectionsPerSec,cause | meter | partitions | partitions that got a leader by an election, by cause: `offline` (the leader is gone), `unclean`, `reassignment`, `preferred`, `controlled-shutdown`
ottla.controller:type=ControllerStats,name=RegistrationsRemovedPerSec | meter | brokers | registrations that this controller removed because the broker's process was gone (R17)
ottla.controller:type=CrashDetection,name=ProofTimeMs | times | ms | how long it took to show that the process of a broker is gone, from the lost connection on
"""  # noqa: E501

PROCESS = """\
process_cpu_seconds_total | counter | s | processor time of this process
process_resident_memory_bytes | gauge | bytes | memory of this process
process_open_fds | gauge | descriptors | open file descriptors
process_max_fds | gauge | descriptors | how many there may be
process_start_time_seconds | gauge | s since 1970 | when this process was started
"""
"""As the client libraries of Prometheus name them; only in its formats, read from `/proc`."""

LATENESS = "ottla_eventloop_lateness_seconds"
LATENESS_BEAN = "ottla:type=EventLoop,name=LatenessMs"
PERCENTILE = "99thPercentile"


@dataclass(frozen=True, slots=True)
class Described:
    """One line of the catalogue. `bean` has tags without their values."""

    bean: str
    kind: str
    unit: str
    meaning: str

    @property
    def name(self) -> str:
        """The MBean without its tags."""
        return ",".join(self.bean.split(",")[: 2 if ",name=" in self.bean else 1])

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self.bean.removeprefix(self.name).lstrip(",").split(","))

    @property
    def families(self) -> dict[str, str]:
        """The names of its metrics in Prometheus, each with its kind there."""
        if self.bean == LATENESS_BEAN:
            return {LATENESS: HISTOGRAM}
        attributes = {
            "gauge": ["Value"],
            "meter": ["Count"],
            "share": ["OneMinuteRate", "Count"] if "Handler" in self.bean else ["Value"],
            "times": ["Count", PERCENTILE],
            "timer": ["Count", PERCENTILE],
            "attributes": ATTRIBUTES.get(self.name, ()),
        }[self.kind]
        bean = parse_bean(self.name)
        return {
            sample.family: sample.kind
            for attribute in attributes
            for sample in samples_of(bean, attribute)
        }


def _lines(text: str) -> list[list[str]]:
    return [[part.strip() for part in line.split(" | ")] for line in text.strip().split("\n")]


@cache
def beans() -> tuple[Described, ...]:
    """Return all MBeans, in the order in which they are listed."""
    return tuple(Described(*line) for line in _lines(BEANS))


@cache
def process_metrics() -> tuple[Described, ...]:
    """Return the metrics of the process."""
    return tuple(Described(*line) for line in _lines(PROCESS))


@cache
def help_texts() -> dict[str, str]:
    """Return what each family of Prometheus means, in one line of plain text."""
    found = {m.bean: f"{m.meaning} ({m.unit})" for m in process_metrics()}
    for one in beans():
        text = one.meaning.partition(" ([")[0].replace("`", "").replace("\\", "")
        for family in one.families:
            found[family] = f"{text} ({one.unit})"
    return found
