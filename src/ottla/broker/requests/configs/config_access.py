"""What the settings of a resource need: those of topics the topic, all others the cluster.

Kafka: `ConfigHelper` and `KafkaApis`.
"""

from typing import Any

from ottla.broker.requests.access import Access, ForEach, Need
from ottla.security.acls import ALTER_CONFIGS, DESCRIBE_CONFIGS, TOPIC

CONFIG_TOPIC, CONFIG_BROKER, CONFIG_BROKER_LOGGER, CONFIG_CLIENT_METRICS = 2, 4, 8, 16


def _each_resource(operation: int, responded: str, *, with_message: bool = False) -> ForEach:
    """Return the needs of a request's resources. Unknown types have none: they are refused."""
    of_topic = Need(operation, TOPIC, "resource_name", "a topic's settings")
    of_cluster = Need(operation, note="a broker's settings, loggers, client metrics")
    needs = {
        CONFIG_TOPIC: of_topic,
        CONFIG_BROKER: of_cluster,
        CONFIG_BROKER_LOGGER: of_cluster,
        CONFIG_CLIENT_METRICS: of_cluster,
    }

    def need(resource: Any) -> Need | None:
        return needs.get(resource.resource_type)

    return ForEach("resources", responded, need, (of_topic, of_cluster), with_message=with_message)


DESCRIBING = Access(each=_each_resource(DESCRIBE_CONFIGS, "results", with_message=True))
ALTERING = Access(each=_each_resource(ALTER_CONFIGS, "responses"))
