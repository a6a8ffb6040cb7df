"""A tenant with every kind of memory in every state and hostile text in every field, and all pages that show it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID, uuid4

from butlers.caller import Caller
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.domain.receipt import Receipt, ReceiptLine, ReceiptSource, ToldOutcome
from butlers.modules.memory.operations import decay_sweep, receipts
from butlers.modules.memory.runtime import Memory
from memory.memory_fixtures import Archive, Tools

HOSTILE = (
    "W" * 120,
    "<script>document.title='owned'</script>",
    "\"><svg onload=document.title='owned'>",
    "'><img src=x onerror=\"document.title='owned'\">",
    "</textarea></title></style><iframe src=//evil.example>",
    "{{ 7 * 7 }} {% raw %} ${7*7} #{7*7}",
    "javascript:alert(document.domain)//",
    '=HYPERLINK("http://evil.example","cell")',
    "\u202egnp.exe\u2066 bidi\u2069 zero\u200bwidth \u00ad\ufeff",
    "bell\x07 escape\x1b[31m delete\x7f c1\x85",
    "שלום עולם مرحبا بالعالم",
    "👩‍👩‍👧‍👦 emoji 🏳️‍🌈 é",
    "&lt;b&gt; &amp; <!-- <![CDATA[ ]]> -->",
    "../../etc/passwd?a=b&c=d#e%00%2e\\",
)
"""Texts of at most 128 characters, which fit into every field."""
HOSTILE_MEMORIES = 5
"""How many memories of each kind are hostile: each has all texts in its content, and others in its short fields."""
LONG = "A long talk. " + "x" * 900_000


@dataclass(frozen=True)
class FullTenant:
    """The memories of a tenant by their state; the names are those of the states."""

    tenant: str
    facts: Mapping[str, str]
    rules: Mapping[str, str]
    episodes: Mapping[str, str]
    entities: Mapping[str, str]
    session: str
    agent_session: str
    request: str
    runs: Mapping[str, str]
    """Consolidation runs: one that learned hostile words, and one that failed."""
    events: Mapping[str, str]
    """Events that can be undone, and some that can't, by a name for each."""

    @property
    def ids(self) -> list[str]:
        """The ids of all memories and entities."""
        return [each for kind in (self.facts, self.rules, self.episodes, self.entities) for each in kind.values()]


async def fill_tenant(tools: Tools, archive: Archive, memory: Memory, word: str = "tea") -> FullTenant:
    """Store memories through MCP and bring them into every state."""
    entities = await _fill_entities(tools, word)
    episodes, session = await _fill_episodes(tools, archive, memory, word)
    facts = await _fill_facts(tools, archive, entities, word)
    rules = await _fill_rules(tools, archive, word)
    await _fill_links(tools, archive, facts, rules, episodes)
    await decay_sweep.sweep(memory, Caller(tenant=tools.tenant, butler=memory.butler, actor="sweep"))
    await _fill_states_after_the_sweep(tools, archive, facts, rules, word)
    agent_session = await _fill_sessions(archive, memory, tools.tenant, session, facts, rules)
    (event,) = await archive.rows(
        "select request_id from memory_events where tenant_id = $1 and entity_id = $2 order by occurred_at limit 1",
        tools.tenant, facts["live"],
    )  # fmt: skip
    runs = await _fill_runs(tools, archive, facts, rules, episodes)
    events = await _events_to_undo(tools, archive, facts, rules, entities)
    return FullTenant(
        tools.tenant, facts, rules, episodes, entities, session, agent_session, event["request_id"], runs, events
    )


async def _fill_runs(
    tools: Tools, archive: Archive, facts: Mapping[str, str], rules: Mapping[str, str], episodes: Mapping[str, str]
) -> dict[str, str]:
    """Store the records of runs and the events that they leave, about memories that are there."""
    runs = {"succeeded": str(uuid4()), "failed": str(uuid4())}
    for status, run in runs.items():
        await archive.connection.execute(
            "insert into consolidation_runs (tenant_id, id, butler, lease_token, status, finished_at, episodes,"
            " facts_created, errors, error) values ($1, $2, $3, $2, $4, now(), 1, 1, $5, $6)",
            tools.tenant, run, HOSTILE[1], status, json.dumps(list(HOSTILE)),
            HOSTILE[2] if status == "failed" else None,
        )  # fmt: skip
    made = [
        ("fact", facts["hostile new"], "created", {"supersedes_id": facts["hostile old"]}),
        ("rule", rules["hostile 0"], "created", {}),
        ("fact", facts["live"], "confirmed", {"before": {}}),
        ("fact", str(uuid4()), "created", {}),
        ("episode", episodes["hostile 0"], "consolidated", {}),
        ("episode", str(uuid4()), "consolidated", {}),
    ]
    for kind, record, verb, payload in made:
        await archive.connection.execute(
            "insert into memory_events (tenant_id, event_type, entity_type, entity_id, actor, request_id, payload)"
            " values ($1, $2, $3, $4, 'consolidation', $5, $6)",
            tools.tenant, f"{kind}_{verb}", kind, record, runs["succeeded"], json.dumps(payload),
        )  # fmt: skip
    actions = [
        ("new_facts", {"subject": "Ada", "predicate": "proposed", "content": HOSTILE[1]}, None),
        ("new_facts", {"subject": HOSTILE[1], "predicate": HOSTILE[2], "content": "\n".join(HOSTILE)}, None),
        ("updated_facts", {"content": "\n".join(HOSTILE[1:])}, facts["hostile new"]),
        ("new_rules", {"content": HOSTILE[3]}, None),
        ("confirmations", {}, str(uuid4())),
    ]
    for change, action, target in actions:
        await archive.connection.execute(
            "insert into consolidation_proposals (tenant_id, run_id, butler, change, action, target_id, evidence,"
            " happened_at, expires_at) values ($1, $2, $3, $4, $5, $6, $7, now(), now() + interval '1 day')",
            tools.tenant, runs["succeeded"], HOSTILE[4], change,
            json.dumps({**action, "evidence": [], **({"target_id": target} if target else {})}), target,
            [episodes["hostile 0"]],
        )  # fmt: skip
    return runs


async def _events_to_undo(
    tools: Tools, archive: Archive, facts: Mapping[str, str], rules: Mapping[str, str], entities: Mapping[str, str]
) -> dict[str, str]:
    """Return the last event of some records: stored, replaced, changed with hostile words, inverted and merged."""
    chosen = {"stored": facts["live"], "replacing": facts["hostile new"], "inverted": rules["warning"]}
    chosen |= {"merged": entities["target"], "renamed": entities["hostile 2"]}
    await tools("entity_update", entity_id=chosen["renamed"], aliases=list(HOSTILE[3:]))
    rows = await archive.rows(
        "select distinct on (entity_id) entity_id::text, id::text from memory_events"
        " where tenant_id = $1 and entity_id = any ($2::uuid[]) order by entity_id, occurred_at desc",
        tools.tenant, list(chosen.values()),
    )  # fmt: skip
    ids = {row["entity_id"]: row["id"] for row in rows}
    return {name: ids[record] for name, record in chosen.items()}


def _hostile(number: int) -> str:
    return HOSTILE[number % len(HOSTILE)]


async def _fill_entities(tools: Tools, word: str) -> dict[str, str]:
    found = {
        f"hostile {number}": await tools.entity(
            _hostile(number),
            aliases=[f"alias {number} {text}" for text in HOSTILE],
            metadata={text: text for text in HOSTILE},
        )
        for number in range(HOSTILE_MEMORIES)
    }
    found |= {
        "live": await tools.entity(f"Ada of {word}", aliases=["Countess"], metadata={"drinks": word}),
        "namesake": await tools.entity("Countess", "organization"),
        "target": await tools.entity(f"Grace of {word}"),
        "merged": await tools.entity(f"Amazing Grace of {word}"),
        "bare": await tools.entity(f"Nobody of {word}", "place"),
        "hidden": await tools.entity(_hostile(8), "place"),
    }
    await tools("entity_merge", source_entity_id=found["merged"], target_entity_id=found["target"])
    return found


async def _fill_episodes(tools: Tools, archive: Archive, memory: Memory, word: str) -> tuple[dict[str, str], str]:
    async def store(content: str) -> str:
        return str((await tools("memory_store_episode", content=content, butler=memory.butler))["id"])

    names = [f"hostile {number}" for number in range(HOSTILE_MEMORIES)]
    found = {name: await store("\n".join(HOSTILE[number:])) for number, name in enumerate(names)}
    for number, name in enumerate(names):
        # An administrator may store for a butler of any name.
        statement = "update episodes set butler = $2 where id = $1"
        await archive.connection.execute(statement, found[name], _hostile(number))
    states = ("pending", "consolidated", "failed", "dead_letter", "expired", "forgotten")
    found |= {state: await store(f"A {state} talk. Ada drinks {word}.") for state in states}
    found["long"] = await store(LONG)
    session = str(uuid4())
    for state in ("consolidated", "failed", "dead_letter"):
        await archive.change(
            "episode", found[state], consolidation_status=f"'{state}'", session_id=f"'{session}'",
            consolidation_attempts="3" if state != "consolidated" else "1",
        )  # fmt: skip
    for state in ("failed", "dead_letter"):
        await archive.connection.execute(
            "update episodes set last_consolidation_error = $2 where id = $1", found[state], HOSTILE[1]
        )
    await archive.change("episode", found["expired"], expires_at="now() - interval '1 hour'")
    await tools("memory_forget", memory_type="episode", memory_id=found["forgotten"])
    return found, session


async def _fill_facts(tools: Tools, archive: Archive, entities: Mapping[str, str], word: str) -> dict[str, str]:
    found = {}
    for number in range(HOSTILE_MEMORIES):
        found[f"hostile {number}"] = await tools.fact(
            "\n".join(HOSTILE), _hostile(number), _hostile(number + 5), tags=[*HOSTILE, f"tag {number}"],
            scope=_hostile(number + 9), entity_id=entities[f"hostile {number}"],
        )  # fmt: skip
    found |= {
        "live": await tools.fact(f"drinks {word}", "Ada", "drink", entity_id=entities["live"], tags=["food"]),
        "twin": await tools.fact(f"drinks {word}.", "Ada", "drinks", entity_id=entities["live"]),
        "fading": await tools.fact(f"old {word}", "Bob", "fading", importance=9.5),
        "expired": await tools.fact(f"very old {word}", "Bob", "expired", permanence="volatile"),
        "superseded": await tools.fact(f"first {word} {HOSTILE[0]}", "Bob", "phone"),
        "retracted": await tools.fact(f"wrong {word}", "Bob", "wrong"),
        "permanent": await tools.fact(f"always {word}", "Bob", "always", permanence="permanent", scope="health"),
        "long": await tools.fact(LONG, "Bob", "long"),
        "of target": await tools.fact(f"likes {word}", "Grace", "taste", entity_id=entities["target"]),
    }
    found["successor"] = await tools.fact(f"second {word} {HOSTILE[2]}", "Bob", "phone")
    await tools("memory_forget", memory_type="fact", memory_id=found["retracted"])
    await archive.age("fact", found["fading"], 250)
    await archive.age("fact", found["expired"], 2_000)
    found["hostile old"], found["hostile new"] = [
        await tools.fact("\n".join(HOSTILE[number:]), _hostile(8), _hostile(3)) for number in (0, 1)
    ]
    found["replaced"] = await tools.fact(f"before it learned {word}", "Bob", "learned")
    found["distilled"] = await tools.fact(f"learned {word}", "Bob", "learned")
    metadata = json.dumps({"provenance": "distilled"})
    await archive.change("fact", found["distilled"], metadata=f"'{metadata}'", confidence="0.7")
    return found


async def _fill_rules(tools: Tools, archive: Archive, word: str) -> dict[str, str]:
    found = {
        f"hostile {number}": await tools.rule(
            "\n".join(HOSTILE[number:]), tags=list(HOSTILE), scope=_hostile(number + 9)
        )
        for number in range(HOSTILE_MEMORIES)
    }
    names = ("candidate", "established", "proven", "warning", "fading", "forgotten")
    found |= {name: await tools.rule(f"A {name} rule about {word} and {name} trains") for name in names}
    await archive.age("rule", found["proven"], 40)
    await archive.age("rule", found["fading"], 180)
    for name, marks in (("candidate", 1), ("established", 6), ("proven", 16)):
        for _ in range(marks):
            await tools("memory_mark_helpful", rule_id=found[name])
    for text in HOSTILE[:3]:
        await tools("memory_mark_harmful", rule_id=found["warning"], reason=text)
    await tools("memory_forget", memory_type="rule", memory_id=found["forgotten"])
    return found


async def _fill_links(
    tools: Tools, archive: Archive, facts: Mapping[str, str], rules: Mapping[str, str], episodes: Mapping[str, str]
) -> None:
    for number in range(HOSTILE_MEMORIES):
        name = f"hostile {number}"
        await link(archive, tools.tenant, ("fact", facts[name]), ("episode", episodes[name]), "derived_from")
        await link(archive, tools.tenant, ("rule", rules[name]), ("episode", episodes[name]), "supports")
    for kind, memory_id in (("fact", facts["distilled"]), ("fact", facts["live"]), ("rule", rules["candidate"])):
        await link(archive, tools.tenant, (kind, memory_id), ("episode", episodes["consolidated"]), "derived_from")


async def _fill_states_after_the_sweep(
    tools: Tools, archive: Archive, facts: dict[str, str], rules: dict[str, str], word: str
) -> None:
    """Store what a sweep would change: rules that await inversion."""
    rules["awaiting"] = await tools.rule(f"Book the {word} at once, without a question")
    for _ in range(3):
        await tools("memory_mark_harmful", rule_id=rules["awaiting"], reason=f"was wrong about {word}")
    validity = {name: (await archive.row("fact", each))["validity"] for name, each in facts.items()}
    assert {name: validity[name] for name in ("live", "superseded", "retracted", "expired")} == {
        "live": "active", "superseded": "superseded", "retracted": "retracted", "expired": "expired",
    }  # fmt: skip
    assert json.loads((await archive.row("fact", facts["fading"]))["metadata"])["status"] == "fading"
    maturity = {name: (await archive.row("rule", each))["maturity"] for name, each in rules.items()}
    assert {name: maturity[name] for name in ("candidate", "established", "proven", "warning")} == {
        "candidate": "candidate", "established": "established", "proven": "proven", "warning": "anti_pattern",
    }  # fmt: skip


async def _fill_sessions(
    archive: Archive, memory: Memory, tenant: str, session: str, facts: Mapping[str, str], rules: Mapping[str, str]
) -> str:
    """Store sessions of the butler with hostile texts, and one of an agent; both were told and not told memories."""
    for internal, session_id in ((False, session), (False, str(uuid4())), (True, str(uuid4()))):
        await archive.connection.execute(
            "insert into sessions (tenant_id, id, butler, trigger_source, prompt, runtime, status, internal, actor,"
            " usage, tools, answer, error, finished_at) values ($1, $2, $3, $4, $5, 'command', 'failed', $6, $7, $8,"
            " $9, $5, $10, now())",
            tenant, session_id, HOSTILE[0], "consolidation" if internal else f"schedule:{HOSTILE[1]}",
            "" if internal else "\n".join(HOSTILE), internal, HOSTILE[2],
            json.dumps({"input_tokens": 1_000, "output_tokens": 50}), json.dumps({HOSTILE[3]: 2}), HOSTILE[4],
        )  # fmt: skip
    agent_session = str(uuid4())
    lines = [
        *(ReceiptLine(MemoryType.FACT, UUID(each), rank, score=0.5) for rank, each in enumerate(facts.values(), 1)),
        *(
            ReceiptLine(MemoryType.RULE, UUID(each), rank, outcome, 0.4)
            for rank, (each, outcome) in enumerate(zip(rules.values(), [*ToldOutcome] * 9, strict=False), 1)
        ),
        ReceiptLine(MemoryType.EPISODE, uuid4(), 99),
    ]
    for session_id, agent in ((session, None), (agent_session, "claude-code")):
        caller = Caller(tenant=tenant, butler=memory.butler, session_id=session_id, details={"agent": agent or ""})
        receipts.record(memory, caller, Receipt(ReceiptSource.CONTEXT, lines, 400, 3_000))
        receipts.record(memory, caller, Receipt(ReceiptSource.RECALL, []))
    await receipts.settle(memory, 30)
    return agent_session


def _details(folder: str, ids: Mapping[str, str]) -> list[str]:
    return [f"/{folder}/{each}" for each in ids.values()]


PAGES: Mapping[str, Callable[[FullTenant], list[str]]] = {
    "/": lambda _: ["/"],
    "/search": lambda _: [
        "/search", "/search?q=tea", "/search?q=tea&type=fact", "/search?q=tea&type=rule&mode=semantic",
        "/search?q=tea&type=episode&mode=keyword", "/search?q=tea&mode=blended", "/search?q=owned&tag=tag+1",
        "/search?q=%3Cscript%3E%22%27%7B%7B7*7%7D%7D", "/search?q=zzzzqqqq&mode=keyword",
    ],
    "/facts": lambda full: [
        "/facts", "/facts?state=all", "/facts?state=fading", "/facts?state=superseded", "/facts?state=retracted",
        "/facts?state=expired", "/facts?sort=fading", "/facts?sort=confidence", "/facts?sort=used",
        "/facts?subject=Nobody&tag=none", f"/facts?entity={full.entities['live']}", "/facts?min=0.5",
    ],
    "/facts/{id:uuid}": lambda full: _details("facts", full.facts),
    "/rules": lambda _: ["/rules", "/rules?state=all", "/rules?state=forgotten", "/rules?group=proven"],
    "/rules/{id:uuid}": lambda full: _details("rules", full.rules),
    "/episodes": lambda full: [
        "/episodes", "/episodes?gone=all", "/episodes?state=dead_letter", f"/episodes?session={full.session}",
    ],
    "/episodes/{id:uuid}": lambda full: _details("episodes", full.episodes),
    "/entities": lambda _: ["/entities", "/entities?merged=yes", "/entities?type=place", "/entities?name=zzzz"],
    "/entities/merge": lambda full: [
        f"/entities/merge?source={full.entities['live']}",
        f"/entities/merge?source={full.entities['bare']}",
        f"/entities/merge?source={full.entities['live']}&target={full.entities['target']}",
        f"/entities/merge?source={full.entities['hostile 1']}&target={full.entities['hostile 2']}",
    ],
    "/entities/{id:uuid}": lambda full: _details("entities", full.entities),
    "/audit": lambda full: [
        "/audit", "/audit?type=fact_created", "/audit?actor=nobody", f"/audit?request={full.request}",
        f"/audit?memory={full.facts['live']}", "/audit?since=2020-01-01&until=2020-01-02",
    ],
    "/sessions": lambda _: [
        "/sessions", *(f"/sessions?kind={kind}" for kind in ("own", "agent", "internal")), "/sessions?butler=nobody",
    ],
    "/sessions/{id:uuid}": lambda full: [f"/sessions/{full.session}", f"/sessions/{full.agent_session}"],
    "/system": lambda _: ["/system"],
    "/review": lambda _: [
        "/review",
        *(f"/review?of={pile}" for pile in ("fading", "distilled", "proposals", "harmful", "twins", "dead-letters")),
        "/review?of=twins&skip=1", "/review?of=fading&skip=99",
        *(f"/review?of=proposals&skip={number}" for number in range(1, 6)),
    ],
    "/retract": lambda full: [
        f"/retract?episode={full.episodes['consolidated']}", f"/retract?session={full.session}",
        f"/retract?episode={full.episodes['hostile 0']}", f"/retract?episode={full.episodes['pending']}",
    ],
    "/consolidation": lambda _: ["/consolidation"],
    "/consolidation/prompts": lambda _: ["/consolidation/prompts"],
    "/consolidation/{id:uuid}": lambda full: _details("consolidation", full.runs),
    "/consolidation/{id:uuid}/take-back": lambda full: [
        f"/consolidation/{full.runs['succeeded']}/take-back", f"/consolidation/{full.runs['failed']}/take-back",
        f"/consolidation/{full.runs['succeeded']}/take-back?item={full.facts['hostile new']}",
    ],
    "/undo": lambda full: [
        *(f"/undo?event={each}" for each in full.events.values()), f"/undo?request={full.request}",
    ],
}  # fmt: skip
"""The addresses of every page by its route; each state of a page has its own."""
NOT_PAGES = {"/audit.csv": "a file", "/live": "a stream", "/login": "of mode keys", "/tenants": "of elevated admins",
             "/enter": "of elevated admins"}  # fmt: skip
"""Routes of GET that other tests visit."""


def all_pages(full: FullTenant) -> list[str]:
    """Return the addresses of all pages."""
    return [path for paths in PAGES.values() for path in paths(full)]


def different_pages(full: FullTenant) -> list[str]:
    """Return each page once, and the states of it whose markup differs most."""
    firsts = [paths(full)[0] for route, paths in PAGES.items() if "uuid" not in route]
    return [
        *firsts,
        "/search?q=tea&type=fact",
        "/search?q=zzzzqqqq&mode=keyword",
        "/facts?state=all",
        "/facts?subject=Nobody&tag=none",
        "/entities?merged=yes",
        f"/entities/merge?source={full.entities['hostile 1']}&target={full.entities['hostile 2']}",
        "/review?of=distilled",
        "/review?of=proposals&skip=2",
        "/review?of=twins",
        "/review?of=dead-letters",
        f"/sessions/{full.session}",
        f"/sessions/{full.agent_session}",
        "/sessions?butler=nobody",
        *(f"/facts/{full.facts[name]}" for name in ("hostile 0", "hostile new", "successor", "retracted")),
        *(f"/rules/{full.rules[name]}" for name in ("hostile 0", "warning")),
        *(f"/episodes/{full.episodes[name]}" for name in ("hostile 0", "dead_letter")),
        *(f"/entities/{full.entities[name]}" for name in ("hostile 0", "merged")),
        f"/consolidation/{full.runs['succeeded']}",
        f"/consolidation/{full.runs['succeeded']}/take-back",
    ]


async def link(
    archive: Archive, tenant: str, source: tuple[str, str], target: tuple[str, str], relation: str
) -> None:
    """Store a link between two memories, as consolidation does."""
    await archive.connection.execute(
        "insert into memory_links (tenant_id, source_type, source_id, target_type, target_id, relation)"
        " values ($1, $2, $3, $4, $5, $6)",
        tenant, *source, *target, relation,
    )  # fmt: skip
