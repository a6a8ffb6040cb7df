"""The rules of memory as a plain book: what one tenant has, and what each call must come to; no database."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

OK, NOT_FOUND, CONFLICT, INVALID, EXISTS = "ok", "not_found", "conflict", "invalid_input", "already_exists"


@dataclass
class Fact:
    """Something known under a key: its scope, whom or what it is about, its predicate."""

    key: tuple[str, str, str]
    content: str
    state: str = "active"
    supersedes: str | None = None
    entity: str | None = None
    reads: int = 0


@dataclass
class Rule:
    """A way of working, and how it did."""

    content: str
    state: str = "active"
    helped: int = 0
    harmed: int = 0
    score: float = 0.0
    maturity: str = "candidate"
    awaits_inversion: bool = False
    reads: int = 0


@dataclass
class Episode:
    """Something that happened."""

    content: str
    state: str = "active"
    reads: int = 0


@dataclass
class Entity:
    """Somebody, under names."""

    name: str
    aliases: list[str]
    merged_into: str | None = None


Memory = Fact | Rule | Episode


@dataclass
class Ledger:
    """All of one tenant. Each method says what a call must come to, and notes what it changes."""

    facts: dict[str, Fact] = field(default_factory=dict)
    rules: dict[str, Rule] = field(default_factory=dict)
    episodes: dict[str, Episode] = field(default_factory=dict)
    entities: dict[str, Entity] = field(default_factory=dict)
    events: Counter[tuple[str, str]] = field(default_factory=Counter)
    links: set[tuple[str, str]] = field(default_factory=set)

    def found(self, kind: str, memory_id: str) -> Memory | None:
        """A memory of this tenant; another's is none."""
        books: dict[str, dict[str, Any]] = {"fact": self.facts, "rule": self.rules, "episode": self.episodes}
        memory: Memory | None = books[kind].get(memory_id)
        return memory

    def happened(self, event: str, about: str) -> None:
        """One more line in the trail."""
        self.events[event, about] += 1

    def live(self, *kinds: str) -> dict[str, Memory]:
        """What can be found now."""
        books: dict[str, dict[str, Any]] = {"fact": self.facts, "rule": self.rules, "episode": self.episodes}
        return {each: it for kind in kinds for each, it in books[kind].items() if it.state == "active"}

    def about(self, entity: str | None) -> str:
        """Whether facts may be stored about that entity."""
        if entity is None:
            return OK
        if entity not in self.entities:
            return NOT_FOUND
        return CONFLICT if self.entities[entity].merged_into else OK

    def store_fact(self, new_id: str, key: tuple[str, str, str], content: str, entity: str | None) -> dict[str, Any]:
        """One live fact a key: the same again confirms it, another replaces it."""
        held = next((each for each, fact in self.facts.items() if fact.key == key and fact.state == "active"), None)
        if held is not None and self.facts[held].content == content:
            self.happened("fact_confirmed", held)
            return {"id": held, "confirmed_existing": True}
        self.facts[new_id] = Fact(key, content, supersedes=held, entity=entity)
        self.happened("fact_created", new_id)
        if held is None:
            return {"id": new_id}
        self._supersede(new_id, held)
        return {"id": new_id, "superseded_id": held}

    def _supersede(self, kept: str, gone: str) -> None:
        self.facts[gone].state = "superseded"
        self.links.add((kept, gone))
        self.happened("fact_superseded", gone)

    def store_rule(self, new_id: str, content: str) -> None:
        """A new rule is a candidate."""
        self.rules[new_id] = Rule(content)
        self.happened("rule_created", new_id)

    def store_episode(self, new_id: str, content: str) -> None:
        """A new episode waits."""
        self.episodes[new_id] = Episode(content)
        self.happened("episode_created", new_id)

    def get(self, kind: str, memory_id: str) -> str:
        """Whatever its state, and noted as read."""
        memory = self.found(kind, memory_id)
        if memory is None:
            return NOT_FOUND
        memory.reads += 1
        return OK

    def look(self, kind: str, memory_id: str) -> str:
        """Its links or its history: whatever its state, and not noted."""
        return OK if self.found(kind, memory_id) else NOT_FOUND

    def confirm(self, kind: str, memory_id: str) -> str:
        """Only what is believed can be confirmed, and episodes are not a matter of belief."""
        if kind == "episode":
            return INVALID
        return self._change(kind, memory_id, "confirmed", {"active"}, None)

    def forget(self, kind: str, memory_id: str) -> str:
        """Only what is live is forgotten; forgetting twice is forgetting once."""
        memory = self.found(kind, memory_id)
        if memory is not None and memory.state == "forgotten":
            return OK
        return self._change(kind, memory_id, "forgotten", {"active"}, "forgotten")

    def restore(self, kind: str, memory_id: str) -> str:
        """Only what was forgotten comes back, and a fact only where its key is free."""
        memory = self.found(kind, memory_id)
        if isinstance(memory, Fact) and any(
            each.key == memory.key and each.state == "active" for each in self.facts.values()
        ):
            return CONFLICT
        return self._change(kind, memory_id, "restored", {"forgotten"}, "active")

    def _change(self, kind: str, memory_id: str, event: str, needed: set[str], state: str | None) -> str:
        memory = self.found(kind, memory_id)
        if memory is None:
            return NOT_FOUND
        if memory.state not in needed:
            return CONFLICT
        memory.state = state or memory.state
        self.happened(f"{kind}_{event}", memory_id)
        return OK

    def mark(self, rule_id: str, *, helpful: bool) -> str:
        """Five successes make a rule established, a harm weighs four, and three of them make it a warning to be."""
        rule = self.rules.get(rule_id)
        if rule is None:
            return NOT_FOUND
        if rule.state != "active":
            return CONFLICT
        rule.helped, rule.harmed = rule.helped + helpful, rule.harmed + (not helpful)
        applied = rule.helped + rule.harmed
        rule.score = rule.helped / applied if helpful else rule.helped / (rule.helped + 4 * rule.harmed + 0.01)
        if helpful and rule.helped >= 5 and rule.score >= 0.6 and not rule.awaits_inversion:
            rule.maturity = "established"
        if not helpful and rule.score < 0.6:
            rule.maturity = "candidate"
        rule.awaits_inversion |= not helpful and rule.harmed >= 3 and rule.score < 0.3
        self.happened(f"rule_marked_{'helpful' if helpful else 'harmful'}", rule_id)
        return OK

    def recalled(self) -> set[str]:
        """Every live fact and every rule that is not about to become a warning, noted as read."""
        found = {each: it for each, it in self.live("fact", "rule").items() if not self.is_to_be_a_warning(each)}
        for memory in found.values():
            memory.reads += 1
        return set(found)

    def is_to_be_a_warning(self, memory_id: str) -> bool:
        """Whether this is a rule that did so much harm that nobody is told of it until it is turned around."""
        return memory_id in self.rules and self.rules[memory_id].awaits_inversion

    def retract(self, episode_id: str) -> str:
        """What came from an episode, which here is nothing but itself."""
        if episode_id in self.episodes and self.episodes[episode_id].state == "active":
            self.forget("episode", episode_id)
        return OK

    def clean(self) -> int:
        """Episodes whose time is over go, those that were forgotten among them."""
        over = [each for each, episode in self.episodes.items() if episode.state == "forgotten"]
        for each in over:
            del self.episodes[each]
            self.happened("episode_expired", each)
        return len(over)

    def named(self, name: str) -> str | None:
        """Who has that name, whatever its case."""
        return next((each for each, it in self.living().items() if it.name.lower() == name.lower()), None)

    def living(self) -> dict[str, Entity]:
        """Those that were not merged away."""
        return {each: it for each, it in self.entities.items() if it.merged_into is None}

    def create_entity(self, new_id: str, name: str, aliases: list[str]) -> None:
        """Somebody new."""
        self.entities[new_id] = Entity(name, _distinct(aliases, name))
        self.happened("entity_created", new_id)

    def rename(self, entity_id: str, name: str, aliases: list[str]) -> str:
        """Another name, where nobody else has it."""
        if (refused := self.about(entity_id)) != OK:
            return refused
        if self.named(name) not in {None, entity_id}:
            return EXISTS
        entity = self.entities[entity_id]
        entity.name, entity.aliases = name, _distinct(aliases, name)
        self.happened("entity_updated", entity_id)
        return OK

    def merge(self, source_id: str, target_id: str) -> str:
        """The target has everything of both; where both knew something, its own."""
        if source_id == target_id:
            return INVALID
        refused = [self.about(each) for each in (source_id, target_id)]
        if set(refused) != {OK}:
            return next(each for each in refused if each != OK)
        source, target = self.entities[source_id], self.entities[target_id]
        for gone_id, gone in [each for each in self.facts.items() if each[1].entity == source_id]:
            moved = (gone.key[0], target_id, gone.key[2])
            kept = next((each for each, it in self.facts.items() if it.key == moved and it.state == "active"), None)
            if gone.state == "active" and kept is not None:
                self._supersede(kept, gone_id)
                self.facts[kept].supersedes = self.facts[kept].supersedes or gone_id
            gone.entity, gone.key = target_id, moved
        target.aliases = _distinct([*target.aliases, source.name, *source.aliases], target.name)
        source.merged_into = target_id
        self.happened("entity_merge", target_id)
        return OK

    def counts(self) -> dict[str, dict[str, int]]:
        """What memory_stats must say."""
        facts, rules = Counter(each.state for each in self.facts.values()), self.live("rule").values()
        kinds = Counter(each.maturity for each in self.rules.values() if each.state == "active")
        return {
            "episodes": {
                "total": len(self.episodes),
                "unconsolidated": len(self.live("episode")),
                "expired": len(self.episodes) - len(self.live("episode")),
            },
            "facts": {
                "total": len(self.facts),
                "active": facts["active"],
                "superseded": facts["superseded"],
                "retracted": facts["forgotten"],
            },
            "rules": {
                "total": len(self.rules),
                "candidate": kinds["candidate"],
                "established": kinds["established"],
                "forgotten": len(self.rules) - len(rules),
                "needs_inversion": sum(each.awaits_inversion for each in rules if isinstance(each, Rule)),
                "successes": sum(each.helped for each in rules if isinstance(each, Rule)),
                "harms": sum(each.harmed for each in rules if isinstance(each, Rule)),
            },
        }


def _distinct(names: list[str], besides: str) -> list[str]:
    known = {besides.lower()}
    return [name for name in names if not (name.lower() in known or known.add(name.lower()))]  # type: ignore[func-returns-value]
