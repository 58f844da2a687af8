"""What Ottla needs of its operating system: `fcntl`, which Windows does not have.

Invariant: where it is missing, the ImportError says what to do, whichever module was imported
first.
"""

try:
    import fcntl
except ModuleNotFoundError:
    raise ImportError(
        "Ottla needs Linux, which this system is not; on Windows use WSL (wsl --install)"
    ) from None

__all__ = ["fcntl"]
