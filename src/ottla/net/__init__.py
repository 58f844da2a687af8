"""Room `net`: frames over connections, both ends, and the real outside world.

`framing` cuts a byte stream into Kafka's size-prefixed frames; `connection` and `server` answer
them in order with everything bounded; `client` asks peers and clusters; `runtime` holds the real
clock, network and workers. Sockets are only ever reached through the Network port, so all of it
runs unchanged in the simulator.
"""
