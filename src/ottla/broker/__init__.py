"""Broker: one server, assembled from the other rooms.

`router` turns frames into handler calls, `handlers/` answer one API each, `metadata_cache` is
what the controller told us, `topic_configs` what ZooKeeper says about topics, `lifecycle` the
states of a server and the ZooKeeper generations it lives through, `broker` the order in which all
of it starts and stops. Nothing below ever calls up: the broker hands callables down.
"""
