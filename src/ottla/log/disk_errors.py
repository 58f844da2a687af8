"""Tells an OSError of the disk from one of this process, and from records that are not read here.

Pure.
"""

import errno

_SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE))


class UnreadFormatError(OSError):
    """A log holds records of a format that is not read here (R21).

    An OSError, because everything that reads a log takes it offline for one. This one says nothing
    about the disk: only its partition goes offline, and no file of it is changed.
    """


def is_shortage(error: OSError) -> bool:
    """Whether descriptors ran out (F45): nothing was done, and the disk is as good as before.

    Anything else that a write, an fsync or a rename raises may mean lost data (F17, F18).
    """
    return error.errno in _SHORTAGES
