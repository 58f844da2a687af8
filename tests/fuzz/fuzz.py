"""Fuzz the wire, the broker behind it and what it reads from disk.

    python tests/fuzz/fuzz.py --minutes 60              every target, guided by coverage (atheris)
    python tests/fuzz/fuzz.py --target broker --minutes 10
    python tests/fuzz/fuzz.py --target broker --replay FILE
    python tests/fuzz/fuzz.py --keep 40                 a choice of what was found, kept
    python tests/fuzz/fuzz.py --target broker --blind   without atheris: mutations by chance alone

Each target runs in a process of its own, bounded in memory. What it finds does not end it: each
kind of failure is written once, with the input, and the run goes on. At the end a table says how
many inputs ran, what coverage they reached and what was found. Corpus and findings lie in
~/.cache/ottla/fuzz, or in `--folder`; the kept inputs are in tests/fuzz/corpus.
"""

import argparse
import hashlib
import json
import logging
import os
import random
import re
import resource
import subprocess
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE))

SHARES = {
    "broker": 0.5,
    "peers": 0.16,
    "coordination": 0.08,
    "messages": 0.1,
    "batches": 0.06,
    "compression": 0.05,
    "files": 0.03,
    "texts": 0.02,
}
"""How much of the time each target gets."""

MEMORY_BYTES = 4 << 30
LATE_S = 300
"""A target ends between two inputs, and reads its corpus first."""
INPUT_BYTES = 8192
"""Longer ones teach little more, and take as long as a hundred short ones."""

KEPT_BYTES = 700
"""What is longer is not put into tests/fuzz/corpus."""

WITHIN = ("ottla.wire", "ottla.net", "ottla.broker", "ottla.log", "ottla.coordinators",
          "ottla.replication", "ottla.controller", "ottla.zookeeper", "ottla.model",
          "ottla.security")  # fmt: skip


def make(name):
    """Return a target and its custom mutation (bytes, chance) -> bytes."""
    from fuzz_broker import BrokerTarget
    from fuzz_codec import BatchTarget, CompressionTarget, FileTarget, MessageTarget, TextTarget
    from fuzz_coordination import CoordinationTarget
    from fuzz_mutate import MUTATIONS
    from fuzz_peers import PeerTarget

    targets = (BrokerTarget, PeerTarget, CoordinationTarget, MessageTarget, BatchTarget,
               CompressionTarget, FileTarget, TextTarget)  # fmt: skip
    target = {t.name: t for t in targets}[name]()
    return target, MUTATIONS[name]


class Findings:
    """Writes each kind of failure once: `kind` is the error and the place it came from."""

    def __init__(self, folder, limit=200):
        self.folder = folder
        self.kinds = {}
        self._limit = limit
        self._recent = []

    def remember(self, data):
        """Keep the last inputs: a broker's state is made by all that came before."""
        self._recent.append(data)
        del self._recent[:-50]

    def note(self, error, data):
        text = re.sub(r"0x[0-9a-f]+|\d+", "N", f"{type(error).__name__}: {error}")[:120]
        frames = traceback.extract_tb(error.__traceback__)
        inner = [f for f in frames if "/ottla/" in f.filename] or frames
        kind = f"{text} at {Path(inner[-1].filename).name}:{inner[-1].lineno}"
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if self.kinds[kind] > 1 or len(self.kinds) > self._limit:
            return
        name = hashlib.sha256(kind.encode()).hexdigest()[:12]
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_bytes(data)
        before = "\n".join(d.hex() for d in self._recent)
        report = "".join(traceback.format_exception(error))[-6000:]
        (self.folder / f"{name}.txt").write_text(
            f"{kind}\n\n{report}\n\ninputs before, oldest first, in hex:\n{before}\n"
        )


class Run:
    """One target, its findings and its counts."""

    def __init__(self, name, folder):
        self.name = name
        self.corpus = folder / "corpus" / name
        self.findings = Findings(folder / "findings" / name)
        self.status = folder / f"{name}.json"
        self.target, self.mutation = make(name)
        self.executions = 0
        self.began_s = self._say_at_s = time.monotonic()

    def one(self, data):
        self.executions += 1
        self.findings.remember(data)
        try:
            self.target.check(data)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, it was found
            self.findings.note(error, data)
        if time.monotonic() >= self._say_at_s:  # atheris ends the process, not the function
            self._say_at_s = time.monotonic() + 2.0
            self.say()

    def say(self):
        self.status.write_text(
            json.dumps(
                {
                    "executions": self.executions,
                    "seconds": round(time.monotonic() - self.began_s, 1),
                    "findings": self.findings.kinds,
                    "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                }
            )
        )

    def seed(self):
        """Fill the corpus folder with what is kept and with the seeds."""
        from fuzz_corpus import kept
        from fuzz_seeds import SEEDS

        self.corpus.mkdir(parents=True, exist_ok=True)
        ids = {"topic_ids": self.target.topic_ids} if self.target.topic_ids else {}
        for _, raw in (*kept(self.name), *SEEDS[self.name](**ids)):
            (self.corpus / hashlib.sha256(raw).hexdigest()[:24]).write_bytes(raw)

    def mutate(self, data, limit, seed):
        rng = random.Random(seed)
        return self.mutation(data, rng, self.target)[:limit]


def guided(run, seconds):
    """Let atheris choose the inputs. It ends the process."""
    import atheris

    def mutate(data, limit, seed):
        if seed % 8 == 0:  # libFuzzer's own way, for what ours does not think of
            return atheris.Mutate(data, limit)
        return run.mutate(data, limit, seed)

    arguments = [
        sys.argv[0], str(run.corpus), f"-max_total_time={int(seconds)}", f"-max_len={INPUT_BYTES}",
        "-timeout=60", "-rss_limit_mb=3500", "-print_final_stats=1",
        f"-artifact_prefix={run.findings.folder}/libfuzzer-",
    ]  # fmt: skip
    run.findings.folder.mkdir(parents=True, exist_ok=True)
    atheris.Setup(arguments, run.one, custom_mutator=mutate)
    try:
        atheris.Fuzz()
    finally:
        run.say()


def blind(run, seconds, seed):
    """Mutate by chance alone; without coverage nothing is added to the corpus."""
    rng = random.Random(seed)
    pool = [path.read_bytes() for path in sorted(run.corpus.iterdir())]
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        data = rng.choice(pool)
        for _ in range(rng.choice((1, 1, 2, 3))):
            data = run.mutate(data, INPUT_BYTES, rng.randrange(2**31))
        run.one(data)
    run.say()


def child(options):
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    logging.getLogger("ottla").setLevel(logging.ERROR)
    logging.getLogger("ottla").propagate = False
    if not options.blind:
        import atheris

        with atheris.instrument_imports(include=list(WITHIN)):
            make(options.target)
        _instrument_compiled(atheris)
    run = Run(options.target, options.folder)
    run.seed()
    if options.blind:
        blind(run, options.minutes * 60, options.seed)
    else:
        guided(run, options.minutes * 60)


def _instrument_compiled(atheris):
    """The wire's functions are made at run time, where no import sees them."""
    from ottla.wire import codec

    for name in ("compile_reader", "compile_sliced_reader", "compile_writer"):
        made = getattr(codec, name)

        def instrumented(*args, made=made):
            return atheris.instrument_func(made(*args))

        setattr(codec, name, instrumented)


def replay(options):
    """Run single inputs on a fresh target, each alone; failures are told."""
    logging.getLogger("ottla").setLevel(logging.ERROR)
    failed = 0
    for path in options.replay:
        target, _ = make(options.target)
        try:
            target.check(Path(path).read_bytes())
            print(f"{path}: fine")
        except BaseException:  # noqa: BLE001
            failed += 1
            print(f"{path}:\n{traceback.format_exc()}")
        finally:
            target.close()
    return 1 if failed else 0


def keep(options):
    """Put some inputs of a run, of all lengths, into tests/fuzz/corpus: `--keep` KiB of each."""
    from fuzz_corpus import kept, write
    from fuzz_seeds import SEEDS

    for name in [options.target] if options.target else list(SHARES):
        target, _ = make(name)
        ids = {"topic_ids": target.topic_ids} if target.topic_ids else {}
        target.close()
        seeds = {raw for _, raw in SEEDS[name](**ids)}
        known = [(what, raw) for what, raw in kept(name) if not what.startswith("found")]
        room = options.keep * 1024 - sum(2 * len(raw) for _, raw in known)
        folder = options.folder / "corpus" / name
        found = [path.read_bytes() for path in sorted(folder.iterdir())]
        found = sorted(
            {r for r in found if len(r) <= KEPT_BYTES} - seeds, key=lambda r: (len(r), r)
        )
        whole = sum(2 * len(raw) + len("found:  ") for raw in found)
        step = max(1, -(-whole // max(room, 1)))
        known += [("found:", raw) for raw in found[step // 2 :: step]]
        write(name, known)
        print(f"{name}: {len(known)} inputs kept")
    return 0


def parent(options):
    """Run the targets one after another; print the table."""
    names = [options.target] if options.target else list(SHARES)
    whole = sum(SHARES[name] for name in names)
    rows, found = [], 0
    for name in names:
        minutes = options.minutes * SHARES[name] / whole
        log = options.folder / f"{name}.log"
        options.folder.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable, __file__, "--child", "--target", name, "--minutes", str(minutes),
            "--folder", str(options.folder), "--seed", str(options.seed),
        ]  # fmt: skip
        if options.blind:
            command.append("--blind")
        print(f"{name}: {minutes:.1f} minutes, {log}", flush=True)
        with log.open("w") as out:
            try:
                code = subprocess.run(
                    command, stdout=out, stderr=out, check=False, timeout=minutes * 60 + LATE_S
                ).returncode
            except subprocess.TimeoutExpired:  # an input that hangs, or a machine without a core
                code = f"none: it had not ended {LATE_S} s after its time"
        rows.append(_row(name, options.folder, log.read_text(errors="replace"), code))
        found += len(rows[-1]["findings"])
        print(_line(rows[-1]), flush=True)
    print("\n" + "\n".join(_line(row) for row in rows))
    return 1 if found or any(row["code"] for row in rows) else 0


def _row(name, folder, log, code):
    status = folder / f"{name}.json"
    row = json.loads(status.read_text()) if status.exists() else {"executions": 0, "findings": {}}
    coverage = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", log)
    return {"name": name, "code": code, "coverage": coverage[-1] if coverage else None, **row}


def _line(row):
    coverage = row["coverage"] or ("-", "-", "-")
    text = (
        f"{row['name']:12} {row['executions']:>9,} inputs in {row.get('seconds', 0):.0f} s, "
        f"cov {coverage[0]}, features {coverage[1]}, corpus {coverage[2]}, "
        f"peak {row.get('rss_mib', 0)} MiB, exit {row['code']}, {len(row['findings'])} findings"
    )
    return "\n    ".join([text, *(f"{n} x {kind}" for kind, n in row["findings"].items())])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--target", choices=list(SHARES))
    parser.add_argument("--folder", type=Path, default=Path.home() / ".cache" / "ottla" / "fuzz")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--blind", action="store_true", help="no atheris, no coverage")
    parser.add_argument("--replay", nargs="+", metavar="FILE", help="needs --target")
    parser.add_argument("--keep", type=int, metavar="KIB", help="into tests/fuzz/corpus")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.replay:
        return replay(options)
    if options.keep:
        return keep(options)
    if options.child:
        child(options)
        return 0
    os.environ.setdefault("PYTHONHASHSEED", "0")
    return parent(options)


if __name__ == "__main__":
    sys.exit(main())
