"""The disk is full (row 33): a file system that has no room left, and a server that may let no file grow."""

import base64
import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from fastmcp import Client

from database.stage import Served, connected, eventually, new_name, postmaster, write_folder

ROOM = 192 << 20
SEGMENT = 16 << 20
FULL = "unavailable: the database server's disk is full. Free some space there, then retry."


@contextmanager
def small_disk(at: Path) -> Iterator[None]:
    """A file system of its own at that place."""
    at.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(at)], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


def mounts(at: Path) -> bool:
    """Whether this user may mount a file system."""
    try:
        with small_disk(at):
            return os.path.ismount(at)
    except (OSError, subprocess.CalledProcessError):
        return False


@contextmanager
def limited(home: Path, most: int) -> Iterator[None]:
    """The server of that home may let no file grow beyond so many bytes, as under a quota."""
    _limit(home, str(most))
    try:
        yield
    finally:
        _limit(home, "unlimited")


def _limit(home: Path, most: str) -> None:
    """Set the limit of the server and all its processes, as the user they run as: root may not be allowed to."""
    server = postmaster(home)
    assert server is not None
    for each in (server, *server.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            root = os.geteuid() == 0
            who = {"user": each.uids().real, "group": each.gids().real, "extra_groups": []} if root else {}
            command = ["prlimit", f"--pid={each.pid}", f"--fsize={most}:"]
            done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/", **who)
            assert done.returncode == 0 or not each.is_running(), done.stderr


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Not a byte is left there."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    yield
    ballast.unlink()


class Notes:
    """A butler that is told things; every answer is either an id or a clear refusal."""

    def __init__(self, address: str) -> None:
        self.address, self.kept, self.refusals, self._number = address, set[str](), list[str](), 0

    async def store(self) -> bool:
        self._number += 1
        content = base64.b64encode(os.urandom(24_000)).decode()
        fact = {"subject": "the disk", "predicate": f"note_{self._number}", "content": content}
        async with Client(self.address) as client:
            answer = await client.call_tool("memory_store_fact", fact, raise_on_error=False)
        if answer.is_error:
            self.refusals.append(answer.content[0].text)
            return False
        self.kept.add(answer.structured_content["id"])
        return True

    async def until_refused(self) -> None:
        """Until there is no room, and then some more."""
        for _ in range(1000):
            if not await self.store():
                break
        for _ in range(10):
            await self.store()
        assert self.refusals


async def shown(served: Served, notes: Notes) -> None:
    """Once there is room, the same butler works again, and has all it said it has."""
    refused = list(notes.refusals)
    await eventually(notes.store, "memories to be kept again", seconds=90)
    assert served.process.popen.poll() is None
    assert (await served.health())[0] == 200
    async with connected(served.admin_dsn) as connection:
        rows = await connection.fetch("select id::text from facts where subject = 'the disk'")
        events = await connection.fetchval(
            "select count(*) from memory_events where event_type = 'fact_created' and entity_id in"
            " (select id from facts where subject = 'the disk')"
        )
    there = {row["id"] for row in rows}
    assert notes.kept <= there
    assert events == len(there)
    assert {each.split(":")[0] for each in refused} == {"unavailable"}, refused


@pytest.fixture
def served(own_home, tmp_path, processes) -> Callable[[], Served]:
    """Starts a butler in that home."""

    def start() -> Served:
        name = new_name()
        butler = processes.butler(write_folder(tmp_path, name=name, probe=False), own_home, "--port", "0")
        return Served(butler, butler.ready(), f"postgresql://postgres@/butler_{name}?host={own_home}/postgres/data")

    return start


async def on_a_small_disk(own_home, served) -> None:
    with small_disk(own_home / "postgres"):
        butler = served()
        notes = Notes(butler.address)
        assert await notes.store()
        with filled(own_home / "postgres"):
            await notes.until_refused()
        await shown(butler, notes)
        butler.process.end()


async def under_a_limit(own_home, served) -> None:
    butler = served()
    notes = Notes(butler.address)
    assert await notes.store()
    async with connected(butler.admin_dsn) as connection:
        await connection.execute(
            "insert into facts (tenant_id, subject, predicate, content) select 'ballast', 'x', n::text,"
            " (select string_agg(md5(random()::text || i || n), '') from generate_series(1, 20000) i)"
            " from generate_series(1, 48) n"
        )
        await connection.execute("checkpoint")
    # A segment of the log may be written whole, as it has been; the table has outgrown that.
    with limited(own_home, SEGMENT):
        await notes.until_refused()
    assert FULL in notes.refusals
    await shown(butler, notes)
    butler.process.end()


@pytest.mark.slow
async def test_row_33_a_full_disk_refuses_clearly_and_loses_nothing_that_was_acknowledged(own_home, served):
    """On a file system without room; where none may be mounted, under a limit on what the server may write."""
    can = mounts(own_home / "postgres")
    await (on_a_small_disk if can else under_a_limit)(own_home, served)


@pytest.mark.slow
async def test_row_33_a_server_that_may_let_no_file_grow_is_told_of_as_a_full_disk(own_home, served):
    await under_a_limit(own_home, served)
