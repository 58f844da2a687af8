"""Lifecycle: a server's states, its registration in ZooKeeper, its channel to the controller."""
