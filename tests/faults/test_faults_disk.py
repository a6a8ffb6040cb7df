"""A full disk (row 33): a file system without free space, and a server with a file size limit."""

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

from database.butler_processes import Served, connected, eventually, new_name, postmaster, write_folder

DISK_BYTES = 192 << 20
WAL_SEGMENT_BYTES = 16 << 20
FULL = "unavailable: the database server's disk is full. Free some space there, then retry."


@contextmanager
def small_disk(at: Path) -> Iterator[None]:
    """Mount a small file system at that path."""
    at.mkdir(exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(at)], check=True, capture_output=True
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


def can_mount(at: Path) -> bool:
    """Whether this user may mount a file system."""
    try:
        with small_disk(at):
            return os.path.ismount(at)
    except (OSError, subprocess.CalledProcessError):
        return False


@contextmanager
def limited(home: Path, max_bytes: int) -> Iterator[None]:
    """Limit the size of the files of the server of that home, as a quota would."""
    _limit(home, str(max_bytes))
    try:
        yield
    finally:
        _limit(home, "unlimited")


def _limit(home: Path, max_bytes: str) -> None:
    """Set the limit of the server and its processes as their own user: root may not be allowed to."""
    server = postmaster(home)
    assert server is not None
    for each in (server, *server.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            root = os.geteuid() == 0
            user = {"user": each.uids().real, "group": each.gids().real, "extra_groups": []} if root else {}
            command = ["prlimit", f"--pid={each.pid}", f"--fsize={max_bytes}:"]
            done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/", **user)
            assert done.returncode == 0 or not each.is_running(), done.stderr


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Fill the disk completely."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    yield
    ballast.unlink()


class Notes:
    """Facts stored in a butler, with the acknowledged ids and the refusals."""

    def __init__(self, address: str) -> None:
        self.address, self.acknowledged, self.refusals, self._number = address, set[str](), list[str](), 0

    async def store(self) -> bool:
        self._number += 1
        content = base64.b64encode(os.urandom(24_000)).decode()
        fact = {"subject": "the disk", "predicate": f"note_{self._number}", "content": content}
        async with Client(self.address) as client:
            answer = await client.call_tool("memory_store_fact", fact, raise_on_error=False)
        if answer.is_error:
            self.refusals.append(answer.content[0].text)
            return False
        self.acknowledged.add(answer.structured_content["id"])
        return True

    async def until_refused(self) -> None:
        """Store facts until one is refused, then ten more."""
        for _ in range(1000):
            if not await self.store():
                break
        for _ in range(10):
            await self.store()
        assert self.refusals


async def assert_recovered(served: Served, notes: Notes) -> None:
    """Check that the same butler works again once there is space, and has every acknowledged fact."""
    refused = list(notes.refusals)
    await eventually(notes.store, "memories to be stored again", seconds=90)
    assert served.process.popen.poll() is None
    assert (await served.health())[0] == 200
    async with connected(served.admin_dsn) as connection:
        rows = await connection.fetch("select id::text from facts where subject = 'the disk'")
        events = await connection.fetchval(
            "select count(*) from memory_events where event_type = 'fact_created' and entity_id in"
            " (select id from facts where subject = 'the disk')"
        )
    stored = {row["id"] for row in rows}
    assert notes.acknowledged <= stored
    assert events == len(stored)
    assert {each.split(":")[0] for each in refused} == {"unavailable"}, refused


@pytest.fixture
def served(own_home, tmp_path, processes) -> Callable[[], Served]:
    """A function that starts a butler in that home."""

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
        await assert_recovered(butler, notes)
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
    # The limit allows a full WAL segment; the table is larger than that.
    with limited(own_home, WAL_SEGMENT_BYTES):
        await notes.until_refused()
    assert FULL in notes.refusals
    await assert_recovered(butler, notes)
    butler.process.end()


@pytest.mark.slow
async def test_row_33_a_full_disk_refuses_clearly_and_loses_nothing_that_was_acknowledged(own_home, served):
    """On a full file system or, if none can be mounted, with a file size limit."""
    can = can_mount(own_home / "postgres")
    await (on_a_small_disk if can else under_a_limit)(own_home, served)


@pytest.mark.slow
async def test_row_33_a_server_that_may_let_no_file_grow_reports_a_full_disk(own_home, served):
    await under_a_limit(own_home, served)
