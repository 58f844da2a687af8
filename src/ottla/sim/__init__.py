"""Room `sim`: whole clusters in one process, on simulated time, network and disks.

`scheduler` and `loop` give each node an asyncio event loop of its own over one virtual clock;
`network` and `files` are the ports with faults; `world` boots and crashes nodes;
`nemesis` breaks things by seed, `history` and `checkers` judge what clients saw, `cluster` runs
real brokers in it. One seed, one trace: `python -m ottla.sim --seed N` replays a failure.
"""
