"""SASL: mechanisms as state machines, and the authentication of a connection around them."""
