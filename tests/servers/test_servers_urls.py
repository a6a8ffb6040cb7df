"""URLs with libpq's parameters and with TLS: each parameter works or is refused with its own sentence."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from butlers import database_url, provision
from butlers.database_url import driver_url
from butlers.errors import ConfigurationFault, Fault, Unavailable
from servers.site import ExternalSite, new_site
from servers.tls import Certificates, make_certificates, tls_front


@pytest.fixture(scope="module")
async def site(server_of, tmp_path_factory) -> ExternalSite:
    return await new_site(server_of("18"), tmp_path_factory.mktemp("site"))


async def select_one(url: str) -> object:
    async with provision.open_connection(driver_url(url)) as connection:
        return await connection.fetchval("select 1")


HONOURED = [
    "connect_timeout=10",
    "keepalives=1&keepalives_idle=30&keepalives_interval=10&keepalives_count=3",
    "tcp_user_timeout=5000",
    "channel_binding=prefer",
    "gssencmode=disable",
    "load_balance_hosts=disable",
    "client_encoding=UTF8",
    "application_name=home&fallback_application_name=other",
    "options=-c%20statement_timeout%3D7s",
    "sslmode=prefer&sslsni=0&sslcompression=0&sslcertmode=allow",
    "target_session_attrs=read-write",
    "min_protocol_version=3.0&max_protocol_version=latest",
    "statement_timeout=7s",
]


@pytest.mark.parametrize("parameters", HONOURED)
async def test_a_parameter_of_libpq_works(site, parameters):
    assert await select_one(f"{site.url}?{parameters}") == 1


async def test_options_and_settings_of_a_url_reach_the_server(site):
    for parameters in ("options=-c%20statement_timeout%3D7s", "statement_timeout=7s"):
        async with provision.open_connection(driver_url(f"{site.url}?{parameters}")) as connection:
            assert await connection.fetchval("show statement_timeout") == "7s"


@pytest.mark.parametrize(
    "parameter",
    [
        *(f"{name}=anything" for name in database_url._REFUSED),
        "gssencmode=require",
        "load_balance_hosts=random",
        "requiressl=1",
        "channel_binding=maybe",
        "replication=database",
    ],
)
def test_a_parameter_that_can_not_be_honoured_is_refused_by_its_name(parameter):
    with pytest.raises(ConfigurationFault, match=f": {parameter.partition('=')[0]} in the database's URL") as refused:
        driver_url(f"postgresql://somebody:hidden@localhost/db?{parameter}")
    assert refused.value.hint
    assert "anything" not in str(refused.value)


async def test_a_parameter_that_nobody_knows_is_refused_by_the_servers_sentence(site):
    with pytest.raises(ConfigurationFault, match=r'parameter of the URL: .*"pgbouncer"') as refused:
        await provision.locate(site.config, site.with_port(site.server.port, pgbouncer="true").environment)
    assert "Remove it from the URL" in refused.value.hint


async def test_an_unknown_sslmode_is_refused_with_the_known_ones(site):
    with pytest.raises(ConfigurationFault, match="`sslmode` parameter must be one of: disable, allow, prefer"):
        await select_one(f"{site.url}?sslmode=no-verify")


@pytest.mark.parametrize("name", ["sslrootcert", "sslcert", "sslkey", "sslcrl"])
def test_a_file_that_is_missing_is_named(tmp_path, name):
    with pytest.raises(ConfigurationFault, match=f"{name} .* names a file that can't be read: .*nothing.pem"):
        driver_url(f"postgresql://localhost/db?sslmode=verify-full&{name}={tmp_path / 'nothing.pem'}")


@dataclass(frozen=True)
class Front:
    """The server behind TLS, with the files of its certificate."""

    site: ExternalSite
    port: int
    files: Certificates
    other: Certificates

    def url(self, host: str = "127.0.0.1", **parameters: str) -> str:
        return self.site.with_port(self.port, **parameters).url.replace("@127.0.0.1", f"@{host}")


@pytest.fixture(scope="module")
async def front(site, tmp_path_factory) -> AsyncIterator[Front]:
    files = make_certificates(tmp_path_factory.mktemp("files"), "127.0.0.1")
    other = make_certificates(tmp_path_factory.mktemp("other"), "127.0.0.1")
    with tls_front(site.server, files) as port:
        yield Front(site, port, files, other)


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
async def test_tls_works_in_every_mode(front, mode):
    assert await select_one(front.url(sslmode=mode, sslrootcert=str(front.files.authority))) == 1


async def test_a_certificate_of_an_unknown_authority_is_said_to_be_untrusted(front):
    with pytest.raises(ConfigurationFault, match="certificate of the database server is not trusted") as refused:
        await select_one(front.url(sslmode="verify-full", sslrootcert=str(front.other.authority)))
    assert "sslrootcert" in refused.value.hint


async def test_a_certificate_for_another_host_is_said_to_be_that(front):
    with pytest.raises(ConfigurationFault, match=r"is for another host: .*'localhost'"):
        await select_one(front.url("localhost", sslmode="verify-full", sslrootcert=str(front.files.authority)))
    assert await select_one(front.url("localhost", sslmode="verify-ca", sslrootcert=str(front.files.authority))) == 1


async def test_verify_full_without_an_authority_says_which_file_is_missing(front, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigurationFault, match=r'root certificate file ".*root.crt" does not exist') as refused:
        await select_one(front.url(sslmode="verify-full"))
    assert "sslrootcert=system" in refused.value.hint


async def test_the_machines_authorities_are_a_way_to_check_and_are_used_for_channel_binding(front, monkeypatch):
    """A driver that can't bind the password to the channel checks the certificate instead."""
    asked = [{"sslrootcert": "system"}, {"sslmode": "require", "channel_binding": "require"}]
    for parameters in asked:
        with pytest.raises(ConfigurationFault, match="certificate of the database server is not trusted"):
            await select_one(front.url(**parameters))
    monkeypatch.setenv("SSL_CERT_FILE", str(front.files.authority))
    for parameters in asked:
        assert await select_one(front.url(**parameters)) == 1


async def test_the_machines_authorities_need_the_strict_mode(front):
    with pytest.raises(ConfigurationFault, match=r"sslrootcert=system .* sslmode=verify-full only"):
        await select_one(front.url(sslmode="require", sslrootcert="system"))


async def test_a_server_behind_tls_says_so_to_a_url_without(front):
    with pytest.raises(Unavailable, match="can't be reached") as refused:
        await select_one(front.url(sslmode="disable"))
    assert "sslmode=require" in refused.value.hint


async def test_a_server_without_tls_is_refused_where_tls_is_asked_for(site):
    with pytest.raises(Unavailable, match="the server offers no TLS, and sslmode asks for it"):
        await select_one(f"{site.url}?sslmode=require")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("@127.0.0.1", "@no-such-host.invalid"), "there is no host of that name"),
        (("/site_", "/no_site_"), 'database "no_site_.*" does not exist'),
        ((":s3cr", ":wrong"), "the server refuses the password of postgres"),
    ],
)
async def test_the_cause_of_a_failed_connection_is_named(site, change, reason):
    with pytest.raises(Fault, match=reason) as refused:
        await select_one(site.url.replace(*change))
    assert "s3cr" not in str(refused.value)
    assert refused.value.hint
