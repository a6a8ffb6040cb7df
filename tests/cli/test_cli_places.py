"""Folders and files that can't be used, a full disk and Ctrl-C at the first start: a sentence with a way out."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from database.butler_processes import new_home, postmaster, wait_until

WRITABLE = "Set BUTLERS_HOME to a folder that you may write to."


@pytest.fixture
def forbidden(tmp_path: Path) -> Path:
    """Return a folder in which this user can't write; root can't write in /proc only."""
    if os.geteuid() == 0:
        return Path("/proc")
    folder = tmp_path / "forbidden"
    folder.mkdir(mode=0o500)
    return folder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.touch()
    return path


@pytest.fixture
def homes(file: Path, forbidden: Path, tmp_path: Path) -> dict[str, Path]:
    return {
        "a file": file,
        "below a file": file / "home",
        "forbidden": forbidden / "home",
        "a name too long": tmp_path / ("x" * 300),
    }


HOMES = ["a file", "below a file", "forbidden", "a name too long"]


@pytest.mark.parametrize("name", HOMES)
def test_row_53_a_home_that_can_not_be_used_is_named_with_its_reason(butlers, new, homes, name):
    done = butlers("migrate", new, BUTLERS_HOME=str(homes[name]))
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("butlers: BUTLERS_HOME can't be used: /")
    assert line.endswith(f". {WRITABLE}")


@pytest.mark.parametrize("name", HOMES)
def test_row_53_the_doctor_lists_a_home_that_can_not_be_used(butlers, new, homes, name):
    done = butlers("doctor", new, "--json", BUTLERS_HOME=str(homes[name]))
    assert (done.returncode, done.stderr) == (1, "")
    assert '"state": "fail"' in done.stdout
    assert WRITABLE in done.stdout


def test_row_53_a_home_of_another_user_is_named(butlers, new, tmp_path):
    """The data of a home that root used are closed to others; here a loop of links stands for it."""
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "start.lock").symlink_to(tmp_path / "postgres" / "start.lock")
    done = butlers("migrate", new, BUTLERS_HOME=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith(f"butlers: BUTLERS_HOME can't be used: {tmp_path}/postgres/start.lock: ")


@pytest.mark.parametrize("part", ['say "home"', "$HOME", "`id`", "back\\slash", "line\nbreak", "long/" * 300])
def test_a_home_that_postgresql_can_not_take_is_refused_before_anything_is_made(butlers, new, tmp_path, part):
    done = butlers("migrate", new, BUTLERS_HOME=str(tmp_path / "odd" / part))
    assert done.returncode == 1
    assert done.stderr.startswith("butlers: BUTLERS_HOME can't be used, because PostgreSQL can't: '/")
    assert "Use a path of at most 900 bytes without " in done.stderr
    assert not (tmp_path / "odd").exists()


def test_a_home_of_nobody_is_refused(butlers, new):
    done = butlers("migrate", new, BUTLERS_HOME="~there-is-no-such-user/home")
    assert done.returncode == 1
    assert "names no user's home; write the whole path" in done.stderr


@pytest.mark.parametrize("name", ["it's 100% ours, häuslich", "a#b?c&d=e@f:g"])
def test_a_home_with_an_odd_name_is_used(butlers, new, name):
    with new_home(name) as home:
        done = butlers("migrate", new, BUTLERS_HOME=str(home))
        assert (done.returncode, done.stderr) == (0, "")
        assert (home / "postgres" / "data" / "PG_VERSION").exists()


def test_a_relative_home_is_used_from_the_current_folder(butlers, new):
    with new_home() as home:
        assert butlers("migrate", new, cwd=home, BUTLERS_HOME="below").returncode == 0
        assert (home / "below" / "postgres" / "data").exists()


def test_row_53_init_says_where_it_can_not_write(butlers, file, forbidden, tmp_path):
    for folder in (file, file / "butler", forbidden / "butler", tmp_path / ("x" * 300)):
        done = butlers("init", folder, "--name", "ada")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"butlers: {folder}")
        assert done.stderr.endswith(". Name a folder that you may write to.\n")


def test_row_53_a_backup_says_before_it_starts_where_it_can_not_write(butlers, new, file, forbidden):
    """It does not reach the database, which can't be reached."""
    nowhere = {"BUTLERS_DATABASE_URL": "postgresql://me@127.0.0.1:1/none"}
    for target in (file.parent, file / "b", forbidden / "b"):
        done = butlers("backup", new, target, **nowhere)
        assert (done.returncode, done.stdout) == (1, "")
        assert "127.0.0.1" not in done.stderr, "it looked at the target first"
        assert done.stderr.startswith(("butlers: /", "butlers: there is no folder /"))


def test_row_54_a_full_disk_at_the_first_start_is_called_a_full_disk(new, tmp_path):
    """A limit on the size of a file stands for the disk: initdb reports it in the same way."""
    with new_home() as home:
        done = subprocess.run(
            [sys.executable, "-m", "butlers.cli", "migrate", new],
            env={**os.environ, "BUTLERS_HOME": str(home)},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY)),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 1
        assert done.stderr == (
            "butlers: the disk of BUTLERS_HOME is full. Free some space there, or set BUTLERS_HOME to a folder on"
            " another disk; then start again.\n"
        )


@pytest.mark.parametrize("moment", ["initdb", "server"])
def test_row_54_ctrl_c_at_the_first_start_says_so_and_the_next_start_works(butlers, new, moment):
    """A terminal interrupts the whole process group, and so the programs that start the server."""
    with new_home() as home:
        starting = subprocess.Popen(
            [sys.executable, "-m", "butlers.cli", "migrate", new],
            env={**os.environ, "BUTLERS_HOME": str(home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        pattern = {"initdb": "data.new*/base", "server": "data/postmaster.pid"}[moment]
        wait_until(lambda: any((home / "postgres").glob(pattern)), f"the moment of {moment}")
        os.killpg(starting.pid, signal.SIGINT)
        assert starting.communicate(timeout=60)[0] == "butlers: interrupted.\n"
        assert starting.returncode == 130
        assert postmaster(home) is None
        assert butlers("migrate", new, BUTLERS_HOME=str(home)).returncode == 0
