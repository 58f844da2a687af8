"""Operations: the bit fields of what a client may do, when nothing is forbidden.

Who may call: handlers. Until an authorizer is served every client may do all that a resource
supports. Kafka: `AclEntry.supportedOperations` and `AuthHelper.authorizedOperations`.
"""

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = 3, 4, 5, 6, 7, 8, 9
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 10, 11, 12


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS = _bits(
    READ, WRITE, CREATE, DESCRIBE, DELETE, ALTER, DESCRIBE_CONFIGS, ALTER_CONFIGS
)
GROUP_OPERATIONS = _bits(READ, DESCRIBE, DELETE)
CLUSTER_OPERATIONS = _bits(
    CREATE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, ALTER, DESCRIBE
)
