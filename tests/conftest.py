"""For all tests: Ctrl-C means Ctrl-C, also where a script started pytest in the background.

A shell lets its background jobs ignore SIGINT, and every child inherits that; the tests that
interrupt a command would wait for something that cannot happen.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
