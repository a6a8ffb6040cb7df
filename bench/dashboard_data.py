"""Generated memories for the dashboard bench: a tenant with facts of every state, and all that belongs to them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg
import numpy as np
from pgvector.asyncpg import register_vector

from butlers.app import Butler
from butlers.modules.memory.runtime import Memory
from entities import generate_people
from harness import Vectors, interpolate, sentence

_CHUNK = 20_000
_TABLES = "facts, rules, episodes, entities, memory_events, memory_links, rule_applications, consolidation_runs"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many rows of each kind a tenant with so many facts has."""

    facts: int

    @property
    def rules(self) -> int:
        return self.facts // 10

    @property
    def episodes(self) -> int:
        return self.facts // 5

    @property
    def entities(self) -> int:
        return self.facts // 20


async def fill_tenant(butler: Butler, memory: Memory, tenant: str, sizes: Sizes, seeds: Vectors) -> None:
    """Insert a tenant's memories, entities, events, links, marks and consolidation runs."""
    owner = await asyncpg.connect(butler.location.admin_dsn)
    await register_vector(owner)
    version = memory.embedder.version
    await owner.execute(
        "insert into embedding_versions (tenant_id, id, model, version, dimensions) values ($1, $2, $3, $4, $5)"
        " on conflict do nothing",
        tenant, version.id, version.model, version.version, version.dimensions,
    )  # fmt: skip
    await _insert_people(owner, tenant, sizes.entities)
    for statement, count, sentences in (
        (_INSERT_EPISODES, sizes.episodes, 3),
        (_INSERT_RULES, sizes.rules, 1),
        (_INSERT_FACTS, sizes.facts, 1),
    ):
        await _insert_memories(owner, statement, (tenant, version.id, sizes.facts), count, sentences, seeds)
    for statement in _FOLLOWING:
        await owner.execute(statement, tenant, sizes.facts, timeout=600)
    await owner.execute(f"vacuum analyze {_TABLES}", timeout=1800)
    await owner.close()


async def _insert_people(owner: Any, tenant: str, count: int) -> None:
    rows = [(n, name, alias) for n, (name, alias) in enumerate(generate_people(count))]
    await owner.execute("create temporary table people (n integer, name text, alias text)")
    await owner.copy_records_to_table("people", records=rows, columns=("n", "name", "alias"))
    await owner.execute(_INSERT_PEOPLE, tenant)
    await owner.execute("drop table people")


async def _insert_memories(
    owner: Any, statement: str, arguments: Sequence[object], count: int, sentences: int, seeds: Vectors
) -> None:
    rng, words = np.random.default_rng(7), random.Random(7)
    await owner.execute("create temporary table arriving (n integer, content text, embedding vector)")
    for start in range(0, count, _CHUNK):
        vectors = interpolate(seeds, min(_CHUNK, count - start), rng)
        rows = [
            (start + i, ". ".join(sentence(words) for _ in range(sentences)), vector)
            for i, vector in enumerate(vectors)
        ]
        await owner.copy_records_to_table("arriving", records=rows, columns=("n", "content", "embedding"))
        await owner.execute(statement, *arguments, timeout=600)
        await owner.execute("truncate arriving")
    await owner.execute("drop table arriving")


_INSERT_PEOPLE = """
    insert into entities (tenant_id, id, canonical_name, entity_type, aliases, metadata, created_at, updated_at)
    select $1, md5($1 || ' entity ' || n)::uuid, name,
           (array['person', 'person', 'organization', 'place'])[1 + n % 4], array[alias],
           case when n % 50 = 49 then jsonb_build_object('merged_into', md5($1 || ' entity ' || n - 1)::uuid)
                else '{}' end,
           now() - make_interval(hours => n), now() - make_interval(hours => n)
      from people
"""
_INSERT_EPISODES = """
    insert into episodes (tenant_id, id, butler, session_id, content, embedding, embedding_version_id, search_vector,
                          consolidation_status, consolidation_attempts, last_consolidation_error, created_at,
                          expires_at)
    select $1, md5($1 || ' episode ' || n)::uuid, (array['bench', 'bench', 'kitchen', 'office'])[1 + n % 4],
           md5($1 || ' session ' || n / 20)::uuid, content, embedding, $2, to_tsvector('english', content), status,
           case when status in ('failed', 'dead_letter') then 3 else 0 end,
           case when status in ('failed', 'dead_letter') then 'the model gave no answer' end,
           now() - n * (interval '30 days' / ($3 / 5)), now() + make_interval(days => n % 60 - 1)
      from (
          select *, case when n % 10 = 0 then 'pending' when n % 100 = 51 then 'failed'
                         when n % 400 = 99 then 'dead_letter' else 'consolidated' end as status
            from arriving
      ) a
"""
_INSERT_RULES = """
    insert into rules (tenant_id, id, content, embedding, embedding_version_id, search_vector, scope, maturity,
                       confidence, effectiveness_score, applied_count, success_count, harmful_count, created_at,
                       last_confirmed_at, tags, metadata)
    select $1, md5($1 || ' rule ' || n)::uuid, content, embedding, $2, to_tsvector('english', content),
           (array['global', 'global', 'work'])[1 + n % 3],
           (array['candidate', 'candidate', 'established', 'proven'])[1 + n % 4], 0.7, 0.8, 5, 5 - harms, harms,
           now() - n * (interval '400 days' / ($3 / 10)), now() - n % 7 * n * (interval '60 days' / ($3 / 10)),
           case when n % 5 = 0 then jsonb_build_array('topic ' || n % 20) else '[]' end,
           jsonb_build_object('provenance', (array['direct', 'distilled', 'supported'])[1 + n % 3])
      from (select *, case when n % 50 = 7 then 2 else 0 end as harms from arriving) a
"""
_INSERT_FACTS = """
    insert into facts (tenant_id, id, subject, predicate, content, embedding, embedding_version_id, search_vector,
                       importance, confidence, decay_rate, permanence, validity, scope, supersedes_id, entity_id,
                       source_butler, reference_count, created_at, last_confirmed_at, tags, metadata)
    select $1, md5($1 || ' fact ' || n)::uuid, 'person ' || key % 97, 'note_' || key, content, embedding, $2,
           to_tsvector('english', 'person ' || key % 97 || ' note_' || key || ' ' || content), n * 3 % 11, 1.0,
           (array[0.0, 0.002, 0.002, 0.008, 0.008, 0.008, 0.008, 0.008, 0.03, 0.1])[1 + key % 10],
           (array['permanent', 'stable', 'stable', 'standard', 'standard', 'standard', 'standard', 'standard',
                  'volatile', 'ephemeral'])[1 + key % 10],
           case when n % 10 in (8, 9) then 'superseded' when n % 50 = 13 then 'expired'
                when n % 50 = 23 then 'retracted' else 'active' end,
           (array['global', 'global', 'home', 'work'])[1 + key % 4],
           case when n % 10 in (7, 8) then md5($1 || ' fact ' || n + 1)::uuid end,
           case when key % 30 = 0 and key < 9000 then md5($1 || ' entity 0')::uuid
                when key % 3 = 0 then md5($1 || ' entity ' || key / 3 % ($3 / 20))::uuid end,
           'bench', n * 31 % 17, now() - n * (interval '400 days' / $3),
           now() - n * 7919::bigint % 100 * n * (interval '4 days' / $3),
           case when n % 5 = 0 then jsonb_build_array('topic ' || n % 20)
                when n % 1999 = 7 then '["seldom"]' else '[]' end,
           jsonb_build_object('provenance', (array['direct', 'direct', 'distilled', 'supported'])[1 + n % 4])
               || case when n % 40 = 3 then '{"status": "fading"}' else '{}'::jsonb end
      from (select *, case when n % 10 in (8, 9) then n / 10 * 10 + 7 else n end as key from arriving) a
"""
_INSERT_MARKS = """
    insert into rule_applications (tenant_id, rule_id, outcome, applied_at, actor, request_id)
    select $1, md5($1 || ' rule ' || n)::uuid, case when n % 50 = 7 and m < 2 then 'harmful' else 'helpful' end,
           now() - make_interval(hours => 5 * m + n % 300), 'bench', md5($1 || ' mark ' || n || ' ' || m)
      from generate_series(0, $2 / 10 - 1) n, generate_series(0, 4) m
"""
_INSERT_LINKS = """
    insert into memory_links (tenant_id, source_type, source_id, target_type, target_id, relation, created_at)
    select $1, 'fact', md5($1 || ' fact ' || n)::uuid, 'episode', md5($1 || ' episode ' || n * 7 % ($2 / 5))::uuid,
           'derived_from', now() - n * (interval '400 days' / $2)
      from generate_series(0, $2 - 1) n
     where n % 4 in (2, 3)
"""
_INSERT_RUNS = """
    insert into consolidation_runs (tenant_id, id, butler, lease_token, status, started_at, finished_at, episodes,
                                    facts_created, input_tokens, output_tokens)
    select $1, md5($1 || ' run ' || n)::uuid, 'bench', gen_random_uuid(), 'succeeded', time, time, 10, 25, 4000, 900
      from generate_series(0, $2 / 50 - 1) n, lateral (select now() - n * (interval '400 days' / ($2 / 50))) t (time)
"""
_INSERT_EVENTS = """
    insert into memory_events (tenant_id, event_type, entity_type, entity_id, actor, request_id, payload, occurred_at)
    select $1, 'fact_created', 'fact', id, case when number % 4 = 2 then 'consolidation' else 'bench' end,
           (case when number % 4 = 2 then md5($1 || ' run ' || number / 50)::uuid else gen_random_uuid() end)::text,
           jsonb_build_object('confidence', 1.0, 'scope', scope), created_at
      from (select *, replace(predicate, 'note_', '')::integer as number from facts where tenant_id = $1) f
    union all
    select $1, 'fact_confirmed', 'fact', id, 'bench', gen_random_uuid()::text, '{"confidence": 1.0}',
           last_confirmed_at
      from facts where tenant_id = $1 and last_confirmed_at > created_at and importance < 3
    union all
    select $1, 'fact_looked_at', 'fact', id, 'local', gen_random_uuid()::text, '{"via": "dashboard"}',
           last_confirmed_at
      from facts where tenant_id = $1 and importance = 4
    union all
    select $1, 'rule_created', 'rule', id, 'bench', gen_random_uuid()::text, '{}', created_at
      from rules where tenant_id = $1
    union all
    select $1, 'rule_marked_' || outcome, 'rule', rule_id, actor, request_id, '{"maturity": "proven"}', applied_at
      from rule_applications where tenant_id = $1
    union all
    select $1, 'episode_created', 'episode', id, butler, gen_random_uuid()::text,
           jsonb_build_object('session_id', session_id), created_at
      from episodes where tenant_id = $1
    union all
    select $1, 'entity_created', 'entity', id, 'bench', gen_random_uuid()::text, '{}', created_at
      from entities where tenant_id = $1 and $2 > 0
"""
_FOLLOWING = (_INSERT_MARKS, _INSERT_LINKS, _INSERT_RUNS, _INSERT_EVENTS)
