"""Twenty-odd of the golden vectors with the values they hold, spelled out field by field.

A round trip would not notice two fields of one type in the wrong order; these literals do.
"""

from pathlib import Path

import msgspec
import pytest

from ottla.wire import codec

VECTORS = Path(__file__).parents[2] / "vectors" / "messages.txt"

NAMED = [
    (
        "q 0 9",
        {
            "transactional_id": "s2940",
            "acks": 87,
            "timeout_ms": 786,
            "topic_data": [
                {
                    "name": "s9475",
                    "partition_data": [
                        {"index": 256, "records": None},
                        {"index": 208, "records": None},
                    ],
                },
                {
                    "name": "s4656",
                    "partition_data": [
                        {"index": 825, "records": None},
                        {"index": 598, "records": None},
                    ],
                },
            ],
        },
    ),
    (
        "q 3 9",
        {
            "topics": [{"name": "s1964"}, {"name": "s2914"}],
            "allow_auto_topic_creation": True,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": True,
        },
    ),
    (
        "r 5 4",
        {
            "error_code": 82,
            "partition_errors": [
                {"topic_name": "s9419", "partition_index": 75, "error_code": 56},
                {"topic_name": "s61", "partition_index": 706, "error_code": 32},
            ],
        },
    ),
    ("r 6 8", {"error_code": 45}),
    ("q 7 3", {"broker_id": 306, "broker_epoch": 693632510}),
    (
        "r 7 3",
        {
            "error_code": 35,
            "remaining_partitions": [
                {"topic_name": "s5482", "partition_index": 389},
                {"topic_name": "s5880", "partition_index": 653},
            ],
        },
    ),
    (
        "r 8 3",
        {
            "throttle_time_ms": 151,
            "topics": [
                {
                    "name": "s3939",
                    "partitions": [
                        {"partition_index": 346, "error_code": 84},
                        {"partition_index": 414, "error_code": 37},
                    ],
                },
                {
                    "name": "s8094",
                    "partitions": [
                        {"partition_index": 554, "error_code": 52},
                        {"partition_index": 395, "error_code": 72},
                    ],
                },
            ],
        },
    ),
    (
        "q 11 5",
        {
            "group_id": "s5288",
            "session_timeout_ms": 928,
            "rebalance_timeout_ms": 924,
            "member_id": "s6049",
            "group_instance_id": "s7020",
            "protocol_type": "s5260",
            "protocols": [
                {"name": "s9617", "metadata": b"\x01\x02\x03"},
                {"name": "s2531", "metadata": b"\x01\x02\x03"},
            ],
        },
    ),
    ("r 12 1", {"throttle_time_ms": 420, "error_code": 65}),
    (
        "r 13 4",
        {
            "throttle_time_ms": 620,
            "error_code": 71,
            "members": [
                {"member_id": "s321", "group_instance_id": "s837", "error_code": 94},
                {"member_id": "s7387", "group_instance_id": "s9155", "error_code": 24},
            ],
        },
    ),
    (
        "q 14 3",
        {
            "group_id": "s5211",
            "generation_id": 401,
            "member_id": "s4726",
            "group_instance_id": "s816",
            "assignments": [
                {"member_id": "s1038", "assignment": b"\x01\x02\x03"},
                {"member_id": "s6511", "assignment": b"\x01\x02\x03"},
            ],
        },
    ),
    ("q 17 1", {"mechanism": "s8493"}),
    (
        "r 18 4",
        {
            "error_code": 84,
            "api_keys": [
                {"api_key": 44, "min_version": 30, "max_version": 9},
                {"api_key": 2, "min_version": 7, "max_version": 76},
            ],
            "throttle_time_ms": 37,
            "supported_features": [
                {"name": "s188", "min_version": 53, "max_version": 30},
                {"name": "s5594", "min_version": 83, "max_version": 76},
            ],
            "finalized_features_epoch": 976265726,
            "finalized_features": [
                {"name": "s2419", "max_version_level": 45, "min_version_level": 93},
                {"name": "s1629", "max_version_level": 82, "min_version_level": 20},
            ],
            "zk_migration_ready": False,
        },
    ),
    (
        "q 19 4",
        {
            "topics": [
                {
                    "name": "s4989",
                    "num_partitions": 858,
                    "replication_factor": 76,
                    "assignments": [
                        {"partition_index": 429, "broker_ids": [32, 15]},
                        {"partition_index": 203, "broker_ids": [41, 16]},
                    ],
                    "configs": [
                        {"name": "s8670", "value": "s4925"},
                        {"name": "s3355", "value": "s8795"},
                    ],
                },
                {
                    "name": "s1252",
                    "num_partitions": 413,
                    "replication_factor": 83,
                    "assignments": [
                        {"partition_index": 611, "broker_ids": [2, 35]},
                        {"partition_index": 652, "broker_ids": [5, 41]},
                    ],
                    "configs": [
                        {"name": "s6473", "value": "s2139"},
                        {"name": "s2373", "value": "s183"},
                    ],
                },
            ],
            "timeout_ms": 480,
            "validate_only": True,
        },
    ),
    (
        "r 20 6",
        {
            "throttle_time_ms": 775,
            "responses": [
                {
                    "name": "s8820",
                    "topic_id": b"\x03\xfc\xa8\xa5\xcdS\x8f\xf3\x00\x00\x00\x00\x00\x00\x00\x05",
                    "error_code": 73,
                    "error_message": "s2901",
                },
                {
                    "name": "s1459",
                    "topic_id": b"E\xcf\x84\xcd\xd9XBb\x00\x00\x00\x00\x00\x00\x00\x05",
                    "error_code": 80,
                    "error_message": "s7453",
                },
            ],
        },
    ),
    (
        "q 22 4",
        {
            "transactional_id": "s8168",
            "transaction_timeout_ms": 644,
            "producer_id": 316869054,
            "producer_epoch": 37,
        },
    ),
    (
        "q 23 4",
        {
            "replica_id": 242,
            "topics": [
                {
                    "topic": "s3522",
                    "partitions": [
                        {"partition": 764, "current_leader_epoch": 339, "leader_epoch": 563},
                        {"partition": 380, "current_leader_epoch": 513, "leader_epoch": 71},
                    ],
                },
                {
                    "topic": "s4326",
                    "partitions": [
                        {"partition": 606, "current_leader_epoch": 379, "leader_epoch": 699},
                        {"partition": 562, "current_leader_epoch": 81, "leader_epoch": 492},
                    ],
                },
            ],
        },
    ),
    (
        "r 23 3",
        {
            "throttle_time_ms": 503,
            "topics": [
                {
                    "topic": "s5863",
                    "partitions": [
                        {
                            "error_code": 75,
                            "partition": 947,
                            "leader_epoch": 93,
                            "end_offset": 262263432,
                        },
                        {
                            "error_code": 15,
                            "partition": 848,
                            "leader_epoch": 572,
                            "end_offset": 858812418,
                        },
                    ],
                },
                {
                    "topic": "s7515",
                    "partitions": [
                        {
                            "error_code": 74,
                            "partition": 432,
                            "leader_epoch": 516,
                            "end_offset": 742626571,
                        },
                        {
                            "error_code": 44,
                            "partition": 417,
                            "leader_epoch": 909,
                            "end_offset": 1011032804,
                        },
                    ],
                },
            ],
        },
    ),
    (
        "q 26 3",
        {
            "transactional_id": "s4986",
            "producer_id": 517956837,
            "producer_epoch": 82,
            "committed": False,
        },
    ),
    (
        "r 27 1",
        {
            "markers": [
                {
                    "producer_id": 189762234,
                    "topics": [
                        {
                            "name": "s8694",
                            "partitions": [
                                {"partition_index": 179, "error_code": 7},
                                {"partition_index": 938, "error_code": 53},
                            ],
                        },
                        {
                            "name": "s3165",
                            "partitions": [
                                {"partition_index": 934, "error_code": 80},
                                {"partition_index": 108, "error_code": 87},
                            ],
                        },
                    ],
                },
                {
                    "producer_id": 430428778,
                    "topics": [
                        {
                            "name": "s534",
                            "partitions": [
                                {"partition_index": 720, "error_code": 32},
                                {"partition_index": 730, "error_code": 43},
                            ],
                        },
                        {
                            "name": "s4971",
                            "partitions": [
                                {"partition_index": 775, "error_code": 97},
                                {"partition_index": 662, "error_code": 13},
                            ],
                        },
                    ],
                },
            ]
        },
    ),
    (
        "r 60 1",
        {
            "throttle_time_ms": 665,
            "error_code": 38,
            "error_message": "s7112",
            "endpoint_type": 4,
            "cluster_id": "s336",
            "controller_id": 308,
            "brokers": [
                {"broker_id": 82, "host": "s5275", "port": 160, "rack": "s7908"},
                {"broker_id": 124, "host": "s5646", "port": 388, "rack": "s120"},
            ],
            "cluster_authorized_operations": 205,
        },
    ),
    ("q 67 0", {"broker_id": 450, "broker_epoch": 520858484}),
    (
        "r 67 0",
        {
            "throttle_time_ms": 963,
            "error_code": 73,
            "producer_id_start": 460867774,
            "producer_id_len": 666,
        },
    ),
]


def plain(value):
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    return [plain(item) for item in value] if isinstance(value, list) else value


def only(shape, value):
    if isinstance(shape, dict):
        return {name: only(shape[name], value[name]) for name in shape}
    if isinstance(shape, list):
        return [only(a, b) for a, b in zip(shape, value, strict=True)]
    return value


@pytest.mark.parametrize(("name", "expected"), NAMED, ids=[name for name, _ in NAMED])
def test_a_vector_holds_these_values(name, expected):
    line = next(line for line in VECTORS.open() if line.startswith(f"{name} 1 "))
    kind, key, version, _mode, raw = line.split()
    function = codec.decode_request if kind == "q" else codec.decode_response
    message = function(int(key), int(version), bytes.fromhex(raw))
    assert only(expected, plain(message)) == expected
