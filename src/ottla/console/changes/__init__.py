"""Changes of a cluster: each is shown before it is made, and made as it was shown.

Invariants: a preview changes nothing; what is sent to be done stands in the form of its preview.
"""
