"""Other users of this machine: folders, links, modules and processes that are not ours."""

import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ottla
from ottla.local import processes
from ottla.local.cluster import write_properties
from ottla.local.cluster_dir import ClusterDir, LocalBroker, LocalCluster, LocalZooKeeper
from ottla.local.fork_process import alone, forking
from ottla.log.files import OsFiles
from ottla.model.errors import OttlaError

SOURCE = Path(ottla.__file__).parent
STARTS = re.compile(r"sys\.executable,\s*(?!\[)(\S+)")


def cluster(process=None):
    return LocalCluster(LocalZooKeeper("127.0.0.1:2181"), [LocalBroker(0, 9092, process)])


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def test_no_process_is_started_with_the_current_folder_on_its_path():
    found = [
        f"{file.relative_to(SOURCE)}: {second}"
        for file in SOURCE.rglob("*.py")
        for second in STARTS.findall(file.read_text(encoding="utf-8"))
        if second not in ('"-P",', "*safe,")
    ]
    assert not found


@pytest.mark.parametrize("how", ["alone", "forked"])
def test_a_module_of_the_current_folder_is_not_executed(tmp_path, monkeypatch, how):
    proof = tmp_path / "executed"
    for name in ("json", "re", "asyncio", "runpy", "msgspec"):
        (tmp_path / f"{name}.py").write_text(f"open({str(proof)!r}, 'w').close()")
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "log"
    arguments = ["broker", "--config", "none.properties"]
    if how == "alone":
        alone(arguments, log).wait(60)
    else:
        with forking(1, lambda: None) as start:
            started = start(arguments, log)
            give_up_s = time.monotonic() + 60
            while started.poll() is None and time.monotonic() < give_up_s:
                time.sleep(0.01)
    assert not proof.exists()
    assert "none.properties" in log.read_text()
    assert mode(log) == 0o600


def test_the_folder_and_its_files_are_their_users_alone(tmp_path):
    old = os.umask(0o022)
    try:
        folder = ClusterDir(tmp_path / "data")
        folder.make()
        folder.save(cluster())
        assert mode(folder.path) == 0o700
        folder.path.chmod(0o755)  # as earlier versions made it
        folder.make()
        assert mode(folder.path) == 0o700
        kept = OsFiles()
        file = kept.open(str(tmp_path / "segment"), create=True)
        file.close()
        assert mode(tmp_path / "segment") == 0o600
        program = f"open({str(tmp_path / 'made')!r}, 'w')"
        processes.spawn([sys.executable, "-c", program], tmp_path / "log").wait(60)
        assert mode(tmp_path / "made") == mode(tmp_path / "log") == 0o600
    finally:
        os.umask(old)


def test_a_folder_that_every_user_may_write_is_refused(tmp_path):
    folder = ClusterDir(tmp_path / "data")
    folder.make()
    folder.save(cluster())
    for path, before in ((folder.path, 0o700), (folder.path / "cluster.json", 0o600)):
        path.chmod(before | 0o002)
        for use in (folder.load, folder.existing, folder.make):
            with pytest.raises(OttlaError, match="can be written by every user"):
                use()
        path.chmod(before)
    assert folder.load() is not None


@pytest.mark.parametrize("planted", ["folder", "file", "link"])
def test_what_another_user_made_is_refused(tmp_path, monkeypatch, planted):
    folder = ClusterDir(tmp_path / "data")
    folder.make()
    folder.save(cluster())
    theirs = {"folder": folder.path, "file": folder.path / "cluster.json"}.get(planted)
    if planted == "link":
        theirs = tmp_path / "link"
        theirs.symlink_to(folder.path)
        folder = ClusterDir(theirs)
    real = os.stat

    def other(path, *arguments, **keywords):
        found = real(path, *arguments, **keywords)
        itself = keywords.get("follow_symlinks") is False
        if path != theirs or itself != (planted == "link"):
            return found
        fields = list(found)
        fields[4] = found.st_uid + 1
        return os.stat_result(fields)

    monkeypatch.setattr(os, "stat", other)
    for use in (folder.load, folder.existing, folder.make):
        with pytest.raises(OttlaError, match=r"is not yours.*is not trusted"):
            use()


@pytest.fixture
def owner(monkeypatch):
    """Return what gives paths to another user, as root alone could."""
    theirs = {}
    real = os.stat

    def other(path, *arguments, **keywords):
        found = real(path, *arguments, **keywords)
        fields = list(found)
        fields[4] += theirs.get(os.fspath(path), 0)
        return os.stat_result(fields)

    monkeypatch.setattr(os, "stat", other)
    return lambda path: theirs.update({os.fspath(path): 12345})


def test_a_folder_that_another_user_planted_is_put_aside(tmp_path, owner):
    victim = tmp_path / "bashrc"
    victim.write_text("export IMPORTANT=1\n")
    folder = ClusterDir(tmp_path / "data")
    for number in range(3):
        folder.broker_dir(0).mkdir(parents=True)
        folder.properties_file(0).symlink_to(victim)
        owner(folder.path)
        aside = tmp_path / f"data.of-uid-{os.geteuid() + 12345}{number or ''}"
        assert folder.put_aside() == aside
        assert not folder.path.exists()
        assert (aside / "broker-0" / "server.properties").readlink() == victim
    assert victim.read_text() == "export IMPORTANT=1\n"
    folder.path.symlink_to(tmp_path)
    assert folder.put_aside().readlink() == tmp_path, "a link of theirs, not what it leads to"


@pytest.mark.parametrize("why", ["ours", "none", "a cluster", "their parent", "a damaged link"])
def test_a_folder_that_is_ours_or_may_have_a_cluster_is_not_put_aside(tmp_path, owner, why):
    folder = ClusterDir(tmp_path / "data")
    if why != "none":
        folder.path.mkdir()
    if why != "ours":
        owner(folder.path)
    if why == "a cluster":
        folder.save(cluster())
    if why == "their parent":
        owner(tmp_path)
    if why == "a damaged link":
        (folder.path / "cluster.json").symlink_to("nowhere")
    before = sorted(tmp_path.rglob("*"))
    assert folder.put_aside() is None
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("refusal", [PermissionError, OSError])
def test_a_folder_that_cannot_be_looked_into_stays(tmp_path, owner, monkeypatch, refusal):
    folder = ClusterDir(tmp_path / "data")
    folder.path.mkdir()
    owner(folder.path)
    real = Path.lstat

    def lstat(path):
        if path.name == "cluster.json":
            raise refusal
        return real(path)

    monkeypatch.setattr(Path, "lstat", lstat)
    assert folder.put_aside() is None
    assert folder.path.exists()


def test_settings_are_not_written_through_a_link(tmp_path):
    victim = tmp_path / "bashrc"
    victim.write_text("export IMPORTANT=1\n")
    victim.chmod(0o644)
    folder = ClusterDir(tmp_path / "data")
    folder.broker_dir(0).mkdir(parents=True)
    folder.properties_file(0).symlink_to(victim)
    (folder.path / ".lock").symlink_to(victim)
    described = cluster()
    write_properties(folder, described, described.brokers[0])
    with pytest.raises(OttlaError, match="cannot write"), folder.locked():
        pass
    assert victim.read_text() == "export IMPORTANT=1\n"
    assert mode(victim) == 0o644
    assert not folder.properties_file(0).is_symlink()
    assert mode(folder.properties_file(0)) == 0o600


def test_a_signal_goes_to_no_process_of_others(tmp_path):
    """cluster.json names one, with its start time, which is in /proc for everyone."""
    process = subprocess.Popen(["sleep", "600"])
    try:
        known = processes.identify(process.pid)
        assert processes.alive(known)
        assert not cluster(known).processes()
        assert not processes.send_signal(known, 9)
        assert processes.stop([known], 0.1) == [known]
        assert process.poll() is None
    finally:
        process.kill()
        process.wait(10)


def test_a_signal_goes_to_a_server_of_this_user_only(monkeypatch):
    process = subprocess.Popen([sys.executable, "-c", "import ottla, time; time.sleep(60)"])
    try:
        known = processes.identify(process.pid)
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert not processes.send_signal(known, 9)
        monkeypatch.undo()
        assert process.poll() is None
        assert processes.send_signal(known, 9)
        assert process.wait(30) == -9
    finally:
        process.kill()
        process.wait(10)
