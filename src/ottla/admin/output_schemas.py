"""What commands print with --output json (and yaml): a JSON schema for each.

Invariants: one schema for each command, whatever its options; a list is always a list; every field
is always there, null where there is nothing to tell, unless it is said to be missing. JSON alone
stands for what is not ours to describe: a znode's data, a record of a coordinator. Tests hold the
commands to them, on clusters of ours and of Kafka's.
"""

from ottla.model.json_schemas import (
    FLAG,
    FRACTION,
    JSON,
    NUMBER,
    NUMBERS,
    TEXT,
    TEXTS,
    Schema,
)
from ottla.model.json_schemas import an_object as _object
from ottla.model.json_schemas import by_name as _by_name
from ottla.model.json_schemas import many as _many
from ottla.model.json_schemas import or_null as _or_null


def _span(**fields: Schema) -> Schema:
    """Return an object with these fields and `from`, a time in ms since 1970."""
    return _object(**{"from": NUMBER}, **fields)


def _result(**fields: Schema) -> Schema:
    return _many(_object(**fields, result=TEXT))


def _entry(kind: str, missing: tuple[str, ...] = (), /, **fields: Schema) -> Schema:
    """Return an entry of a file, as `logs` prints it: the file, and what kind of entry it is."""
    return _object(missing, file=TEXT, kind={"const": kind}, **fields)


_BROKER_RESULT = _result(broker=NUMBER)
_TOPIC_RESULT = _result(topic=TEXT)
_PROFILE_RESULT = _result(profile=TEXT)
_CERTIFICATE_RESULT = _result(file=TEXT)
_PARTITION = _object(
    partition=NUMBER, leader=NUMBER, leader_epoch=NUMBER, replicas=NUMBERS, isr=NUMBERS,
    offline=NUMBERS,
)  # fmt: skip
_TOPIC = {
    "name": TEXT,
    "topic_id": TEXT,
    "internal": FLAG,
    "partitions": _many(_PARTITION),
    "settings": _or_null(_by_name(_or_null(TEXT))),
}
_SETTING = _object(
    key=TEXT, value=_or_null(TEXT), source=TEXT, type=TEXT, read_only=FLAG, sensitive=FLAG,
    synonyms=_many(_object(key=TEXT, value=_or_null(TEXT), source=TEXT)),
)  # fmt: skip
_QUOTA = _object(entity=_by_name(_or_null(TEXT)), values=_by_name(FRACTION))
_ACL = _object(
    resource=TEXT, name=TEXT, pattern=TEXT, principal=TEXT, host=TEXT, operation=TEXT,
    permission=TEXT,
)  # fmt: skip
_PLAN = _object(
    version=NUMBER,
    partitions=_many(_object(topic=TEXT, partition=NUMBER, replicas=NUMBERS, log_dirs=TEXTS)),
)
_RECORD = _object(
    ("key", "key_base64", "value", "value_base64"),
    topic=TEXT, partition=NUMBER, offset=NUMBER, timestamp=NUMBER,
    key=_or_null(TEXT), key_base64=TEXT, value=_or_null(TEXT), value_base64=TEXT,
    headers=_many(
        _object(
            ("key", "key_base64", "value", "value_base64"),
            key=TEXT, key_base64=TEXT, value=_or_null(TEXT), value_base64=TEXT,
        )
    ),
)  # fmt: skip
_ZNODE = {
    "path": TEXT,
    "kind": TEXT,
    "encoding": TEXT,
    "version": NUMBER,
    "created_ms": NUMBER,
    "modified_ms": NUMBER,
    "created_zxid": NUMBER,
    "modified_zxid": NUMBER,
    "ephemeral_owner": _or_null(TEXT),
    "bytes": NUMBER,
    "children": NUMBER,
}
_LOG_ENTRIES = (
    _entry(
        "batch", position=NUMBER, base_offset=NUMBER, last_offset=NUMBER, count=NUMBER,
        base_sequence=NUMBER, last_sequence=NUMBER, producer_id=NUMBER, producer_epoch=NUMBER,
        leader_epoch=NUMBER, transactional=FLAG, control=FLAG, delete_horizon=_or_null(NUMBER),
        timestamp_type=TEXT, max_timestamp=NUMBER, size=NUMBER, magic=NUMBER, compression=TEXT,
        crc=NUMBER, valid=FLAG,
    ),
    _entry(
        "record", offset=NUMBER, timestamp_type=TEXT, timestamp=NUMBER, key_size=NUMBER,
        value_size=NUMBER, sequence=NUMBER, header_keys=TEXTS, marker=_or_null(TEXT),
        coordinator_epoch=_or_null(NUMBER), key=_or_null(TEXT), key_base64=_or_null(TEXT),
        value=_or_null(TEXT), value_base64=_or_null(TEXT),
        decoded=_or_null(_object(key=_or_null(_by_name(JSON)), value=_or_null(_by_name(JSON)))),
    ),
    _entry("index", offset=NUMBER, position=NUMBER),
    _entry("time_index", timestamp=NUMBER, offset=NUMBER),
    _entry(
        "aborted_transaction", version=NUMBER, producer_id=NUMBER, first_offset=NUMBER,
        last_offset=NUMBER, last_stable_offset=NUMBER,
    ),
    _entry(
        "producer", producer_id=NUMBER, producer_epoch=NUMBER, coordinator_epoch=NUMBER,
        txn_first_offset=_or_null(NUMBER), last_timestamp=NUMBER,
        first_sequence=_or_null(NUMBER), last_sequence=_or_null(NUMBER),
        last_offset=_or_null(NUMBER), offset_delta=_or_null(NUMBER),
    ),
    _entry("leader_epoch", epoch=NUMBER, start_offset=NUMBER),
    _entry("offset", topic=TEXT, partition=NUMBER, offset=NUMBER),
    _entry("property", name=TEXT, value=TEXT),
)  # fmt: skip
_DIFFERENT: Schema = {"anyOf": [TEXT, FRACTION, NUMBERS, {"type": "null"}]}
"""A setting, a number (partitions, an offset, a quota), brokers; null where it is not there."""
_SCENARIO = _object(
    **{
        "brokers": NUMBER, "partitions": NUMBER, "replication-factor": NUMBER, "at-once": NUMBER,
        "wait-for-in-sync": FLAG, "catch-up-seconds": FRACTION,
        "longest-gap-seconds": _or_null(FRACTION), "faults": TEXTS, "promises": TEXTS,
        "server": _by_name(TEXT), "topic": _by_name(TEXT), "producer": _by_name(TEXT),
    },
)  # fmt: skip
_LEFT_OUT = {
    "damaged_lines": NUMBER,
    "damaged": _many(_object(file=TEXT, line=NUMBER, problem=TEXT)),
    "dropped_lines": NUMBER,
}
_LEADERSHIP = _object(
    leader=NUMBER, leader_epoch=NUMBER, isr=NUMBERS, partition_epoch=NUMBER, recovery_state=NUMBER
)
_PART = _object(
    replicas=NUMBERS, adding=NUMBERS, removing=NUMBERS, leadership=_or_null(_LEADERSHIP),
    state=TEXT,
)  # fmt: skip
_HISTORY_ENTRY = _object(
    time=TEXT, ts=NUMBER, controller=NUMBER, controller_epoch=NUMBER, cause=NUMBER, what=TEXT,
    before=_or_null(_LEADERSHIP), after=_or_null(_LEADERSHIP), because=TEXT, how=TEXT,
    election=TEXT, rule=TEXT, rejected=_many(_object(replica=NUMBER, reason=TEXT)), outcome=TEXT,
    line=TEXT,
)  # fmt: skip
_LOAD_STATE = _object(
    partitions=NUMBER, without_leader=NUMBER, under_replicated=NUMBER, under_min_isr=NUMBER,
    brokers=_many(
        _object(
            broker=NUMBER, rack=_or_null(TEXT), alive=FLAG, leaders=NUMBER, replicas=NUMBER,
            bytes=NUMBER,
        )
    ),
)  # fmt: skip
_WHATIF = _object(
    scenario=TEXT,
    before=_LOAD_STATE,
    after=_LOAD_STATE,
    changes=_many(
        _object(
            partition=TEXT, leader_before=NUMBER, leader_after=NUMBER, isr_before=NUMBERS,
            isr_after=NUMBERS, replicas_before=NUMBERS, replicas_after=NUMBERS,
        )
    ),
    steps=_many(_object(what=TEXT, without_leader=TEXTS, under_min_isr=TEXTS)),
    lost=_many(_object(partition=TEXT, leader=NUMBER, text=TEXT)),
    notes=TEXTS,
    harm=FLAG,
)  # fmt: skip
_WHATIF_EVENTS = (
    "kill", "shutdown", "rolling-restart", "drain", "add-brokers", "reassign", "unclean", "config",
)  # fmt: skip

SCHEMAS: dict[str, Schema] = {
    "up": _object(
        folder=TEXT, started=NUMBER, bootstrap_servers=TEXT, zookeeper=TEXT, zookeeper_server=TEXT,
        client_settings=_or_null(TEXT),
        brokers=_many(_object(id=NUMBER, address=TEXT, metrics=_or_null(TEXT))),
    ),
    "down": _object(folder=TEXT, stopped=NUMBER, by_force=NUMBER),
    "status": _object(
        cluster_id=_or_null(TEXT),
        controller=_or_null(NUMBER),
        brokers=_many(
            _object(
                id=NUMBER, address=TEXT, alive=FLAG, controller=FLAG, leads=NUMBER,
                replicas=NUMBER, pid=_or_null(NUMBER), resident_bytes=_or_null(NUMBER),
                paused=FLAG, reason=_or_null(TEXT),
                metrics=_or_null(_by_name(_by_name(FRACTION))),
            )
        ),
        topics=NUMBER, partitions=NUMBER, under_replicated=NUMBER, without_leader=NUMBER,
        zookeeper=_or_null(TEXT), zookeeper_running=_or_null(FLAG),
        zookeeper_server=_or_null(TEXT), problem=_or_null(TEXT), disk=_or_null(TEXT),
        healthy=FLAG,
    ),
    "broker stop": {"anyOf": [_BROKER_RESULT, _object(broker=NUMBER, remaining=TEXTS)]},
    "broker start": _BROKER_RESULT,
    "broker restart": _BROKER_RESULT,
    "broker kill": _BROKER_RESULT,
    "broker pause": _BROKER_RESULT,
    "broker resume": _BROKER_RESULT,
    "broker cut": _BROKER_RESULT,
    "broker heal": _BROKER_RESULT,
    "broker drain": {"anyOf": [_object(broker=NUMBER, moved=NUMBER), _PLAN]},
    "broker remove": _BROKER_RESULT,
    "topics create": _TOPIC_RESULT,
    "topics list": _many(
        _object(
            ("size", "size_of_replicas"), **_TOPIC, size=NUMBER, size_of_replicas=NUMBER
        )
    ),
    "topics describe": _many(_object(**_TOPIC)),
    "topics alter": _TOPIC_RESULT,
    "topics delete": _TOPIC_RESULT,
    "topics offsets": _many(
        _object(
            ("beginning", "end", "offset"),
            topic=TEXT, partition=NUMBER, beginning=_or_null(NUMBER), end=_or_null(NUMBER),
            offset=_or_null(NUMBER),
        )
    ),
    "topics delete-records": _many(
        _object(
            topic=TEXT, partition=NUMBER, first_offset=_or_null(NUMBER), problem=_or_null(TEXT)
        )
    ),
    "produce": _result(topic=TEXT, records=NUMBER),
    "consume": _RECORD,
    "configs describe": _object(
        of=_or_null(TEXT), settings=_many(_SETTING), quotas=_many(_QUOTA)
    ),
    "configs alter": _object(
        of=TEXT,
        executed=FLAG,
        changes=_many(
            _object(
                key=TEXT, before={"anyOf": [TEXT, FRACTION, {"type": "null"}]}, operation=TEXT,
                value=_or_null(TEXT),
            )
        ),
    ),
    "acls list": _many(_ACL),
    "acls add": _object(executed=FLAG, acls=_many(_ACL)),
    "acls remove": _object(executed=FLAG, acls=_many(_ACL)),
    "acls check": _object(
        question=TEXT, allowed=FLAG, reason=TEXT, acl=_or_null(_ACL), nearest=_or_null(_ACL),
        differs=TEXTS, command=_or_null(TEXT),
    ),
    "groups list": _many(
        _object(group=TEXT, type=TEXT, protocol_type=TEXT, state=TEXT, coordinator=NUMBER)
    ),
    "groups describe": _many(
        _object(
            group=TEXT, type=TEXT, state=TEXT, protocol_type=TEXT, protocol=TEXT,
            coordinator=NUMBER,
            members=_many(
                _object(
                    member=TEXT, instance=_or_null(TEXT), client=TEXT, host=TEXT, partitions=TEXTS
                )
            ),
        )
    ),
    "groups lag": _many(
        _object(
            group=TEXT,
            lag=NUMBER,
            partitions=_many(
                _object(
                    topic=TEXT, partition=NUMBER, committed=_or_null(NUMBER),
                    end=_or_null(NUMBER), lag=_or_null(NUMBER), member=_or_null(TEXT),
                    host=_or_null(TEXT), client=_or_null(TEXT),
                )
            ),
        )
    ),
    "groups delete": _result(group=TEXT, problem=_or_null(TEXT)),
    "groups delete-offsets": _result(topic=TEXT, partition=NUMBER, problem=_or_null(TEXT)),
    "groups reset-offsets": _object(
        group=TEXT,
        executed=FLAG,
        partitions=_many(
            _object(
                topic=TEXT, partition=NUMBER, current=_or_null(NUMBER), asked=NUMBER, new=NUMBER
            )
        ),
    ),
    "groups watch": _many(
        _object(
            group=TEXT,
            lag=NUMBER,
            partitions=_many(
                _object(
                    topic=TEXT, partition=NUMBER, committed=_or_null(NUMBER),
                    end=_or_null(NUMBER), lag=_or_null(NUMBER), client=_or_null(TEXT),
                    read_per_s=_or_null(FRACTION), written_per_s=_or_null(FRACTION),
                )
            ),
        )
    ),
    "cluster snapshot": _object(
        cluster_id=TEXT,
        brokers=_by_name(_by_name(TEXT)),
        topics=_by_name(_object(replicas=_many(NUMBERS), settings=_by_name(TEXT))),
        quotas=_many(_QUOTA),
        groups=_by_name(_by_name(_by_name(NUMBER))),
        version=NUMBER,
    ),
    "cluster diff": _many(_object(what=TEXT, name=TEXT, before=_DIFFERENT, after=_DIFFERENT)),
    "cluster apply": _many(_object(step=TEXT, name=TEXT, details=TEXT)),
    "znode ls": _many(_object(**_ZNODE)),
    "znode get": _object(**_ZNODE, data=JSON),
    "txn list": _many(
        _object(transactional_id=TEXT, state=TEXT, producer_id=NUMBER, coordinator=NUMBER)
    ),
    "txn describe": _many(
        _object(
            transactional_id=TEXT, state=TEXT, producer_id=NUMBER, producer_epoch=NUMBER,
            coordinator=NUMBER, timeout_ms=NUMBER, start_ms=_or_null(NUMBER), partitions=TEXTS,
        )
    ),
    "txn producers": _many(
        _object(
            producer_id=NUMBER, producer_epoch=NUMBER, last_sequence=NUMBER,
            last_timestamp=NUMBER, coordinator_epoch=NUMBER,
            transaction_start_offset=_or_null(NUMBER),
        )
    ),
    "txn hanging": _many(
        _object(
            topic=TEXT, partition=NUMBER, producer_id=NUMBER, producer_epoch=NUMBER,
            start_offset=NUMBER, last_timestamp=NUMBER,
        )
    ),
    "txn abort": _result(
        topic=TEXT, partition=NUMBER, start_offset=NUMBER, producer_id=NUMBER,
        producer_epoch=NUMBER,
    ),
    "users list": _many(_object(name=TEXT, credentials=_by_name(NUMBER))),
    "users add": _result(user=TEXT, mechanism=TEXT),
    "users remove": _result(user=TEXT, mechanism=TEXT),
    "users rotate": _result(user=TEXT),
    "reassign plan": _PLAN,
    "reassign execute": _PLAN,
    "reassign verify": _many(
        _object(partition=TEXT, state=TEXT, replicas=NUMBERS, target=NUMBERS)
    ),
    "reassign cancel": _many(_object(partition=TEXT, replicas=NUMBERS, cancelled=FLAG)),
    "reassign list": _many(
        _object(
            partition=TEXT, replicas=NUMBERS, adding=NUMBERS, removing=NUMBERS, copied=NUMBER,
            size=NUMBER, left=NUMBER, copied_per_s=_or_null(NUMBER),
        )
    ),
    "reassign throttles": _many(_object(kind=TEXT, name=TEXT, settings=_by_name(TEXT), fix=TEXT)),
    "top": _object(
        time=TEXT, controller=NUMBER, problem=_or_null(TEXT),
        brokers=_many(
            _object(
                broker=NUMBER, alive=FLAG, leaders=NUMBER, replicas=NUMBER, out_of_sync=NUMBER,
                written_per_s=_or_null(FRACTION), requests_per_s=_or_null(FRACTION),
                produce_p99_ms=_or_null(FRACTION), idle=_or_null(FRACTION),
            )
        ),
        topics=_many(
            _object(
                topic=TEXT, partitions=NUMBER, without_leader=NUMBER, under_replicated=NUMBER,
                moving=NUMBER, written_per_s=_or_null(FRACTION), records=NUMBER,
            )
        ),
        reassignments=_or_null(
            _object(
                partitions=NUMBER, bytes_copied=_or_null(NUMBER), bytes=_or_null(NUMBER),
                bytes_per_s=_or_null(FRACTION), seconds_left=_or_null(FRACTION),
            )
        ),
        groups=_by_name(_object(state=TEXT, members=NUMBER, lag=NUMBER)), events=TEXTS,
    ),
    "verify-replicas": _many(
        _object(
            **{"from": _or_null(NUMBER)}, topic=TEXT, partition=NUMBER, leader=NUMBER,
            to=_or_null(NUMBER), high_watermark=_or_null(NUMBER), batches=NUMBER, compacted=FLAG,
            problem=_or_null(TEXT),
            replicas=_many(
                _object(
                    broker=NUMBER, lag=_or_null(NUMBER), problem=_or_null(TEXT), different=NUMBER,
                    differences=_many(_object(kind=TEXT, offset=NUMBER, text=TEXT)),
                )
            ),
        )
    ),
    "doctor": _object(
        findings=_many(
            _object(
                finding=TEXT, severity=TEXT, subjects=TEXTS, evidence=TEXT, rule=TEXT, fix=TEXT,
                commands=TEXTS,
            )
        ),
        not_asked=TEXTS,
    ),
    "elect": _many(
        _object(
            partition=TEXT, result=TEXT, problem=_or_null(TEXT), leader=_or_null(NUMBER),
            lost=_many(
                _object(
                    **{"from": _or_null(NUMBER)}, broker=NUMBER, to=_or_null(NUMBER),
                    or_earlier=FLAG,
                )
            ),
            recommendation=_or_null(TEXT),
        )
    ),
    "log-dirs": _object(
        dirs=_many(
            _object(
                broker=NUMBER, path=TEXT, problem=TEXT, total=NUMBER, usable=NUMBER,
                replicas=NUMBER, arriving=NUMBER, size=NUMBER,
            )
        ),
        replicas=_many(
            _object(
                partition=TEXT, broker=NUMBER, path=TEXT, size=NUMBER, lag=NUMBER, is_future=FLAG
            )
        ),
    ),
    "dump-log": _many({"anyOf": list(_LOG_ENTRIES)}),
    "certs init": _CERTIFICATE_RESULT,
    "certs issue": _CERTIFICATE_RESULT,
    "certs rotate": _CERTIFICATE_RESULT,
    "certs list": _many(
        _object(
            name=TEXT, subject=TEXT, hosts=TEXTS, expires=_or_null(TEXT), days=_or_null(NUMBER),
            problem=TEXT,
        )
    ),
    "profile list": _many(
        _object(
            name=TEXT, in_use=FLAG, bootstrap_servers=_or_null(TEXT), dir=_or_null(TEXT),
            command_config=_or_null(TEXT),
        )
    ),
    "profile show": _object(cluster=TEXT, command_config=_or_null(TEXT)),
    "profile set": _PROFILE_RESULT,
    "profile use": _PROFILE_RESULT,
    "profile remove": _PROFILE_RESULT,
    **{f"whatif {name}": _WHATIF for name in _WHATIF_EVENTS},
    "sim check": _object(
        scenario=_SCENARIO, broken=TEXTS,
        promises=_many(
            _object(
                promise=TEXT, meaning=TEXT, broken=FLAG,
                counterexample=_or_null(
                    _object(
                        promise=TEXT, meaning=TEXT, seed=NUMBER, after_hours=FRACTION,
                        records=NUMBER, faults=NUMBERS, seconds=FRACTION, what=TEXT, why=TEXTS,
                        events=_many(_object(at_s=FRACTION, kind=TEXT, text=TEXT)),
                    )
                ),
            )
        ),
        runs=NUMBER, simulated_hours=FRACTION, faults=NUMBER, acknowledged=NUMBER,
        longest_gap_seconds=FRACTION,
        known_losses=_many(_object(settings=TEXT, hours=FRACTION, chance=FRACTION)),
        remedy=_or_null(
            _object(
                changes=_by_name(TEXT), helps=FLAG, broken=TEXTS, simulated_hours=FRACTION,
                longest_gap_seconds=FRACTION,
            )
        ),
        not_recovered=_or_null(_object(seed=NUMBER, what=TEXT)),
        defects=TEXTS, interrupted=FLAG,
    ),
    "why": _object(
        topic=TEXT, partition=NUMBER, topic_id=_or_null(TEXT), at=_or_null(NUMBER),
        now=_or_null(_PART), entries=_many(_HISTORY_ENTRY), **_LEFT_OUT,
    ),
    "history timeline": _object(
            until=NUMBER,
            controllers=_many(_span(controller=NUMBER, epoch=NUMBER, until=_or_null(NUMBER))),
            brokers=_many(_span(broker=NUMBER, state=TEXT)),
            partitions=_many(
                _span(
                    topic=TEXT, partition=NUMBER, leader=_or_null(NUMBER),
                    leader_epoch=_or_null(NUMBER), isr=NUMBERS, replicas=NUMBERS, why=TEXT,
                )
            ),
            without_leader=_many(
                _span(
                    topic=TEXT, partition=NUMBER, until=_or_null(NUMBER),
                    leader_may_be_dead=FLAG, why=TEXT,
                )
            ),
            events=_many(_object(time=NUMBER, what=TEXT)), left_out=NUMBER, **_LEFT_OUT,
            **{"from": NUMBER},
    ),
    "history replay": {
        "anyOf": [
            _object(
                time=TEXT, ts=NUMBER, controller=_or_null(NUMBER), controller_epoch=NUMBER,
                in_office=FLAG, brokers=NUMBERS, shutting_down=NUMBERS, deleting=TEXTS,
                topics=_by_name(_object(id=TEXT, partitions=_by_name(_PART))), **_LEFT_OUT,
            ),
            _object(
                decided_again=_by_name(NUMBER), unknown=_by_name(NUMBER),
                differences=_many(
                    _object(
                        subject=TEXT, decider=TEXT, time=TEXT, ts=NUMBER, controller_epoch=NUMBER,
                        cause=NUMBER, line=TEXT, journal=TEXT, now=TEXT,
                    )
                ),
                **_LEFT_OUT,
            ),
        ]
    },
}  # fmt: skip
"""By the words of the command. `consume` prints such an object a line, `groups watch` a list."""
