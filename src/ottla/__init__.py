"""Ottla: Kafka's high availability, in Python.

`Cluster` and `SyncCluster` are clusters as objects, for tests: docs/TESTING_YOUR_APPLICATION.md.
They are imported at their first use. `__version__` is that of the installed package.
"""

TYPE_CHECKING = False  # `typing` takes 5 ms, in which a Ctrl-C would be a traceback
if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster as Cluster
    from ottla.testing.sync_cluster import SyncCluster as SyncCluster

    __version__: str

_LAZY = {"Cluster": "ottla.testing.cluster", "SyncCluster": "ottla.testing.sync_cluster"}


def __getattr__(name: str) -> object:
    """Import what is asked for by its name here (PEP 562)."""
    if name == "__version__":
        from importlib.metadata import version

        return version("ottla")
    if name not in _LAZY:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    from importlib import import_module  # importing ottla stays cheap

    found: object = getattr(import_module(_LAZY[name]), name)
    globals()[name] = found
    return found
