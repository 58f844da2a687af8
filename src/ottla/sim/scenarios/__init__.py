"""Scenarios: a user's cluster, settings, clients and faults, and what they must not break.

`ottla sim check` replies to "is this safe?" by a counterexample or by "none in N simulated hours".
"""
