"""Authentication of connections, SCRAM users and delegation tokens."""
