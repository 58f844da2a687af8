"""DescribeCluster (key 60): brokers, controller and cluster id.

Kafka's DescribeClusterRequest and DescribeClusterResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
DescribeClusterRequest (key 60, versions 0-1, flexible 0+) =
    include_cluster_authorized_operations:bool endpoint_type:int8@1+=1

DescribeClusterResponse (key 60, versions 0-1, flexible 0+) =
    throttle_time_ms:int32 error_code:int16 error_message:string?=null endpoint_type:int8@1+=1
    cluster_id:string controller_id:int32=-1 brokers:[]DescribeClusterBroker
    cluster_authorized_operations:int32=-2147483648
DescribeClusterBroker = broker_id:int32 host:string port:int32 rack:string?=null
"""

DescribeClusterRequest, DescribeClusterResponse = load(SCHEMA, __name__)
