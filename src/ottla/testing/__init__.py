"""Clusters for tests of applications: a cluster as an object, faults, a pytest plugin.

Invariants: a cluster leaves nothing behind, whatever becomes of the process that made it; every
wait has a bound; whatever is wrong is an OttlaError of one line.
"""
