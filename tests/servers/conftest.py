"""Fixtures of the tests on servers of other versions: one server of each installation for a worker."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from database.butler_processes import Processes, new_home
from servers.external_servers import ExternalServer, Installation, external_server, installations

INSTALLATIONS = installations()
WITH_TLS = [name for name, each in INSTALLATIONS.items() if each.has_tls]
PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
collect_ignore = [
    *([] if WITH_TLS else ["test_servers_system_tls.py"]),
    *([] if PGBOUNCER else ["test_servers_poolers.py"]),
]


def pytest_report_header() -> str:
    tls = ", ".join(WITH_TLS) or "none"
    return (
        f"external servers: {', '.join(INSTALLATIONS)}; with TLS of their own: {tls}; pooler: {PGBOUNCER or 'none'}"
    )


@pytest.fixture(scope="session")
def server_of() -> Iterator[Callable[[str], ExternalServer]]:
    """Return the server of an installation ("16", "18", "system-15"), started with the first use."""
    with ExitStack() as stack:
        started: dict[str, ExternalServer] = {}

        def start(name: str) -> ExternalServer:
            if name not in started:
                started[name] = stack.enter_context(external_server(INSTALLATIONS[name]))
            return started[name]

        yield start


@pytest.fixture(params=list(INSTALLATIONS))
def server(request: pytest.FixtureRequest, server_of: Callable[[str], ExternalServer]) -> ExternalServer:
    """Each server in turn."""
    return server_of(request.param)


@pytest.fixture
def installation(server: ExternalServer) -> Installation:
    """The programs of the server."""
    return server.installation


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Programs in their own processes; the test ends those that still run."""
    started = Processes(tmp_path)
    yield started
    started.end()


@pytest.fixture
def own_home() -> Iterator[Path]:
    """A new, empty BUTLERS_HOME for this test only."""
    with new_home() as home:
        yield home
