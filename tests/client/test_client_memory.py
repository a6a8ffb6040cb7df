"""The client against a butler in a process of its own."""

import asyncio
import subprocess
import sys
from uuid import uuid4

import pytest

from butlers.client import connect
from butlers.errors import Conflict, Fault, Forbidden, InvalidInput, NotFound, Unavailable
from cli.conftest import write_butler


@pytest.fixture
def address(process, tmp_path, worker, tenant):
    folder = write_butler(tmp_path, f"client_{worker}", f'[butler.auth]\ntenant = "{tenant}"\n')
    return process(folder, probe=False).ready()


async def test_a_script_stores_recalls_and_forgets(address):
    async with connect(address) as memory:
        stored = await memory.store_fact("user", "favorite_drink", "green tea", importance=7, tags=["drink"])
        (found,) = await memory.recall("tea")
        assert (found["id"], found["content"], found["tags"]) == (stored["id"], "green tea", ["drink"])
        assert [each["id"] for each in await memory.search("tea", types=["fact"], limit=5)] == [stored["id"]]
        assert "green tea" in await memory.context("what does the user drink")
        assert (await memory.get("fact", stored["id"]))["importance"] == 7
        assert (await memory.confirm("fact", stored["id"]))["id"] == stored["id"]
        assert (await memory.store_rule("Ask before you pour"))["id"]
        key = str(uuid4())
        episodes = [await memory.store_episode("We had tea", idempotency_key=key) for _ in range(2)]
        assert episodes[0]["id"] == episodes[1]["id"]
        assert (await memory.forget("fact", stored["id"]))["forgotten"]
        assert [each["memory_type"] for each in await memory.recall("tea")] == ["rule"]
        assert (await memory.call("memory_stats"))["episodes"]["total"] == 1


async def test_many_calls_share_one_client(address):
    async with connect(f"{address}/") as memory:
        stored = await asyncio.gather(*(memory.store_fact("user", f"drink {n}", f"tea {n}") for n in range(30)))
        assert len({each["id"] for each in stored}) == 30


@pytest.mark.parametrize(
    ("tool", "arguments", "fault"),
    [
        ("memory_get", {"memory_type": "fact", "memory_id": str(uuid4())}, NotFound),
        ("memory_recall", {"topic": " "}, InvalidInput),
        ("memory_store_fact", {"subject": "a"}, InvalidInput),
        ("memory_nothing", {}, Fault),
    ],
)
async def test_an_error_of_a_tool_is_the_fault_of_its_code(address, tool, arguments, fault):
    async with connect(address) as memory:
        with pytest.raises(fault) as raised:
            await memory.call(tool, **arguments)
        assert raised.value.message


async def test_the_same_key_with_other_arguments_is_a_conflict(address):
    async with connect(address) as memory:
        await memory.store_rule("One", idempotency_key="k")
        with pytest.raises(Conflict):
            await memory.store_rule("Two", idempotency_key="k")


async def test_nobody_at_the_address_and_a_wrong_key_say_what_to_do(process, tmp_path, worker):
    with pytest.raises(Unavailable, match="no butler answers") as raised:
        async with connect("http://127.0.0.1:9"):
            pass
    assert raised.value.hint
    folder = write_butler(tmp_path, f"client_{worker}", '[butler.auth]\nmode = "keys"\n')
    address = process(folder, probe=False).ready()
    for key in (None, "wrong"):
        with pytest.raises(Forbidden, match="refuses the key"):
            async with connect(address, key):
                pass


def test_the_client_imports_no_other_part_of_butlers():
    program = (
        "import sys, butlers.client; print(sorted(m for m in sys.modules if m.startswith(('butlers.', 'asyncpg'))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['butlers.client', 'butlers.errors']"
