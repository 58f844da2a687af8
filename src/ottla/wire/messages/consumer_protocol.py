"""What consumers tell each other through their group: subscriptions and assignments.

Opaque to brokers; groups' descriptions and tools read them. On the wire an int16 version stands
before each. Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment.
"""

from ottla.wire.schema import load

SCHEMA = """
ConsumerProtocolSubscription (key -1, versions 0-3) =
    topics:[]string user_data:bytes?=null owned_partitions:[]TopicPartition@1+~
    generation_id:int32@2+=-1~ rack_id:string@3+?=null~
TopicPartition = topic:string@1+ partitions:[]int32@1+

ConsumerProtocolAssignment (key -1, versions 0-3) =
    assigned_partitions:[]TopicPartition user_data:bytes?=null
TopicPartition = topic:string partitions:[]int32
"""

ConsumerProtocolSubscription, ConsumerProtocolAssignment = load(SCHEMA, __name__)
