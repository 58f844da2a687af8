"""Room `net`: frames over connections, both ends, and the real outside world.

`framing` cuts a byte stream into Kafka's size-prefixed frames; `connection` and `server` answer
them in order, with all memory bounded; `client` sends requests to brokers and clusters; `runtime`
has the real clock, network and workers. All sockets come from the Network port, so that the room
runs unchanged in the simulator.
"""
