"""Makes Spark know `format("ottla")`: it looks for packages of this name on its Python path.

Nothing has to be registered; executors need the same package. PySpark:
`lookup_data_sources`.
"""

from ottla.pipelines.sink.data_source import TopicFormat


class DefaultSource(TopicFormat):
    """What Spark takes from this package."""
