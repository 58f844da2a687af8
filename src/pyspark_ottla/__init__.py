"""Makes Spark know `format("ottla")`: it looks for packages of this name on its Python path.

Nothing has to be registered; executors need the same package. PySpark:
`lookup_data_sources`.
"""

from ottla.pipelines.source.data_source import TopicSource


class DefaultSource(TopicSource):
    """What Spark takes from this package."""
