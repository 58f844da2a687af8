"""The wire: bytes to messages and back, and nothing else.

Frames' bodies are parsed and written by functions compiled from compact schemas, one module per
API in `messages`; `codec` is the way in, `headers` does what stands before a body, `records` and
`compression` what travels inside Produce and Fetch. No I/O, no clock, no state but caches.
"""
