"""What a server frees stays with it: reading a megabyte again and again maps no page anew."""

import resource
import subprocess
import sys

from ottla.net import allocator

READ_AGAIN_AND_AGAIN = """
import resource
from ottla.net.allocator import keep_freed_memory
TELL
def read():
    blocks = [bytearray(1 << 20) for _ in range(8)]
    del blocks
for _ in range(3):
    read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    read()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(tell: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", READ_AGAIN_AND_AGAIN.replace("TELL", tell)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return int(done.stdout)


def test_what_was_freed_is_used_again():
    if allocator._find_mallopt() is None:
        assert not allocator.keep_freed_memory()
        return
    told, not_told = faults("assert keep_freed_memory()"), faults("")
    pages = 20 * 8 * (1 << 20) // resource.getpagesize()
    assert told < pages // 100
    assert not_told > pages // 2
