"""DescribeLogDirs (key 35): sizes of replicas per log directory.

Kafka's DescribeLogDirsRequest and DescribeLogDirsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
DescribeLogDirsRequest (key 35, versions 0-4, flexible 2+) = topics:[]DescribableLogDirTopic?
DescribableLogDirTopic = topic:string partitions:[]int32

DescribeLogDirsResponse (key 35, versions 0-4, flexible 2+) =
    throttle_time_ms:int32 error_code:int16@3+~ results:[]DescribeLogDirsResult
DescribeLogDirsResult =
    error_code:int16 log_dir:string topics:[]DescribeLogDirsTopic total_bytes:int64@4+=-1~
    usable_bytes:int64@4+=-1~
DescribeLogDirsTopic = name:string partitions:[]DescribeLogDirsPartition
DescribeLogDirsPartition =
    partition_index:int32 partition_size:int64 offset_lag:int64 is_future_key:bool
"""

DescribeLogDirsRequest, DescribeLogDirsResponse = load(SCHEMA, __name__)
