"""Metrics: what operators are shown of this broker, under the names of Kafka's MBeans."""
