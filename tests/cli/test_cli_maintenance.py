"""The `butlers memory sweep`, `cleanup` and `reembed` commands, as text and as JSON."""
# ruff: noqa: S608 — the tables and columns are constants of this file

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from uuid import uuid4

import pytest

from butlers.modules.memory import minilm
from butlers.modules.memory.embedding import get_embedding_engine

from .sample_memory import open_memory
from .shell import MemoryShell, Shell

COLUMNS = {
    "facts": {"subject": "gen_random_uuid()::text", "predicate": "'is'", "content": "'a secret ' || n"},
    "rules": {"content": "'Keep the secret ' || n"},
    "episodes": {"butler": "'general'", "content": "'a secret talk ' || n"},
}
OVER = "now() - interval '1 minute'"
READ = "'consolidated'"


@pytest.fixture(scope="module")
def shell(home, cluster):
    """Start the program."""
    started = Shell(home)
    yield started
    started.close()


@pytest.fixture(scope="module")
async def here(tmp_path_factory, environment):
    """Open a butler with a database of its own, so that all its tenants belong to these tests."""
    async with open_memory(tmp_path_factory.mktemp("time") / "b", f"time_{uuid4().hex[:8]}", environment) as opened:
        yield opened


class SqlShell(MemoryShell):
    """A memory shell that also writes and counts rows by SQL."""

    def __init__(self, shell, here):
        super().__init__(shell, here.butler.config.folder)
        self.here, self.caller = here, here.new_caller()
        self.tenant = self.caller.tenant

    async def plant(self, table, number=1, **columns):
        """Insert memories, with their columns as SQL expressions over `n`."""
        values = {"tenant_id": "$1", **COLUMNS[table], **columns}
        await self.here.run(
            f"insert into {table} ({', '.join(values)}) select {', '.join(values.values())}"
            " from generate_series(1, $2::int) n",
            self.tenant,
            number,
        )

    async def count(self, table, where="true"):
        async with self.here.memory.transaction(self.caller) as tx:
            return await tx.fetchval(f"select count(*) from {table} where {where}")

    async def everything(self):
        """Return a checksum of every row, to see that nothing changed."""
        tables = ("facts", "rules", "episodes", "memory_events", "embedding_versions")
        async with self.here.memory.transaction(self.caller) as tx:
            return [await tx.fetch(f"select md5(t::text) from {table} t order by 1") for table in tables]

    async def delete(self):
        """Delete the tenant's memories, so that runs over all tenants skip it."""
        for table in COLUMNS:
            await self.here.run(f"delete from {table} where tenant_id = $1", self.tenant)


@pytest.fixture
async def ada(shell, here):
    person = SqlShell(shell, here)
    yield person
    await person.delete()


@pytest.fixture
async def bob(shell, here):
    person = SqlShell(shell, here)
    yield person
    await person.delete()


def shows(text, **counts):
    """Return whether a text has a line for each count."""
    return all(
        re.search(rf"^{name.replace('_', ' ')} +{number} *$", text, re.MULTILINE) for name, number in counts.items()
    )


async def plant_memories_to_sweep(person):
    for table in ("facts", "rules"):
        await person.plant(table, 3, confidence="(array[1, 0.1, 0.01])[n]", decay_rate="1e-18")
    await person.plant("rules", metadata="""'{"needs_inversion": true, "harmful_reasons": ["it hurt"]}'""")


async def test_a_sweep_does_what_its_dry_run_showed(ada):
    await plant_memories_to_sweep(ada)
    before = await ada.everything()
    shown, preview = ada.text("sweep", "--dry-run"), ada("sweep", "--dry-run")
    assert await ada.everything() == before
    assert shown.startswith("Nothing was changed. A run would give:\n")
    counts = {"facts_fading": 1, "facts_expired": 1, "rules_fading": 1, "rules_forgotten": 1, "rules_inverted": 1}
    assert shows(shown, tenants=1, facts_seen=3, facts_recovered=0, rules_recovered=0, **counts)
    assert preview["dry_run"] is True
    done = ada.text("sweep")
    assert "Nothing was changed" not in done
    assert shows(done, tenants=1, facts_seen=3, rules_seen=3, held_back=0, **counts)
    assert await ada.count("facts", "validity = 'expired'") == 1
    assert (
        await ada.count("rules", "maturity = 'anti_pattern' and content like 'ANTI-PATTERN: Do NOT Keep%it hurt'")
        == 1
    )
    again = ada("sweep")
    assert (again["dry_run"], again["facts_seen"], again["warnings"]) == (False, 2, [])
    assert {again[name] for name in counts} == {0}
    assert ada("stats")["facts"]["fading"] == 1


async def test_a_sweep_that_is_held_back_says_so_and_goes_on_without_the_cap(ada):
    await ada.plant("facts", 130, confidence="0.01")
    done = ada.run("sweep")
    assert done.returncode == 0, "it did what it may"
    assert shows(done.stdout, facts_expired=100, facts_fading=30, held_back=30)
    folded = " ".join(done.stdout.split())
    assert f"30 memories of {ada.tenant} are due to expire" in folded
    assert "`butlers memory sweep DIR --no-cap` expires them." in folded
    rest = ada("sweep", "--no-cap")
    assert (rest["facts_expired"], rest["held_back"], rest["warnings"]) == (30, 0, [])


async def test_all_tenants_are_swept_only_on_request(ada, bob, shell):
    for person in (ada, bob):
        await person.plant("facts", 2, confidence="0.1")
    before = await bob.everything()
    assert ada("sweep")["facts_fading"] == 2
    assert await bob.everything() == before
    shown = json.loads(shell("memory", "sweep", ada.folder, "--all-tenants", "--dry-run", "--json").stdout)
    assert shown["tenants"] >= 2
    assert shown["facts_fading"] >= 2
    done = shell("memory", "sweep", ada.folder, "--all-tenants", "--json")
    assert (done.returncode, json.loads(done.stdout)["facts_fading"]) == (0, shown["facts_fading"])
    assert await bob.count("facts", "metadata ->> 'status' = 'fading'") == 2
    assert await bob.count("memory_events", "event_type = 'fact_fading'") == 2


async def test_a_cleanup_does_what_its_dry_run_showed(ada):
    await ada.plant("episodes", 3, expires_at=OVER)
    await ada.plant("episodes", 4, consolidation_status=READ)
    await ada.plant("episodes", 2)
    before = await ada.everything()
    counts = {"expired_deleted": 3, "expired_unread": 3, "capacity_deleted": 1, "remaining": 5}
    shown = ada.text("cleanup", "--max-entries", "5", "--dry-run")
    assert shown.startswith("Nothing was changed. A run would give:\n")
    assert shows(shown, **counts)
    assert ada("cleanup", "--max-entries", "5", "--dry-run") == {"dry_run": True, **counts}
    assert await ada.everything() == before
    assert shows(ada.text("cleanup", "--max-entries", "5"), **counts)
    assert ada("cleanup") == {**dict.fromkeys(counts, 0), "dry_run": False, "remaining": 5}
    assert ada("cleanup", "--max-entries", "0") == {
        **dict.fromkeys(counts, 0),
        "dry_run": False,
        "capacity_deleted": 3,
        "remaining": 2,
    }


async def test_a_number_of_episodes_that_makes_no_sense_is_refused(ada):
    for number in ("-1", "many"):
        refused = ada.run("cleanup", "--max-entries", number)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "--max-entries" in refused.stderr


async def test_all_tenants_are_cleaned_up_only_on_request(ada, bob, shell):
    for person in (ada, bob):
        await person.plant("episodes", 2, expires_at=OVER)
    assert ada("cleanup")["expired_deleted"] == 2
    assert await bob.count("episodes") == 2
    shown = json.loads(shell("memory", "cleanup", ada.folder, "--all-tenants", "--dry-run", "--json").stdout)
    assert shown["expired_deleted"] >= 2
    done = shell("memory", "cleanup", ada.folder, "--all-tenants", "--json")
    assert json.loads(done.stdout) == {**shown, "dry_run": False}
    assert await bob.count("episodes") == 0
    assert await bob.count("memory_events", "event_type = 'episode_expired'") == 2


async def test_a_link_to_a_deleted_episode_still_names_its_butler(ada):
    fact = ada("store-fact", "Ada", "drink", "tea")["id"]
    episode = ada("store-episode", "Ada asked for tea")["id"]
    await ada.here.run(
        "insert into memory_links (tenant_id, source_type, source_id, target_type, target_id, relation)"
        " values ($1, 'fact', $2, 'episode', $3, 'derived_from')",
        ada.tenant,
        fact,
        episode,
    )
    ada("forget", "episode", episode)
    assert ada("cleanup")["expired_deleted"] == 1
    (link,) = ada("links", "fact", fact)
    assert (link["target_id"], link["gone"]["butler"]) == (episode, ada.here.memory.butler)
    assert episode in ada.text("links", "fact", fact)


@pytest.fixture(scope="module")
def brought(home, tmp_path_factory):
    """Return a folder with a model: the bundled one under another name."""
    folder = tmp_path_factory.mktemp("models") / "brought"
    folder.mkdir()
    (folder / "model.onnx").symlink_to(minilm.graph_file(home / "models"))
    shutil.copy(minilm.model_folder(home / "models") / "tokenizer.json", folder)
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": minilm.MAX_TOKENS}))
    return folder


@pytest.fixture
def changed(here, brought, tmp_path):
    """Return the folder of the same butler with another model."""
    return with_model(here, tmp_path, brought)


def with_model(here, at, folder):
    name = here.memory.butler
    (at / "butler.toml").write_text(
        f'[butler]\nname = "{name}"\nport = 0\n[modules.memory]\nenabled = true\n'
        f'[modules.memory.embedding]\nfolder = "{folder}"\n'
    )
    return at


async def test_all_memories_are_embedded_again_after_each_change_of_the_model(ada, changed):
    fact, rule = ada("store-fact", "Ada", "drink", "green tea")["id"], ada("store-rule", "Offer green tea")["id"]
    episode = ada("store-episode", "Ada asked for green tea")["id"]
    assert ada.text("reembed", "--dry-run").split("\n")[1].split() == ["waiting", "0"]
    before = await ada.everything()
    assert ada("reembed", "--dry-run", folder=changed) == {"dry_run": True, "waiting": 3}
    shown = ada.text("reembed", "--dry-run", folder=changed)
    assert shown.startswith("Nothing was changed. A run would give:\n")
    assert shows(shown, waiting=3)
    assert await ada.everything() == before
    asked = ("search", "green tea", "--mode", "semantic", "--types", "fact,rule,episode", "--min-confidence", "0")
    assert ada(*asked, folder=changed) == []
    done = ada("reembed", folder=changed)
    version = done.pop("version")
    assert done == {"facts": 1, "rules": 1, "episodes": 1, "model": "brought"}
    assert re.fullmatch("[0-9a-f]{12}", version)
    assert {each["id"] for each in ada(*asked, folder=changed)} == {fact, rule, episode}
    assert ada(*asked) == []
    back = ada.text("reembed")
    assert shows(back, facts=1, rules=1, episodes=1, model="all-MiniLM-L6-v2")
    assert len(ada(*asked)) == 3


async def test_all_tenants_are_embedded_again_only_on_request(ada, bob, changed, shell):
    for person in (ada, bob):
        person("store-fact", "Ada", "drink", "green tea")
    assert ada("reembed", folder=changed)["facts"] == 1
    assert bob("reembed", "--dry-run", folder=changed)["waiting"] == 1
    waiting = json.loads(shell("memory", "reembed", changed, "--all-tenants", "--dry-run", "--json").stdout)[
        "waiting"
    ]
    done = json.loads(shell("memory", "reembed", changed, "--all-tenants", "--json").stdout)
    assert done["facts"] + done["rules"] + done["episodes"] == waiting >= 1
    assert bob("reembed", "--dry-run", folder=changed)["waiting"] == 0
    assert json.loads(shell("memory", "reembed", ada.folder, "--all-tenants", "--json").stdout)["facts"] >= 2


async def test_a_killed_reembedding_continues_where_it_was(ada, changed, home):
    version = get_embedding_engine(home).version
    await ada.here.run(
        "insert into embedding_versions (tenant_id, id, model, version, dimensions) values ($1, $2, $3, $4, 384)",
        ada.tenant,
        version.id,
        version.model,
        version.version,
    )
    await ada.plant(
        "facts", 330, embedding="array_fill(0.05, array[384])::vector", embedding_version_id=f"'{version.id}'"
    )
    words = [sys.executable, "-m", "butlers.cli", "memory", "reembed", str(changed), "--tenant", ada.tenant]
    process = subprocess.Popen(words, env={**os.environ, "BUTLERS_HOME": str(home)}, stdout=subprocess.DEVNULL)
    try:
        new = f"embedding_version_id <> '{version.id}'"
        while not (done := await ada.count("facts", new)):
            assert process.poll() is None
            await asyncio.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    done = await ada.count("facts", new)
    assert 0 < done < 330
    rest = ada("reembed", folder=changed)
    assert rest["facts"] == 330 - done
    async with ada.here.memory.transaction(ada.caller) as tx:
        statement = "select sum((payload ->> 'fact')::int) from memory_events where event_type = 'embeddings_renewed'"
        assert await tx.fetchval(statement) == 330
    assert ada("reembed", "--dry-run", folder=changed)["waiting"] == 0


async def test_a_folder_without_a_model_is_said_in_one_line_and_ends_with_1(ada, tmp_path):
    folder = with_model(ada.here, tmp_path, tmp_path / "nowhere")
    for words in (("reembed",), ("reembed", "--json"), ("sweep",), ("cleanup", "--dry-run")):
        refused = ada.run(*words, folder=folder)
        assert (refused.returncode, refused.stdout, len(refused.stderr.splitlines())) == (1, "", 1)
        assert f"there is no model.onnx in {tmp_path / 'nowhere'}" in refused.stderr


async def test_the_doctor_names_the_model_in_use(shell, changed, ada):
    for folder, name in ((changed, "brought "), (ada.folder, "all-MiniLM-L6-v2 1,")):
        found = {each["name"]: each for each in json.loads(shell("doctor", folder, "--json").stdout)}
        model = next(check for name, check in found.items() if "model" in name)
        assert model["state"] == "ok"
        assert model["found"].startswith(name)
        assert model["found"].endswith("384 dimensions")


@pytest.mark.parametrize("job", ["decay_sweep", "episode_cleanup", "reembed", "index_upkeep"])
async def test_each_job_is_run_by_hand_and_recorded(ada, shell, job):
    await ada.plant("facts", confidence="0.1")
    await ada.plant("episodes", expires_at=OVER)
    done = shell("jobs", "run", ada.folder, job, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    expected = {"decay_sweep": "facts_fading", "episode_cleanup": "expired_deleted", "reembed": "facts"}
    assert answer[expected[job]] >= 1 if job in expected else set(answer["indexes"]) == {"facts", "rules", "episodes"}
    shown = shell("jobs", "run", ada.folder, job)
    assert (shown.returncode, job in shown.stdout) == (0, True)
    (status,) = [
        each for each in json.loads(shell("jobs", "list", ada.folder, "--json").stdout) if each["job"] == job
    ]
    assert (status["status"], status["error"]) == ("succeeded", None)
