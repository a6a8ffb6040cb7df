"""Fixtures for tests of hooks: the program, a butler with a tenant of its own, its episodes."""

import pytest

from butlers import app
from cli.conftest import butlers, shell, write_butler  # noqa: F401 — fixtures


@pytest.fixture
def butler(tmp_path, worker, tenant):
    """The folder of a butler with a new tenant on the shared database."""
    return write_butler(tmp_path, f"hooks_{worker}", f'[butler.auth]\ntenant = "{tenant}"\n')


@pytest.fixture
def episodes(butler, environment):
    async def read():
        async with (
            app.open_butler(app.load_configuration(butler), environment) as opened,
            opened.database.transaction(opened.caller()) as tx,
        ):
            return [dict(row) for row in await tx.fetch("select * from episodes order by created_at")]

    return read


@pytest.fixture
def store_fact(butler, environment):
    async def store(content):
        async with app.open_butler(app.load_configuration(butler), environment) as opened, app.open_server(opened):
            arguments = {"subject": "user", "predicate": "favourite_tea", "content": content}
            return await opened.spawner.local_client.call(opened.caller(), "memory_store_fact", arguments)

    return store
