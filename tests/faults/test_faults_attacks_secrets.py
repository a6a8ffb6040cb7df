"""Secrets: no key or password appears in answers, logs or tables of a butler with errors."""

import asyncio
import json

import httpx2
from fastmcp import Client

from butlers.host.api_keys import NewKey, create_key
from database.butler_processes import eventually
from memory.memory_fixtures import write_butler

PASSWORD, MODEL_KEY = "pw-Zq8xJ2recognise", "sk-Zq8xJ2recognise"
RUNTIME = """
[butler.auth]
mode = "keys"
[butler.runtime]
type = "openai"
base_url = "http://127.0.0.1:1/v1"
model = "none"
api_key_env = "MODEL_KEY"
timeout_seconds = 5
"""
TABLES = ("sessions", "consolidation_runs", "job_runs", "memory_events", "idempotency_keys", "episodes", "api_keys")


async def test_no_key_and_no_password_is_in_anything_a_butler_in_trouble_says_or_keeps(
    butler, archive, worker, home, wire, tmp_path, processes
):
    database = f"butler_memory_{worker}"
    url = f"postgresql://{database}_app:{PASSWORD}@127.0.0.1:{wire.port}/{database}?sslmode=disable"
    folder = write_butler(tmp_path, f"memory_{worker}", RUNTIME)
    logs = {"BUTLERS_LOG": "debug", "BUTLERS_LOG_FORMAT": "json"}
    process = processes.butler(folder, home, BUTLERS_DATABASE_URL=url, MODEL_KEY=MODEL_KEY, **logs)
    address = await asyncio.to_thread(process.ready)
    _, key = await create_key(archive.connection, NewKey(tenant="secrets", actor="robot", roles=("admin",)))
    secret, answers = key.split("_", 2)[2], []

    async def call(tool: str, **arguments) -> None:
        async with Client(address, auth=key) as client:
            answers.append(repr(await client.call_tool(tool, arguments, raise_on_error=False)))

    async def ask(path: str, credential: str) -> int:
        async with httpx2.AsyncClient(timeout=20) as client:
            headers = {"Authorization": f"Bearer {credential}"}
            answer = await client.get(address.removesuffix("/mcp") + path, headers=headers)
        answers.append(f"{answer.headers} {answer.text}")
        return answer.status_code

    await call("memory_store_episode", content="had tea", butler=f"memory_{worker}")
    await call("memory_run_consolidation")
    await call("memory_search", query="tea", key=key)
    for path in ("/metrics", "/health", f"/nowhere/{secret}"):
        for credential in (key, f"{key}x", f"{secret}"):
            await ask(path, credential)
    await wire.cut()

    async def is_away() -> bool:
        return await ask("/health", key) == 503

    await eventually(is_away, "the database to be away")
    assert await ask("/metrics", key) == 503
    await wire.join()
    await eventually(lambda: _is(ask("/health", key), 200), "the database to be back")
    await asyncio.to_thread(process.end)

    tables = [await archive.rows(f"select t::text as row from {table} t") for table in TABLES]  # noqa: S608 — constants of this file
    emitted = {
        "the log": process.err.read_text(),
        "stdout": process.out.read_text(),
        "answers": "\n".join(answers).replace(f"/nowhere/{secret}", ""),
        "tables": json.dumps([row["row"] for rows in tables for row in rows]),
    }
    assert '"tool": "memory_store_episode"' in emitted["the log"], "the log is complete"
    assert "episode_created" in emitted["tables"]
    for source, text in emitted.items():
        for word in (PASSWORD, MODEL_KEY, secret):
            assert word not in text, source


async def _is(answer, status: int) -> bool:
    return await answer == status
