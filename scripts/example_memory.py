"""The example memory of the screenshots: half a year of a household, stored through a butler's tools.

As a program it is the model that consolidates the memory: it reads the prompt and prints the answer.
"""

import asyncio
import itertools
import json
import re
import sys
from datetime import timedelta
from typing import Any

import asyncpg
import httpx2
from fastmcp import Client

BUTLER = "general"
JOB_TIMEOUT_SECONDS = 30.0

# The audit trail is append-only. In this database, which is thrown away, its times have to move like all others.
PREPARE = """
alter table memory_events disable trigger memory_events_append_only;

create function pg_temp.let_time_pass(amount interval) returns void language plpgsql as $$
declare
    statement text;
begin
    for statement in
        select format('update %I set %s', table_name, string_agg(format('%1$I = %1$I - $1', column_name), ', '))
          from information_schema.columns
         where table_schema = 'public'
           and table_name in ('facts', 'rules', 'episodes', 'entities', 'memory_events', 'memory_links',
                              'rule_applications', 'consolidation_runs', 'edit_history')
           and data_type = 'timestamp with time zone'
           and is_generated = 'NEVER'
         group by table_name
    loop
        execute statement using amount;
    end loop;
end $$;
"""

FISH = "Ordered fish for Ada at the harbour. She sent it back: she eats no meat and no fish."
TABLE = "Booked dinner for Ada and the user on Friday. Ada asked for a table by the window, as always."
TRAIN = "The user took the 8:40 train to Porto and worked on the way. He wants a seat in the quiet coach."
OFFER = "Chloe Weber called about the offer. She prefers mail to calls and answers in the evening."
KNEE = "The user asked to move the physiotherapy of this week by a day. The knee is better."
WEATHER = "The user asked for the weather in Lisbon. It was 24 degrees."

LEARNED = {
    TABLE: {"subject": "Ada", "predicate": "favourite_table", "content": "by the window", "permanence": "stable"},
    TRAIN: {"subject": "user", "predicate": "train_seat", "content": "in the quiet coach", "permanence": "stable"},
    OFFER: {"subject": "Chloe Weber", "predicate": "prefers", "content": "mail to calls; she answers in the evening"},
}
"""What the model learns from an episode."""
CORRECTED = {FISH: ("[Ada] [diet]", "eats no meat and no fish")}
"""The known fact that an episode changes, and its new content."""


class Household:
    """A household and its butler: calls of tools, forms of pages, and days that pass between them."""

    def __init__(self, client: "Client[Any]", site: str, database: asyncpg.Connection) -> None:
        self._client = client
        self._site = site
        self._database = database
        self.ids: dict[str, str] = {}
        """Ids of entities by name."""
        self._keys = itertools.count()

    async def live(self) -> None:
        """Live half a year."""
        await self._database.execute(PREPARE)
        await self._meet()
        await self._work()
        await self._change()
        await self._talk()

    async def shown(self) -> dict[str, str]:
        """Return the ids of the pages to show."""
        entity = self.ids["Ada Lovelace"]
        run = await self._database.fetchval("select id from consolidation_runs order by started_at desc limit 1")
        shown = {"fact": await self._id_of("diet"), "rule": await self._rule_id("Ask Ada"), "entity": entity}
        return {**shown, "run": str(run)}

    async def _meet(self) -> None:
        """Store the people and what is known about them at first."""
        for name in ("Ada Lovelace", "Chloe Martin", "Chloe Weber"):
            self.ids[name] = await self._entity(name, [name.split()[0]])
        ada = {"entity_id": self.ids["Ada Lovelace"]}
        await self._fact("Ada", "diet", "eats no meat", 8, tags=["food"], **ada)
        await self._fact("Ada", "works_at", "the observatory", 6, "stable", **ada)
        await self._fact("Ada", "birthday", "10 December", 9, "permanent", **ada)
        await self._fact("Ada", "tennis", "with the user, on Tuesdays", 5, **ada)
        await self._fact("Ada", "travels_by", "train, never by plane", 6, "stable", **ada)
        await self._fact("Ada", "reads", "novels about the sea", 3, "stable", **ada)
        await self._fact("Chloe Martin", "works_at", "the town hall", 4, "stable", entity_id=self.ids["Chloe Martin"])
        await self._fact("Chloe Weber", "works_at", "a publisher", 4, "stable", entity_id=self.ids["Chloe Weber"])
        await self._fact("user", "lives_in", "Porto, near the river", 7, "stable")
        await self._fact("user", "favourite_tea", "Darjeeling, first flush", 5, "stable", tags=["food"])
        await self._pass(45)
        await self._learn(FISH)

    async def _work(self) -> None:
        """Store rules, and mark them after each use."""
        ask = await self._rule("Ask Ada before you book a table", "restaurants")
        price = await self._rule("Name the date and the price before you pay for a train", "trains")
        cheap = await self._rule("Book the cheapest train without asking", "trains")
        for days, rule in ((12, ask), (9, price), (14, ask), (5, cheap), (6, ask), (13, price)):
            await self._pass(days)
            await self._call("memory_mark_helpful", rule_id=rule)
        await self._call("memory_mark_harmful", rule_id=ask, reason="Ada was asleep and the table was gone")
        await self._form("looked", type="rule", id=ask)
        for days in (6, 4, 5):
            await self._pass(days)
            await self._call("memory_mark_helpful", rule_id=ask)
        await self._form("confirm", type="fact", id=await self._id_of("diet"))

    async def _change(self) -> None:
        """Change facts, and let one fade."""
        await self._fact("user", "physiotherapy", "on Tuesdays at 18:00, until the knee is well", 9, "volatile")
        await self._pass(20)
        await self._fact("user", "lives_in", "Lisbon, moved there for good", 7, "stable")
        await self._pass(16)
        await self._form("confirm", type="fact", id=await self._id_of("tennis"))
        await self._fact("user", "train_card", "a pass for half the price, until June", 6)
        for reason in ("It left before breakfast", "Changing it cost 15 euros"):
            await self._pass(4)
            await self._call("memory_mark_harmful", rule_id=await self._rule_id("cheapest"), reason=reason)
        for topic in ("what does Ada eat", "dinner with Ada", "the train to Porto", "where does the user live"):
            await self._call("memory_recall", topic=topic)
        await self._pass(6)

    async def _talk(self) -> None:
        """Store the episodes of the last two days and consolidate the first ones."""
        await self._learn(TABLE, TRAIN, OFFER)
        table = await self._id_of("favourite_table")
        await self._form("looked", type="fact", id=table)
        await self._form("move", id=table, entity=self.ids["Ada Lovelace"])
        await self._pass(0.3)
        await self._form("confirm", type="fact", id=await self._id_of("birthday"))
        for content in (KNEE, WEATHER):
            await self._call("memory_store_episode", content=content, butler=BUTLER)
        await self._pass(0.02)

    async def _learn(self, *contents: str) -> None:
        """Store episodes and let the job of consolidation read them."""
        for content in contents:
            await self._call("memory_store_episode", content=content, butler=BUTLER)
        await self._pass(0.2)
        await self._form("run-job", name="consolidate")
        async with asyncio.timeout(JOB_TIMEOUT_SECONDS):
            while (await self._call("memory_stats"))["episodes"]["unconsolidated"]:  # noqa: ASYNC110 — another process
                await asyncio.sleep(0.2)

    async def _fact(
        self, subject: str, predicate: str, content: str, importance: float, permanence: str = "standard", **more: Any
    ) -> None:
        fact = {"subject": subject, "predicate": predicate, "content": content}
        await self._call("memory_store_fact", **fact, importance=importance, permanence=permanence, **more)

    async def _rule(self, content: str, tag: str) -> str:
        return str((await self._call("memory_store_rule", content=content, tags=[tag]))["id"])

    async def _entity(self, name: str, aliases: list[str]) -> str:
        stored = await self._call("entity_create", canonical_name=name, entity_type="person", aliases=aliases)
        return str(stored["entity_id"])

    async def _id_of(self, predicate: str) -> str:
        """Return the id of the live fact with a predicate."""
        query = "select id from facts where predicate = $1 and validity = 'active'"
        return str(await self._database.fetchval(query, predicate))

    async def _rule_id(self, word: str) -> str:
        """Return the id of the rule with a word."""
        return str(await self._database.fetchval("select id from rules where content like $1", f"%{word}%"))

    async def _call(self, tool: str, **arguments: Any) -> Any:
        return (await self._client.call_tool(tool, arguments)).structured_content

    async def _form(self, act: str, **fields: str) -> None:
        """Send a form of the dashboard."""
        fields["key"] = f"screenshots-{next(self._keys)}"
        async with httpx2.AsyncClient(trust_env=False) as http:
            answer = await http.post(f"{self._site}/acts/{act}", data=fields, headers={"Origin": self._site})
        if answer.status_code != 303:
            raise RuntimeError(f"the form {act} is answered with {answer.status_code}")

    async def _pass(self, days: float) -> None:
        """Let days pass: every time that is stored moves back."""
        await self._database.execute("select pg_temp.let_time_pass($1)", timedelta(days=days))


def consolidate(prompt: str) -> str:
    """Return what the model learns from the episodes of a prompt, as its answer."""
    facts, updates = [], []
    for episode, text in re.findall(r'<episode id="([^"]+)"[^>]*>\n<episode_content>(.*?)</episode_content>', prompt):
        if text in LEARNED:
            facts.append({**LEARNED[text], "importance": 5, "scope": "global", "evidence": [episode]})
        if text in CORRECTED:
            key, content = CORRECTED[text]
            known = re.search(rf"^- (\S+) {re.escape(key)}", prompt, re.MULTILINE)
            update = {
                "target_id": known[1] if known else None,
                "content": content,
                "permanence": "standard",
                "importance": 8,
            }
            updates.append({**update, "subject": "Ada", "predicate": "diet", "evidence": [episode]})
    answer = {"new_facts": facts, "updated_facts": updates, "new_rules": [], "confirmations": []}
    return f"```json\n{json.dumps(answer)}\n```"


if __name__ == "__main__":
    sys.stdout.write(consolidate(sys.stdin.read()))
