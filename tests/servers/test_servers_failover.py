"""Failover: a primary that dies, freezes or becomes read-only, with a standby that takes over."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from butlers import app, doctor
from butlers.app import Butler
from butlers.connect_faults import NoWritableHost, ReadOnlyServer
from butlers.connector import Connector
from butlers.database_url import split_hosts
from butlers.errors import Unavailable
from database.butler_processes import Served, eventually
from servers.conftest import INSTALLATIONS
from servers.external_servers import external_server
from servers.replication import freeze, promote, replicated, thaw
from servers.site import ExternalSite, new_site
from servers.test_servers_roles import store

PATIENCE = 2.0
IMPATIENT = f"[butler.limits]\ndrain_seconds = 0\ndatabase_patience_seconds = {PATIENCE}\n"


@pytest.fixture
def pair():
    with replicated(INSTALLATIONS["18"]) as pair:
        yield pair


async def application(site: ExternalSite) -> ExternalSite:
    """Migrate, and return the site with the URL of the application's role: a standby has the same one."""
    async with app.open_butler(site.config, site.environment) as butler:
        return replace(site, url=butler.location.dsn)


async def store_again(butler: Butler, content: str) -> float:
    """Store a rule, as often as that is `unavailable`; return the seconds that the slowest attempt took."""
    slowest = 0.0
    while True:
        started = time.monotonic()
        try:
            await store(butler, content)
        except Unavailable:
            slowest = max(slowest, time.monotonic() - started)
            await asyncio.sleep(0.1)
        else:
            return max(slowest, time.monotonic() - started)


def serve(site: ExternalSite, processes) -> Served:
    process = processes.butler(site.folder, site.folder, BUTLERS_DATABASE_URL=site.url)
    return Served(process, process.ready(), site.server.socket_url(site.database))


async def seconds_of(call: Callable[[], Awaitable[object]]) -> float:
    started = time.monotonic()
    await call()
    return time.monotonic() - started


async def test_row_60_a_frozen_primary_is_left_within_the_patience(pair, processes, tmp_path):
    """Calls in progress are told, later ones go to the promoted standby, and a new process starts there."""
    site = pair.followed_by(await new_site(pair.primary, tmp_path, extra=IMPATIENT))
    served = serve(site, processes)
    async with app.open_butler(site.config, site.environment) as butler:
        await asyncio.gather(*(store(butler, f"{number}") for number in range(8)))
        await pair.catch_up()
        freeze(pair.primary)
        await promote(pair.standby)
        gap = time.monotonic()
        slowest = await asyncio.gather(*(store_again(butler, f"after {number}") for number in range(8)))
        gap = time.monotonic() - gap
        assert max(slowest) < PATIENCE + 1.5
        assert gap < 2 * PATIENCE + 2
        async with app.open_butler(site.config, site.environment) as started_now:
            assert len(await store(started_now, "new process")) == 17

    async def is_ready() -> bool:
        assert await seconds_of(served.health) < 1.5
        return (await served.health())[0] == 200

    await eventually(is_ready, "the other process to follow", 10)


@pytest.mark.slow
async def test_row_60_a_host_that_is_frozen_at_the_start_costs_a_moment(pair, tmp_path):
    site = pair.followed_by(await new_site(pair.primary, tmp_path))
    async with app.open_butler(site.config, site.environment) as butler:
        await store(butler, "first")
    await pair.catch_up()
    freeze(pair.primary)
    await promote(pair.standby)
    started = time.monotonic()
    async with app.open_butler(site.config, site.environment) as butler:
        assert await store(butler, "second") == ["first", "second"]
    # It opens about ten connections one after another.
    assert time.monotonic() - started < 15


async def test_row_60_health_answers_within_a_second_while_the_server_is_frozen(processes, tmp_path):
    with external_server(INSTALLATIONS["16"]) as server:
        served = serve(await new_site(server, tmp_path, extra=IMPATIENT), processes)
        assert await served.health() == (200, {"status": "ready", "butler": (await served.health())[1]["butler"]})
        freeze(server)
        try:
            for _ in range(4):
                started = time.monotonic()
                status, answer = await served.health()
                assert time.monotonic() - started < 1.3
                assert (status, answer["status"]) == (503, "unavailable")
        finally:
            thaw(server)

        async def is_ready() -> bool:
            return (await served.health())[0] == 200

        await eventually(is_ready, "the butler to be ready again", 15)


@pytest.mark.slow
async def test_row_61_a_standby_serves_reads_and_says_that_it_is_read_only(pair, processes, tmp_path):
    site = await application(await new_site(pair.primary, tmp_path, extra=IMPATIENT))
    await pair.catch_up()
    standby = site.with_port(pair.standby.port)
    async with app.open_butler(standby.config, standby.environment) as butler:
        with pytest.raises(ReadOnlyServer, match="the database server is read-only") as refused:
            await store(butler, "refused")
        assert "primary" in refused.value.hint
        async with butler.database.transaction(butler.caller()) as tx:
            assert await tx.fetch("select content from rules") == []
    served = serve(standby, processes)
    status, answer = await served.health()
    assert (status, answer["status"]) == (503, "read-only")
    assert "read-only" in str((await served.call("memory_store_rule", content="Be brief.")).content)
    [*_, last] = await doctor.run_checks(standby.folder, standby.environment)
    assert (last.name, last.state, last.found) == ("database", "fail", "the database server is read-only")
    await promote(pair.standby)

    async def is_ready() -> bool:
        return (await served.health())[0] == 200

    await eventually(is_ready, "the promoted standby to take writes", 10)


@pytest.mark.slow
async def test_row_61_no_writable_host_is_unavailable_until_one_is_promoted(pair, processes, tmp_path):
    site = pair.followed_by(await new_site(pair.primary, tmp_path, extra=IMPATIENT))
    served = serve(site, processes)
    async with app.open_butler(site.config, site.environment) as butler:
        await store(butler, "before")
        await pair.catch_up()
        pair.primary.control("--mode=immediate", "stop")
        with pytest.raises(Unavailable):
            await store(butler, "lost with the connection")
        with pytest.raises(NoWritableHost, match="no host of the database takes writes"):
            await store(butler, "refused")
        status, answer = await served.health()
        assert (status, answer["status"]) == (503, "no writable host")
        with pytest.raises(NoWritableHost):
            async with app.open_butler(site.config, site.environment):
                pass
        await promote(pair.standby)
        await store_again(butler, "after")
        assert (await served.health())[0] == 200


async def test_a_server_that_turns_read_only_is_left_for_the_other_host(pair, tmp_path):
    site = pair.followed_by(await new_site(pair.primary, tmp_path))
    async with app.open_butler(site.config, site.environment) as butler:
        await store(butler, "before")
        await pair.catch_up()
        await promote(pair.standby)
        await pair.primary.run("alter system set default_transaction_read_only = on", "select pg_reload_conf()")

        async def is_refused() -> bool:
            with contextlib.suppress(ReadOnlyServer):
                await store(butler, "on the old one")
                return False
            return True

        await eventually(is_refused, "the old primary to refuse", 10)
        assert await store_again(butler, "on the new one") < 5


async def test_the_kernel_watches_connections_over_tcp(server_of):
    connector = Connector(server_of("18").url("postgres"), 4)
    connection = await connector.connect()
    peer = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]
    assert peer.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        assert peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 4000
    await connection.close()


def test_a_url_of_several_hosts_becomes_one_for_each():
    assert split_hosts("postgresql://u:p@one:1,two:2/db?target_session_attrs=any") == [
        "postgresql://u:p@one:1/db?target_session_attrs=any",
        "postgresql://u:p@two:2/db?target_session_attrs=any",
    ]
    assert split_hosts("postgresql://u@/db?host=/a,/b&port=1,2") == [
        "postgresql://u@/db?host=/a&port=1&target_session_attrs=read-write",
        "postgresql://u@/db?host=/b&port=2&target_session_attrs=read-write",
    ]
    assert split_hosts("postgresql://u@one/db") == ["postgresql://u@one/db"]
