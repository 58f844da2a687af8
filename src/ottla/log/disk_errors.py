"""Tells an OSError of the disk from one of this process.

Who may call: the room `log`. A pure function.
"""

import errno

_SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE))


def is_shortage(error: OSError) -> bool:
    """Whether descriptors ran out (F45): nothing was done, and the disk is as good as before.

    Anything else that a write, an fsync or a rename raises may mean lost data (F17, F18).
    """
    return error.errno in _SHORTAGES
