"""The socket of a running butler: one process has it, a killed one leaves no trace, and nobody else can open it."""

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from butlers import app, local_socket
from butlers.errors import Unavailable
from database.butler_processes import NOBODY, environment_of
from host.conftest import TESTS
from probe import MODULES


@pytest.fixture
def home():
    """A short path: that of pytest's folder may be too long for a socket."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_only_its_user_can_open_the_socket(home, tmp_path):
    assert local_socket.find_socket(home, tmp_path) is None
    with local_socket.listen(home, tmp_path) as listener:
        path = local_socket.find_socket(home, tmp_path)
        assert path == local_socket.socket_path(home, tmp_path)
        assert listener.getsockname() == str(path)
        assert mode(path.parent) == 0o700
    assert local_socket.find_socket(home, tmp_path) is None


def test_one_process_has_the_socket_and_another_butler_its_own(home, tmp_path):
    with local_socket.listen(home, tmp_path) as first, local_socket.listen(home, tmp_path / "b") as other:
        assert first.getsockname() != other.getsockname()
        with local_socket.listen(home, tmp_path) as second:
            assert second is None
        assert local_socket.find_socket(home, tmp_path) is not None
    with local_socket.listen(home, tmp_path) as again:
        assert again is not None


def test_the_socket_of_a_killed_process_is_replaced(home, tmp_path):
    program = (
        "import os, signal, sys; from pathlib import Path; from butlers import local_socket\n"
        "with local_socket.listen(Path(sys.argv[1]), Path(sys.argv[2])): os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", program, home, tmp_path], cwd=TESTS, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert local_socket.socket_path(home, tmp_path).exists()
    with local_socket.listen(home, tmp_path) as listener:
        listener.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(local_socket.find_socket(home, tmp_path)))


def test_a_long_home_has_its_socket_in_a_temporary_folder(home, tmp_path):
    long = home / ("x" * 120)
    with local_socket.listen(long, tmp_path) as listener:
        path = Path(listener.getsockname())
        assert path.parent.parent == Path(tempfile.gettempdir())
        assert mode(path.parent) == 0o700
        assert local_socket.find_socket(long, tmp_path) == path
    path.with_suffix(".lock").unlink()
    path.parent.rmdir()


@pytest.mark.parametrize("bits", [0o770, 0o701, 0o755])
def test_a_folder_that_others_can_enter_is_refused(home, tmp_path, bits):
    folder = local_socket.socket_path(home, tmp_path).parent
    folder.mkdir()
    folder.chmod(bits)
    with pytest.raises(Unavailable, match="other users can open"):
        local_socket.find_socket(home, tmp_path)
    with pytest.raises(Unavailable, match="other users can open"), local_socket.listen(home, tmp_path):
        pass


@pytest.mark.parametrize("there", ["a file", "a link", "a folder"])
def test_what_is_no_socket_is_none(home, tmp_path, there):
    path = local_socket.socket_path(home, tmp_path)
    path.parent.mkdir(mode=0o700)
    if there == "a file":
        path.touch()
    elif there == "a link":
        path.symlink_to(tmp_path)
    else:
        path.mkdir()
    assert local_socket.find_socket(home, tmp_path) is None


def test_a_home_that_is_no_folder_is_said_with_its_path(home, tmp_path):
    (home / "file").touch()
    with pytest.raises(Unavailable, match="can't be used"), local_socket.listen(home / "file", tmp_path):
        pass
    assert local_socket.find_socket(home / "file", tmp_path) is None


def test_a_folder_of_another_user_is_not_own(tmp_path):
    """Root can give a folder away; for any other user the root folder is somebody else's."""
    folder = tmp_path if os.geteuid() == 0 else Path("/")
    if os.geteuid() == 0:
        assert local_socket._is_own(folder, stat.S_IFDIR)
        os.chown(folder, NOBODY, -1)
    assert not local_socket._is_own(folder, stat.S_IFDIR)


@pytest.fixture
def configured(folder):
    return lambda extra="": app.load_configuration(folder(extra), MODULES)


def test_a_butler_starts_without_the_socket_and_says_why(home, configured, caplog):
    (home / "sockets").mkdir()
    (home / "sockets").chmod(0o777)
    with app.listen_locally(configured(), environment_of(home)) as listeners:
        assert listeners == []
    assert f"hooks open the database themselves: other users can open {home / 'sockets'}" in caplog.text


def test_where_calls_need_a_key_there_is_no_socket(home, configured):
    with app.listen_locally(configured('[butler.auth]\nmode = "keys"\n'), environment_of(home)) as listeners:
        assert listeners == []
    with app.listen_locally(configured(), environment_of(home)) as listeners:
        assert len(listeners) == 1
