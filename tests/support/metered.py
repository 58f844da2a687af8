"""Files and workers that note what the event loop reads, writes and works on itself (F46)."""

import asyncio


class MeteredFiles:
    """Real files, and the workers that use them.

    `by_loop`: bytes read outside of a worker; `largest`: of one piece written or worked on there.
    """

    def __init__(self, files):
        self.files = files
        self.by_loop = 0
        self.largest = 0
        self.in_worker = False

    def __getattr__(self, name):
        return getattr(self.files, name)

    def count(self, data):
        if not self.in_worker:
            self.by_loop += len(data)
        return data

    def note(self, size):
        if not self.in_worker:
            self.largest = max(self.largest, size)

    def open(self, path, *, create=False):
        return MeteredFile(self, self.files.open(path, create=create))

    def read_bytes(self, path):
        return self.count(self.files.read_bytes(path))

    def work(self, function, *args):
        """Call a function as a worker does."""
        self.in_worker = True
        try:
            return function(*args)
        finally:
            self.in_worker = False

    async def run(self, function, *args):
        """Be the workers, too."""
        await asyncio.sleep(0)
        return self.work(function, *args)


class MeteredFile:
    def __init__(self, files, file):
        self._files = files
        self._file = file

    def __getattr__(self, name):
        return getattr(self._file, name)

    def pread(self, size, offset):
        return self._files.count(self._file.pread(size, offset))

    def pwrite(self, parts, offset):
        self._files.note(sum(map(len, parts)))
        return self._file.pwrite(parts, offset)

    def reader(self):
        file = self._file.reader()
        return None if file is None else MeteredFile(self._files, file)
