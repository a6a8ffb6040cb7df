"""Servers of the system that speak TLS themselves; collected where there is one (see conftest.py)."""

from collections.abc import Iterator

import pytest

from butlers import provision
from butlers.database_url import driver_url
from butlers.errors import ConfigurationFault
from servers.conftest import INSTALLATIONS, WITH_TLS
from servers.tls import EncryptedServer, encrypted_server


@pytest.fixture(scope="module", params=WITH_TLS)
def encrypted(request) -> Iterator[EncryptedServer]:
    with encrypted_server(INSTALLATIONS[request.param]) as server:
        yield server


async def select_one(url: str) -> object:
    async with provision.open_connection(driver_url(url)) as connection:
        return await connection.fetchval("select 1")


async def test_a_server_that_refuses_connections_without_tls_says_so(encrypted):
    with pytest.raises(ConfigurationFault, match="refuses a connection without TLS") as refused:
        await select_one(encrypted.server.url("postgres", sslmode="disable"))
    assert "sslmode=require" in refused.value.hint


@pytest.mark.parametrize("mode", ["prefer", "require", "verify-full"])
async def test_it_is_reached_with_tls(encrypted, mode):
    url = encrypted.server.url("postgres", sslmode=mode, sslrootcert=str(encrypted.files.authority))
    assert await select_one(url) == 1
