"""Episode cleanup: expired episodes, and the oldest consolidated ones over the limit; events keep their ids."""
# ruff: noqa: S608 — the tables and columns are constants of the tests

import asyncio
import json
import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from butlers.errors import Conflict, NotFound
from butlers.modules.memory.config import MemoryModuleConfig
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations import cleanup, consolidation, management
from database.butler_processes import connected
from memory.memory_fixtures import REQUEST, new_caller
from memory.scripted_model import (
    PausedAnswer,
    ScriptedModel,
    episode_ids_in,
    episode_statuses,
    fact_per_episode,
    model_output,
    separate_butler,
    store_episodes,
    with_model,
)

EXPIRED = "now() - interval '1 minute'"
LATER = "now() + interval '1 day'"


async def insert_episodes(archive, tenant, number=1, **columns):
    """Insert episodes in order of time, with columns given as SQL expressions over `n`; return their ids."""
    columns = {
        "tenant_id": "$1",
        "butler": "'general'",
        "content": "'a secret talk ' || n",
        "created_at": "now() - interval '1 day' + n * interval '1 millisecond'",
        **columns,
    }
    rows = await archive.rows(
        f"with made as (insert into episodes ({', '.join(columns)}) select {', '.join(columns.values())}"
        " from generate_series(1, $2::int) n returning id::text, created_at)"
        " select id from made order by created_at",
        tenant,
        number,
    )
    return [row["id"] for row in rows]


async def remaining_ids(archive, tenant):
    """Return the ids of the tenant's episodes."""
    return {row["id"] for row in await archive.rows("select id::text from episodes where tenant_id = $1", tenant)}


async def deletion_counts(archive, tenant):
    """Return how often each deleted episode is in the events, alone or in a list."""
    found: Counter[str] = Counter()
    for event in await archive.events(tenant):
        if event["event_type"] in {"episode_expired", "episode_crowded_out"}:
            assert event["entity_type"] == "episode"
            found.update(json.loads(event["payload"]).get("episode_ids", [event["entity_id"]]))
    return found


async def test_what_has_expired_is_deleted_whether_it_was_read_or_not(memory, caller, archive, tools):
    """Scenario: Expired episodes deleted
    Scenario: Cleanup returns statistics
    """
    gone = [
        (await insert_episodes(archive, caller.tenant, expires_at=EXPIRED, consolidation_status=f"'{status}'"))[0]
        for status in ("pending", "failed", "dead_letter", "consolidated")
    ]
    forgotten = await tools("memory_store_episode", content="a talk", butler=memory.butler)
    await tools("memory_forget", memory_type="episode", memory_id=forgotten["id"])
    kept = [
        (await insert_episodes(archive, caller.tenant, expires_at=at, consolidation_status=f"'{status}'"))[0]
        for at in (LATER, "null")
        for status in ("pending", "consolidated")
    ]
    answer = await tools("memory_run_episode_cleanup")
    assert answer == {
        "dry_run": False,
        "expired_deleted": 5,
        "expired_unread": 4,
        "capacity_deleted": 0,
        "remaining": 4,
    }
    assert await remaining_ids(archive, caller.tenant) == set(kept)
    assert await deletion_counts(archive, caller.tenant) == dict.fromkeys([*gone, forgotten["id"]], 1)


async def test_any_number_is_deleted_in_batches_and_each_is_on_the_trail_once(memory, caller, archive):
    status = "(array['pending', 'consolidated', 'consolidated'])[n % 3 + 1]"
    old = await insert_episodes(archive, caller.tenant, 4_500, expires_at=EXPIRED, consolidation_status=status)
    read = await insert_episodes(
        archive, caller.tenant, 2_600, expires_at=LATER, consolidation_status="'consolidated'"
    )
    waiting = await insert_episodes(archive, caller.tenant, 50, expires_at=LATER)
    steps = []
    cleaned = await cleanup.clean_up(memory, caller, max_entries=150, progress=lambda *step: steps.append(step))
    assert cleaned == {
        "dry_run": False,
        "expired_deleted": 4_500,
        "expired_unread": 1_500,
        "capacity_deleted": 2_500,
        "remaining": 150,
    }
    assert await remaining_ids(archive, caller.tenant) == {*read[2_500:], *waiting}
    assert await deletion_counts(archive, caller.tenant) == dict.fromkeys([*old, *read[:2_500]], 1)
    events = await archive.events(caller.tenant)
    lists = [json.loads(each["payload"]).get("episode_ids", ()) for each in events if each["entity_id"] is None]
    assert max(map(len, lists)) <= 2_000
    assert steps[-1] == (7_000, 7_000)
    assert steps == sorted(steps)


async def test_what_a_worker_is_reading_is_not_deleted_before_its_lease_is_over(memory, caller, archive):
    lease = {"lease_token": "gen_random_uuid()", "leased_until": "now() + interval '1 minute'"}
    (read,) = await insert_episodes(archive, caller.tenant, expires_at=EXPIRED, **lease)
    lost = {"lease_token": "gen_random_uuid()", "leased_until": EXPIRED}
    await insert_episodes(archive, caller.tenant, expires_at=EXPIRED, **lost)
    assert (await cleanup.clean_up(memory, caller, max_entries=0))["expired_deleted"] == 1
    assert await remaining_ids(archive, caller.tenant) == {read}
    await archive.change("episode", read, leased_until="now()")
    assert (await cleanup.clean_up(memory, caller))["expired_deleted"] == 1
    assert await remaining_ids(archive, caller.tenant) == set()


async def test_room_is_made_by_the_oldest_that_were_read_and_by_nothing_else(memory, caller, archive, tools):
    """Scenario: Capacity enforcement targets consolidated episodes"""
    oldest = "now() - interval '3 days' + n * interval '1 second'"
    waiting = [
        each
        for status in ("pending", "failed", "dead_letter")
        for each in await insert_episodes(
            archive, caller.tenant, 2, created_at=oldest, consolidation_status=f"'{status}'"
        )
    ]
    read = await insert_episodes(archive, caller.tenant, 6, consolidation_status="'consolidated'")
    answers = [await tools("memory_run_episode_cleanup", max_entries=most) for most in (12, 9, 9, 2, 0)]
    assert [(each["capacity_deleted"], each["remaining"]) for each in answers] == [
        (0, 12),
        (3, 9),
        (0, 9),
        (3, 6),
        (0, 6),
    ]
    assert await remaining_ids(archive, caller.tenant) == set(waiting)
    crowded = [each for each in await archive.events(caller.tenant) if each["event_type"] == "episode_crowded_out"]
    assert [sorted(json.loads(each["payload"])["episode_ids"]) for each in crowded] == [
        sorted(read[:3]),
        sorted(read[3:]),
    ]


async def test_what_is_left_after_expiry_is_what_is_counted_against_the_limit(memory, caller, archive):
    await insert_episodes(archive, caller.tenant, 5, expires_at=EXPIRED, consolidation_status="'consolidated'")
    kept = await insert_episodes(archive, caller.tenant, 5, consolidation_status="'consolidated'")
    cleaned = await cleanup.clean_up(memory, caller, max_entries=5)
    assert (cleaned["expired_deleted"], cleaned["capacity_deleted"]) == (5, 0)
    assert await remaining_ids(archive, caller.tenant) == set(kept)


async def test_the_limit_is_the_configured_one_unless_the_call_says_another(memory, caller, archive, tools):
    """Scenario: Consolidation and cleanup tools registered"""
    offered = {tool.name: tool for tool in await tools.client.list_tools()}
    assert {"memory_run_consolidation", "memory_run_episode_cleanup"} <= set(offered)
    limit = offered["memory_run_episode_cleanup"].input_schema["properties"]["max_entries"]
    assert limit["default"] == 10_000
    assert MemoryModuleConfig().max_episodes == memory.config.max_episodes == 10_000
    await insert_episodes(archive, caller.tenant, 5, consolidation_status="'consolidated'")
    small = replace(memory, config=memory.config.model_copy(update={"max_episodes": 3}))
    assert (await cleanup.preview(small, caller))["remaining"] == 3
    assert (await cleanup.clean_up(small, caller, max_entries=4))["remaining"] == 4
    assert (await cleanup.clean_up(small, caller))["remaining"] == 3
    refused = await tools.refusal("memory_run_episode_cleanup", max_entries=-1)
    assert "greater than or equal to 0" in refused
    assert (await tools("memory_run_episode_cleanup", max_entries=""))["remaining"] == 3
    assert (await tools("memory_run_episode_cleanup", max_entries=0))["remaining"] == 0


async def test_a_cleanup_is_for_the_callers_tenant_or_for_all_and_nothing_crosses_over(tmp_path, environment, engine):
    async with separate_butler(tmp_path, environment, engine) as own:
        memory, archive = own.memory, own.archive
        ada, bob = own.new_caller(), own.new_caller()
        gone = {who.tenant: await insert_episodes(archive, who.tenant, 3, expires_at=EXPIRED) for who in (ada, bob)}
        read = {
            who.tenant: await insert_episodes(archive, who.tenant, 4, consolidation_status="'consolidated'")
            for who in (ada, bob)
        }
        before = await archive.everything(bob.tenant)
        assert (await cleanup.clean_up(memory, ada, max_entries=2))["remaining"] == 2
        assert await archive.everything(bob.tenant) == before
        preview = await cleanup.preview(memory, ada, all_tenants=True, max_entries=2)
        assert (preview["expired_deleted"], preview["capacity_deleted"], preview["remaining"]) == (3, 2, 4)
        cleaned = await cleanup.clean_up(memory, own.butler.caller("nobody"), all_tenants=True, max_entries=2)
        assert cleaned == {**preview, "dry_run": False}
        for who in (ada, bob):
            assert await remaining_ids(archive, who.tenant) == set(read[who.tenant][2:])
            assert await deletion_counts(archive, who.tenant) == dict.fromkeys(
                [*gone[who.tenant], *read[who.tenant][:2]], 1
            )
        assert await archive.count("memory_events", "nobody") == 0


async def consolidated_episode(memory, caller, archive, says=fact_per_episode):
    """Store and consolidate an episode; return it and its session."""
    (episode,) = await store_episodes(memory, caller, "User likes blue")
    session = uuid4()
    await archive.change("episode", episode, session_id=f"'{session}'")
    await consolidation.consolidate(with_model(memory, ScriptedModel(says)), caller)
    return episode, session


async def test_a_fact_tells_whose_episode_it_came_from_after_the_episode_is_gone(memory, caller, archive, tools):
    episode, session = await consolidated_episode(memory, caller, archive)
    (fact,) = await tools("memory_search", query="seen", types=["fact"])
    (link,) = await tools("memory_links", memory_type="fact", memory_id=fact["id"])
    assert (link["target_id"], link["relation"], "gone" in link) == (episode, "derived_from", False)
    at = (await archive.row("episode", episode))["created_at"]
    await archive.change("episode", episode, expires_at=EXPIRED)
    await tools("memory_run_episode_cleanup")
    (link,) = await tools("memory_links", memory_type="fact", memory_id=fact["id"])
    gone = link.pop("gone")
    assert (link["target_id"], link["relation"]) == (episode, "derived_from")
    assert (gone["butler"], gone["session_id"]) == (memory.butler, str(session))
    assert datetime.fromisoformat(gone["happened_at"]) == at
    assert timedelta() <= datetime.now(UTC) - datetime.fromisoformat(gone["deleted_at"]) < timedelta(minutes=2)
    record = await tools("memory_get", type="fact", id=fact["id"])
    assert record["source_episode_id"] is None
    assert record["content"] == f"seen in {episode}"
    assert await tools.ids("memory_recall", topic="what was seen") == [fact["id"]]


@pytest.mark.parametrize("how", ["expired", "crowded_out"])
async def test_an_episode_that_something_came_from_has_an_event_of_its_own(memory, caller, archive, how):
    episode, session = await consolidated_episode(memory, caller, archive)
    others = await insert_episodes(archive, caller.tenant, 3, consolidation_status="'consolidated'")
    await archive.connection.execute(
        "update episodes set expires_at = now() - interval '1 minute' where tenant_id = $1 and $2",
        caller.tenant,
        how == "expired",
    )
    await cleanup.clean_up(memory, caller, max_entries=0)
    gone = [each for each in await archive.events(caller.tenant) if each["event_type"] == f"episode_{how}"]
    own, shared = sorted(gone, key=lambda each: each["entity_id"] is None)
    assert (own["entity_id"], own["actor"], own["request_id"]) == (episode, "somebody", caller.request_id)
    payload = json.loads(own["payload"])
    assert datetime.fromisoformat(payload.pop("created_at"))
    assert payload == {
        "butler": memory.butler,
        "episode_of": memory.butler,
        "session_id": str(session),
        "status": "consolidated",
    }
    payload = json.loads(shared["payload"])
    assert sorted(payload.pop("episode_ids")) == sorted(others)
    assert payload == {"butler": memory.butler}
    assert "secret" not in shared["payload"] + own["payload"]


async def test_an_episode_that_bore_a_fact_out_is_told_of_as_well(memory, caller, archive, tools):
    """Consolidation links the episode to the fact it supports."""
    fact = await tools.fact("blue")

    def says(prompt):
        return model_output(confirmations=[{"target_id": fact, "evidence": episode_ids_in(prompt)}])

    episode, session = await consolidated_episode(memory, caller, archive, says)
    await archive.change("episode", episode, expires_at=EXPIRED)
    (link,) = await tools("memory_links", memory_type="fact", memory_id=fact)
    assert (link["source_id"], link["relation"], "gone" in link) == (episode, "supports", False)
    await tools("memory_run_episode_cleanup")
    (link,) = await tools("memory_links", memory_type="fact", memory_id=fact)
    assert (link["source_id"], link["relation"]) == (episode, "supports")
    assert link["gone"]["session_id"] == str(session)


async def test_a_link_to_an_episode_that_is_there_says_nothing_is_gone(memory, caller, archive, tools):
    """Also where an episode with that id was deleted and then imported again."""
    episode, _ = await consolidated_episode(memory, caller, archive)
    (fact,) = await tools("memory_search", query="seen", types=["fact"])
    await archive.change("episode", episode, expires_at=EXPIRED)
    await tools("memory_run_episode_cleanup")
    await insert_episodes(archive, caller.tenant, id=f"'{episode}'::uuid")
    (link,) = await tools("memory_links", memory_type="fact", memory_id=fact["id"])
    assert "gone" not in link


async def test_one_tenants_trail_tells_another_nothing(memory, caller, archive, tools, stranger):
    episode, _ = await consolidated_episode(memory, caller, archive)
    await archive.change("episode", episode, expires_at=EXPIRED)
    await cleanup.clean_up(memory, caller)
    fact = await stranger.fact("green")
    await archive.connection.execute(
        "insert into memory_links (tenant_id, source_type, source_id, target_type, target_id, relation)"
        " values ($1, 'fact', $2, 'episode', $3, 'derived_from')",
        stranger.tenant,
        fact,
        episode,
    )
    (link,) = await stranger("memory_links", memory_type="fact", memory_id=fact)
    assert "gone" not in link
    with pytest.raises(NotFound):
        await management.list_links(memory, new_caller(memory), MemoryType.FACT, UUID(fact), "both")


async def test_a_dry_run_counts_what_the_cleanup_then_does_and_changes_nothing(memory, caller, archive, tools):
    await insert_episodes(archive, caller.tenant, 3, expires_at=EXPIRED)
    await insert_episodes(archive, caller.tenant, 2, expires_at=EXPIRED, consolidation_status="'consolidated'")
    await insert_episodes(archive, caller.tenant, 4, expires_at=LATER, consolidation_status="'consolidated'")
    await insert_episodes(archive, caller.tenant, 3, expires_at="null")
    before = await archive.everything(caller.tenant)
    for most in (0, 3, 5, 7, 100):
        preview = await tools("memory_run_episode_cleanup", dry_run=True, max_entries=most)
        assert preview["capacity_deleted"] == max(0, min(7 - most, 4))
    assert await archive.everything(caller.tenant) == before
    preview = await tools("memory_run_episode_cleanup", dry_run=True, max_entries=5)
    assert preview == {
        "dry_run": True,
        "expired_deleted": 5,
        "expired_unread": 3,
        "capacity_deleted": 2,
        "remaining": 5,
    }
    assert await tools("memory_run_episode_cleanup", max_entries=5) == {**preview, "dry_run": False}


async def test_a_dry_run_does_not_count_what_a_worker_is_reading(memory, caller, archive):
    lease = {"lease_token": "gen_random_uuid()", "leased_until": "now() + interval '1 minute'"}
    await insert_episodes(archive, caller.tenant, 2, expires_at=EXPIRED, **lease)
    await insert_episodes(archive, caller.tenant, expires_at=EXPIRED)
    preview, cleaned = await cleanup.preview(memory, caller), await cleanup.clean_up(memory, caller)
    assert cleaned == {**preview, "dry_run": False}


async def test_a_cleanup_sent_again_with_its_key_is_carried_out_once(memory, caller, archive, tools):
    await insert_episodes(archive, caller.tenant, 3, consolidation_status="'consolidated'")
    first = await tools("memory_run_episode_cleanup", max_entries=2, idempotency_key="tidy")
    assert first["capacity_deleted"] == 1
    await insert_episodes(archive, caller.tenant, 3, consolidation_status="'consolidated'")
    before = await archive.everything(caller.tenant)
    assert await tools("memory_run_episode_cleanup", max_entries=2, idempotency_key="tidy") == first
    refused = await tools.refusal("memory_run_episode_cleanup", max_entries=1, idempotency_key="tidy")
    assert refused.startswith("conflict: ")
    assert await archive.everything(caller.tenant) == before
    again = await tools("memory_run_episode_cleanup", max_entries=2, idempotency_key="", dry_run="")
    assert (again["capacity_deleted"], again["remaining"]) == (3, 2)


async def test_row_15_the_same_cleanup_thirty_times_at_once_deletes_once(memory, caller, archive, tools):
    ids = await insert_episodes(archive, caller.tenant, 9, consolidation_status="'consolidated'")
    sent = {"max_entries": 4, "idempotency_key": "tidy"}
    answers = await asyncio.gather(*(tools("memory_run_episode_cleanup", **sent) for _ in range(30)))
    assert await remaining_ids(archive, caller.tenant) == set(ids[5:])
    assert await deletion_counts(archive, caller.tenant) == dict.fromkeys(ids[:5], 1)
    assert {each["remaining"] for each in answers} == {4}


async def test_old_answers_and_records_go_and_young_ones_stay(memory, caller, archive, stranger):
    days = {"idempotency_keys": (29, 31), "edit_history": (29, 31), "consolidation_runs": (179, 181)}
    statement = {
        "idempotency_keys": "insert into idempotency_keys (tenant_id, key, tool, arguments_hash, created_at)"
        " select $1, 'k' || d, 't', '', now() - make_interval(days => d) from unnest($2::int[]) d",
        "edit_history": "insert into edit_history"
        " (tenant_id, request_id, record_type, record_id, before, after, edited_at)"
        " select $1, 'r' || d, 'fact', gen_random_uuid(), '{}', '{}', now() - make_interval(days => d)"
        " from unnest($2::int[]) d",
        "consolidation_runs": "insert into consolidation_runs (tenant_id, butler, lease_token, started_at, status)"
        " select $1, 'b', gen_random_uuid(), now() - make_interval(days => d), s"
        " from unnest($2::int[]) d, unnest(array['running', 'succeeded']) s",
    }
    for tenant in (caller.tenant, stranger.tenant):
        for table, old in days.items():
            await archive.connection.execute(statement[table], tenant, list(old))
    await cleanup.preview(memory, caller)
    assert await archive.count("idempotency_keys", caller.tenant) == 2, "a dry run leaves them"
    await cleanup.clean_up(memory, caller)
    assert [row["key"] for row in await keys(archive, caller.tenant)] == ["k29"]
    assert await archive.count("edit_history", caller.tenant, "request_id = 'r29'") == 1
    assert await archive.count("edit_history", caller.tenant) == 1
    kept = await archive.rows(
        "select status, started_at < now() - interval '180 days' as old from consolidation_runs"
        " where tenant_id = $1 order by 1, 2",
        caller.tenant,
    )
    assert [(row["status"], row["old"]) for row in kept] == [
        ("running", False),
        ("running", True),
        ("succeeded", False),
    ]
    assert len(await keys(archive, stranger.tenant)) == 2


async def test_old_answers_go_from_a_tenant_that_has_nothing_else(memory, caller, archive, stranger):
    await archive.connection.execute(
        "insert into idempotency_keys (tenant_id, key, tool, arguments_hash, created_at)"
        " values ($1, 'old', 't', '', now() - interval '31 days')",
        stranger.tenant,
    )
    await cleanup.clean_up(memory, caller, all_tenants=True)
    assert not await keys(archive, stranger.tenant)


async def keys(archive, tenant):
    return await archive.rows("select key from idempotency_keys where tenant_id = $1 order by key", tenant)


async def test_row_24_cleanup_deletes_nothing_that_waits_or_is_being_read(memory, caller, archive):
    """Repeated cleanups with a limit of zero, while consolidation claims, asks the model and marks."""
    stop = asyncio.Event()

    async def clean_up_repeatedly():
        deleted = 0
        while not stop.is_set():
            cleaned = await cleanup.clean_up(memory, caller, max_entries=0)
            assert cleaned["expired_deleted"] == 0
            deleted += cleaned["capacity_deleted"]
        return deleted

    tidying = [asyncio.create_task(clean_up_repeatedly()) for _ in range(2)]
    read = []
    for number in range(8):
        ids = await store_episodes(memory, caller, *(f"Talk {number} {each}" for each in range(4)))
        model = PausedAnswer(fact_per_episode)
        model_spawner = ScriptedModel(model)
        running = asyncio.create_task(
            consolidation.consolidate(with_model(memory, model_spawner, batch_size=3), caller)
        )
        await model.started.wait()
        assert set(ids) <= await remaining_ids(archive, caller.tenant)
        model.may_finish.set()
        done = await running
        assert (done["episodes"], done["facts_created"], done["errors"]) == (4, 4, [])
        read += model_spawner.episodes_shown
        assert model_spawner.episodes_shown == ids
    stop.set()
    deleted = (
        sum(await asyncio.gather(*tidying))
        + (await cleanup.clean_up(memory, caller, max_entries=0))["capacity_deleted"]
    )
    assert deleted == len(read) == 32
    assert await deletion_counts(archive, caller.tenant) == dict.fromkeys(read, 1)
    assert await archive.count("facts", caller.tenant, "source_episode_id is null") == 32


async def test_what_expires_while_it_is_read_is_learned_from_and_deleted_afterwards(memory, caller, archive):
    (episode,) = await store_episodes(memory, caller, "User likes blue")
    model = PausedAnswer(fact_per_episode)
    running = asyncio.create_task(consolidation.consolidate(with_model(memory, ScriptedModel(model)), caller))
    await model.started.wait()
    await archive.change("episode", episode, expires_at=EXPIRED)
    assert (await cleanup.clean_up(memory, caller, max_entries=0))["expired_deleted"] == 0
    model.may_finish.set()
    assert (await running)["facts_created"] == 1
    assert await episode_statuses(archive, caller.tenant) == ["consolidated"]
    cleaned = await cleanup.clean_up(memory, caller)
    assert (cleaned["expired_deleted"], cleaned["expired_unread"]) == (1, 0)


async def test_several_cleanups_at_once_leave_as_many_as_there_is_room_for(memory, archive):
    for _ in range(25):
        caller = new_caller(memory)
        ids = await insert_episodes(archive, caller.tenant, 30, consolidation_status="'consolidated'")

        async def clean_up_later(who=caller):
            await asyncio.sleep(random.uniform(0, 0.012))
            return await cleanup.clean_up(memory, who, max_entries=20)

        cleaned = await asyncio.gather(*(clean_up_later() for _ in range(4)))
        assert await remaining_ids(archive, caller.tenant) == set(ids[10:])
        assert sum(each["capacity_deleted"] for each in cleaned) == 10


async def test_an_episode_restored_at_the_moment_of_a_cleanup_is_there_or_was_gone_already(memory, archive):
    for _ in range(20):
        caller = new_caller(memory)
        ids = await store_episodes(memory, caller, *(f"Talk {number}" for number in range(4)))
        for each in ids:
            await management.forget(memory, caller, MemoryType.EPISODE, UUID(each), REQUEST)

        async def try_restore(episode, who=caller):
            try:
                await management.restore(memory, who, MemoryType.EPISODE, UUID(episode), REQUEST)
            except (NotFound, Conflict):
                return False
            return True

        *back, _ = await asyncio.gather(*map(try_restore, ids), cleanup.clean_up(memory, caller))
        there = await remaining_ids(archive, caller.tenant)
        assert [each in there for each in ids] == back
        assert await deletion_counts(archive, caller.tenant) == dict.fromkeys(set(ids) - there, 1)


@pytest.mark.parametrize("how", ["expired", "crowded out"])
async def test_an_episode_that_somebody_holds_for_a_while_does_not_end_a_cleanup(
    memory, butler, caller, archive, how
):
    at = EXPIRED if how == "expired" else LATER
    (episode,) = await insert_episodes(archive, caller.tenant, expires_at=at, consolidation_status="'consolidated'")
    async with connected(butler.location.admin_dsn) as another:
        async with another.transaction():
            await another.execute("select from episodes where id = $1 for update", episode)
            cleaning = asyncio.create_task(cleanup.clean_up(memory, caller, max_entries=0))
            await asyncio.sleep(2.4)
        assert (await cleaning)["remaining"] == 0


async def test_a_cleanup_that_is_cancelled_has_told_of_all_it_deleted(memory, caller, archive):
    ids = await insert_episodes(
        archive, caller.tenant, 6_000, expires_at=EXPIRED, consolidation_status="'consolidated'"
    )
    begun = asyncio.Event()
    cleaning = asyncio.create_task(
        cleanup.clean_up(memory, caller, progress=lambda done, _: begun.set() if done else None)
    )
    await begun.wait()
    cleaning.cancel()
    await asyncio.gather(cleaning, return_exceptions=True)
    there = await remaining_ids(archive, caller.tenant)
    assert 0 < len(there) < 6_000
    assert await deletion_counts(archive, caller.tenant) == dict.fromkeys(set(ids) - there, 1)
    await cleanup.clean_up(memory, caller)
    assert await deletion_counts(archive, caller.tenant) == dict.fromkeys(ids, 1)
