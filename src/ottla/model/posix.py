"""What Ottla needs of its operating system: `fcntl`, which Windows does not have.

Who may call: whoever locks files or asks about descriptors. Invariant: where it is missing, the
ImportError says what to do, whichever module was imported first.
"""

try:
    import fcntl
except ModuleNotFoundError:
    raise ImportError(
        "Ottla needs Linux, which this system is not; on Windows use WSL (wsl --install)"
    ) from None

__all__ = ["fcntl"]
