"""The embedded server: one per home, through starts, stops and crashes."""

import contextlib
import os
import signal
import stat
import subprocess
import threading
from typing import Any

import psutil
import pytest

from butlers import embedded_server
from butlers.errors import Unavailable
from database.butler_processes import (
    NOBODY,
    connected,
    is_alive,
    kill_postmaster,
    new_home,
    postmaster,
    servers,
    wait_until,
)


async def fetch_value(cluster: embedded_server.Cluster, statement: str) -> object:
    async with connected(cluster.dsn("postgres")) as connection:
        return await connection.fetchval(statement)


async def identity(cluster: embedded_server.Cluster) -> object:
    return await fetch_value(cluster, "select system_identifier from pg_control_system()")


async def test_a_new_home_gets_a_server_and_a_second_start_finds_its_data_again(own_home):
    first = embedded_server.acquire(own_home)
    known = await identity(first)
    async with connected(first.dsn("postgres")) as connection:
        await connection.execute("create table kept (n int)")
    assert first.release()
    assert postmaster(own_home) is None

    second = embedded_server.acquire(own_home)
    assert await identity(second) == known
    assert await fetch_value(second, "select count(*) from kept") == 0
    assert second.release()


def test_processes_that_start_at_the_same_moment_share_one_server_and_the_last_to_leave_stops_it(own_home, processes):
    holders = [processes.holder(own_home) for _ in range(4)]
    identities = {holder.line("holding: ") for holder in holders}
    assert len(identities) == 1
    assert servers(own_home) == 1

    *earlier, last = holders
    for holder in earlier:
        holder.close_stdin()
        assert holder.line("stopped: ") == "False"
    assert servers(own_home) == 1
    last.close_stdin()
    assert last.line("stopped: ") == "True"
    assert servers(own_home) == 0


def test_a_killed_holder_blocks_neither_starts_nor_the_stop_of_the_server(own_home, processes):
    killed, other = processes.holder(own_home), processes.holder(own_home)
    known = killed.line("holding: ")
    other.line("holding: ")
    killed.end(signal.SIGKILL)
    assert servers(own_home) == 1, "the server runs while a process uses it"

    after = processes.holder(own_home)
    assert after.line("holding: ") == known
    other.close_stdin()
    assert other.line("stopped: ") == "False"
    after.close_stdin()
    assert after.line("stopped: ") == "True"
    assert servers(own_home) == 0


def test_a_server_whose_only_holder_was_killed_is_taken_over(own_home, processes):
    killed = processes.holder(own_home)
    known = killed.line("holding: ")
    killed.end(signal.SIGKILL)
    after = processes.holder(own_home)
    assert after.line("holding: ") == known
    after.close_stdin()
    assert after.line("stopped: ") == "True"


async def test_a_server_released_without_stop_keeps_running(own_home):
    assert embedded_server.acquire(own_home).release(stop=False) is False
    assert servers(own_home) == 1
    assert embedded_server.acquire(own_home).release() is True
    assert servers(own_home) == 0


async def test_releasing_twice_is_harmless(own_home):
    one, two = embedded_server.acquire(own_home), embedded_server.acquire(own_home)
    assert one.release() is False
    assert one.release() is False
    assert await fetch_value(two, "select 1") == 1
    assert two.release() is True


async def test_a_server_that_was_killed_is_started_again(own_home):
    before = embedded_server.acquire(own_home)
    known = await identity(before)
    dead = kill_postmaster(own_home)
    after = embedded_server.acquire(own_home)
    assert await identity(after) == known
    running = postmaster(own_home)
    assert running is not None
    assert running.pid != dead
    before.release()
    assert after.release()


@pytest.mark.parametrize("disguise", ["unrelated", "names the folder"])
async def test_a_pid_file_with_the_number_of_another_process_is_not_believed(own_home, disguise):
    """PostgreSQL takes any live process of its user with the pid in a lock file for a server."""
    embedded_server.acquire(own_home).release(stop=False)
    data = own_home / "postgres" / "data"
    kept = {name: (data / name).read_text() for name in ("postmaster.pid", embedded_server._SOCKET_LOCK)}
    kill_postmaster(own_home)
    words = [str(data), "postgres"] if disguise == "names the folder" else []
    user = embedded_server._server_uid() if os.geteuid() == 0 else None
    other = subprocess.Popen(["/bin/sh", "-c", "sleep 60 & wait", *words], user=user, start_new_session=True)
    try:
        for name, text in kept.items():
            (data / name).write_text("\n".join([str(other.pid), *text.split("\n")[1:]]))
        cluster = embedded_server.acquire(own_home)
        assert await fetch_value(cluster, "select 1") == 1
        assert cluster.release() is True
        assert is_alive(other.pid)
    finally:
        os.killpg(other.pid, signal.SIGKILL)
        other.wait()


async def test_stopping_spares_a_process_that_got_the_number_of_a_server_that_died(own_home):
    cluster = embedded_server.acquire(own_home)
    pid_file = own_home / "postgres" / "data" / "postmaster.pid"
    text = pid_file.read_text()
    kill_postmaster(own_home)
    user = embedded_server._server_uid() if os.geteuid() == 0 else None
    other = subprocess.Popen(["sleep", "60"], user=user)
    try:
        pid_file.write_text("\n".join([str(other.pid), *text.split("\n")[1:]]))
        cluster.release()
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


async def test_an_initdb_that_was_killed_half_way_starts_over(own_home):
    half = own_home / "postgres" / "data.new"
    (half / "base").mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    cluster = embedded_server.acquire(own_home)
    assert await fetch_value(cluster, "select 1") == 1
    assert [path.name for path in (own_home / "postgres").glob("data*")] == ["data"]
    assert cluster.release()


def test_a_butler_killed_during_the_first_start_leaves_nothing_in_the_way(own_home, processes):
    """Its initdb may run on for a while and must not write into the folder of the next one."""
    killed = processes.holder(own_home)
    folder = own_home / "postgres"
    wait_until(lambda: any(folder.glob("data.new*/base")), "initdb to be half done")
    killed.end(signal.SIGKILL)
    after = processes.holder(own_home)
    after.line("holding: ")
    after.close_stdin()
    assert after.line("stopped: ") == "True"


def test_a_server_that_is_just_starting_is_waited_for(own_home, processes):
    """The process that started it may be killed meanwhile; the server starts anyway."""
    cluster = embedded_server.acquire(own_home)
    data = own_home / "postgres" / "data"
    pid_file = data / "postmaster.pid"
    ready = pid_file.read_text()
    # In place, as the server does it, so that no reader finds a partial file.
    with pid_file.open("r+") as file:
        file.write(ready.replace("ready   ", "starting"))
    waiting = processes.holder(own_home)
    with pytest.raises(AssertionError, match="never printed"):
        waiting.line("holding: ", seconds=1.5)
    with pid_file.open("r+") as file:
        file.write(ready)
    waiting.line("holding: ")
    cluster.release()


def test_a_pid_file_that_is_just_being_written_is_waited_for_and_one_that_stays_empty_is_not(own_home, processes):
    cluster = embedded_server.acquire(own_home)
    pid_file = own_home / "postgres" / "data" / "postmaster.pid"
    text = pid_file.read_text()
    pid_file.write_text("")
    threading.Timer(0.3, pid_file.write_text, [text]).start()
    assert embedded_server._is_ready(pid_file.parent)
    cluster.release()
    pid_file.write_text("")
    again = processes.holder(own_home)
    again.line("holding: ")
    again.close_stdin()
    assert again.line("stopped: ") == "True"


async def test_a_path_too_long_for_a_socket_gets_a_private_folder_for_it():
    with new_home("x" * 60 + "/" + "y" * 60) as home:
        cluster = embedded_server.acquire(home)
        sockets = cluster.sockets
        assert len(str(home)) > 108
        assert not sockets.is_relative_to(home)
        assert await fetch_value(cluster, "select 1") == 1
        assert stat.S_IMODE(sockets.stat().st_mode) & 0o077 == 0
        again = embedded_server.acquire(home)
        assert again.sockets == sockets
        again.release()
        assert cluster.release()
        sockets.rmdir()


def test_a_link_planted_where_the_socket_folder_should_be_is_refused(tmp_path):
    """Users who can write to the temporary folder must not redirect the socket."""
    with new_home("z" * 120) as home:
        data = home / "postgres" / "data"
        elsewhere = embedded_server._socket_folder(data)
        elsewhere.rmdir()
        target = tmp_path / "target"
        target.mkdir()
        elsewhere.symlink_to(target)
        try:
            with pytest.raises(Unavailable, match="belongs to another user"):
                embedded_server.acquire(home)
            assert target.stat().st_uid == os.geteuid()
        finally:
            elsewhere.unlink()


def test_the_server_listens_on_no_network_port(home, cluster):
    server = postmaster(home)
    assert server is not None
    family = [server, *server.children(recursive=True)]
    for process in family:
        # A process that served another connection may have ended by now.
        with contextlib.suppress(psutil.NoSuchProcess):
            assert [each for each in process.net_connections("inet") if each.status == psutil.CONN_LISTEN] == []


def test_another_user_of_the_machine_reaches_neither_socket_nor_data(home, cluster):
    socket = cluster.sockets / ".s.PGSQL.5432"
    assert stat.S_IMODE(socket.stat().st_mode) == 0o700
    for private in (cluster.sockets, home / "postgres" / "data"):
        assert stat.S_IMODE(private.stat().st_mode) & 0o077 == 0
        assert private.stat().st_uid == embedded_server._server_uid()
    assert run_psql(cluster, os.geteuid()).returncode == 0
    if os.geteuid() == 0:  # only root can run it as another user
        assert "Permission denied" in run_psql(cluster, NOBODY).stderr


def run_psql(cluster: embedded_server.Cluster, user: int) -> "subprocess.CompletedProcess[str]":
    psql = [embedded_server._binaries() / "psql", "--no-psqlrc", "--command=select 1", cluster.dsn("postgres")]
    identity: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if os.geteuid() == 0 else {}
    return subprocess.run(psql, stdout=-1, stderr=-1, text=True, check=False, cwd="/", **identity)


def test_a_server_that_can_not_start_reports_the_reason(own_home):
    embedded_server.acquire(own_home).release()
    (own_home / "postgres" / "data" / "global" / "pg_control").unlink()
    with pytest.raises(Unavailable, match="pg_ctl failed") as refused:
        embedded_server.acquire(own_home)
    assert "server.log" in refused.value.hint


def test_a_program_of_the_server_that_takes_too_long_is_named(tmp_path):
    with pytest.raises(Unavailable, match=r"initdb took longer than 0 s"):
        embedded_server._run("initdb", f"--pgdata={tmp_path / 'data'}", seconds=0)
