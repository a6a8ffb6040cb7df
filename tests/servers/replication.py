"""A primary and its streaming standby: promoted, frozen, and followed by a butler whose URL names both."""

import asyncio
import contextlib
import shutil
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import psutil

from database.butler_processes import eventually
from servers.external_servers import (
    PASSWORD,
    SUPERUSER,
    ExternalServer,
    Installation,
    external_server,
    free_port,
    new_folder,
    run_program,
)
from servers.site import ExternalSite

_HBA = "local all all trust\nlocal replication all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
SYNCHRONOUS = {"synchronous_standby_names": "standby", "wal_receiver_status_interval": "1s"}


@dataclass(frozen=True)
class Pair:
    """A primary and its standby."""

    primary: ExternalServer
    standby: ExternalServer

    def url(self, database: str, role: str = SUPERUSER, password: str = PASSWORD) -> str:
        """Return a URL that names both, the primary first."""
        here = self.primary.url(database, role, password)
        return here.replace(f":{self.primary.port}/", f":{self.primary.port},127.0.0.1:{self.standby.port}/")

    def followed_by(self, site: ExternalSite) -> ExternalSite:
        """Return a site of the primary with a URL that names both hosts."""
        return replace(site, url=self.url(site.database))

    async def catch_up(self) -> None:
        """Wait until the standby has replayed what the primary has written."""
        position = await self.primary.fetch_value("select pg_current_wal_lsn()::text")

        async def has_replayed() -> bool:
            return bool(await self.standby.fetch_value(f"select pg_last_wal_replay_lsn() >= '{position}'"))

        await eventually(has_replayed, "the standby to catch up")


@contextlib.contextmanager
def replicated(installation: Installation, settings: Mapping[str, str] | None = None) -> Iterator[Pair]:
    """Start a primary and a standby of it that is called `standby`; end both afterwards, frozen or not."""
    with external_server(installation, settings=settings, hba=_HBA) as primary, standby_of(primary) as standby:
        try:
            yield Pair(primary, standby)
        finally:
            for server in (primary, standby):
                thaw(server)


@contextlib.contextmanager
def standby_of(primary: ExternalServer, name: str = "standby") -> Iterator[ExternalServer]:
    """Start a standby of the server and yield it; stop it and delete its files at the end."""
    folder = new_folder()
    standby = ExternalServer(primary.installation, folder, free_port())
    origin = f"host={primary.sockets} port={primary.port} user={SUPERUSER} application_name={name}"
    try:
        run_program(
            primary.installation, "pg_basebackup", f"--pgdata={standby.data}", f"--dbname={origin}",
            "--write-recovery-conf", "--checkpoint=fast", "--no-sync",
        )  # fmt: skip
        sockets = {"unix_socket_directories": str(folder), "port": str(standby.port)}
        standby.configure(**sockets, hot_standby_feedback="on")
        standby.start()
        yield standby
    finally:
        thaw(standby)
        if (standby.data / "postmaster.pid").exists():
            with contextlib.suppress(AssertionError):
                standby.control("--mode=immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def freeze(server: ExternalServer) -> None:
    """Stop every process of the server as a frozen machine would: connections stay open and nobody answers."""
    for process in _processes(server):
        process.send_signal(signal.SIGSTOP)


def thaw(server: ExternalServer) -> None:
    """Let the processes of a frozen server go on."""
    for process in _processes(server):
        process.send_signal(signal.SIGCONT)


def _processes(server: ExternalServer) -> list[psutil.Process]:
    with contextlib.suppress(OSError, psutil.NoSuchProcess):
        postmaster = psutil.Process(int((server.data / "postmaster.pid").read_text().split()[0]))
        return [postmaster, *postmaster.children(recursive=True)]
    return []


async def promote(server: ExternalServer) -> None:
    await asyncio.to_thread(server.control, "promote")
