"""Diagnosis: what is wrong or unsafe in a cluster, with evidence, the rule and the fix.

`asking` gathers `facts` over the wire and from ZooKeeper; `replicas`, `brokers` and `clients` are
pure rules over them; `rules` gives what they find its texts, which `rules.toml` keeps.
"""
