"""Broker: one server, assembled from the other rooms.

`broker` is the order in which all of it starts and stops, `process` the program around it. A frame
becomes a response in `requests/`. `lifecycle/` has the states of a server and the ZooKeeper
sessions it lives through, `metadata/` what the controller sent us, `configs/` and `quotas/` the
settings of topics, brokers and clients, `metrics/` what operators are shown. Nothing below ever
calls up: the broker hands callables down.
"""
