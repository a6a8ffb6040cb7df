"""A reference model of one tenant's memory, without a database: the expected result of each call."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

OK, NOT_FOUND, CONFLICT, INVALID, EXISTS = "ok", "not_found", "conflict", "invalid_input", "already_exists"


@dataclass
class Fact:
    """A fact; its key is scope, subject and predicate."""

    key: tuple[str, str, str]
    content: str
    state: str = "active"
    supersedes: str | None = None
    entity: str | None = None
    reads: int = 0


@dataclass
class Rule:
    """A rule and its marks."""

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
    """An episode."""

    content: str
    state: str = "active"
    reads: int = 0


@dataclass
class Entity:
    """An entity and its names."""

    name: str
    aliases: list[str]
    merged_into: str | None = None


Memory = Fact | Rule | Episode


@dataclass
class MemoryModel:
    """The memory of one tenant. Each method returns the expected result of a call and applies its changes."""

    facts: dict[str, Fact] = field(default_factory=dict)
    rules: dict[str, Rule] = field(default_factory=dict)
    episodes: dict[str, Episode] = field(default_factory=dict)
    entities: dict[str, Entity] = field(default_factory=dict)
    events: Counter[tuple[str, str]] = field(default_factory=Counter)
    links: set[tuple[str, str]] = field(default_factory=set)

    def _by_kind(self, kind: str) -> dict[str, Any]:
        memories: dict[str, dict[str, Any]] = {"fact": self.facts, "rule": self.rules, "episode": self.episodes}
        return memories[kind]

    def find(self, kind: str, memory_id: str) -> Memory | None:
        """Return a memory of this tenant."""
        return self._by_kind(kind).get(memory_id)

    def record(self, event: str, memory_id: str) -> None:
        """Add an event to the history."""
        self.events[event, memory_id] += 1

    def live(self, *kinds: str) -> dict[str, Memory]:
        """Return the live memories of these kinds."""
        return {key: it for kind in kinds for key, it in self._by_kind(kind).items() if it.state == "active"}

    def check_entity(self, entity: str | None) -> str:
        """Return the result of storing a fact about the entity."""
        if entity is None:
            return OK
        if entity not in self.entities:
            return NOT_FOUND
        return CONFLICT if self.entities[entity].merged_into else OK

    def store_fact(self, new_id: str, key: tuple[str, str, str], content: str, entity: str | None) -> dict[str, Any]:
        """Store a fact: the same content confirms the live fact of that key, another supersedes it."""
        current = next(
            (each for each, fact in self.facts.items() if fact.key == key and fact.state == "active"), None
        )
        if current is not None and self.facts[current].content == content:
            self.record("fact_confirmed", current)
            return {"id": current, "confirmed_existing": True}
        self.facts[new_id] = Fact(key, content, supersedes=current, entity=entity)
        self.record("fact_created", new_id)
        if current is None:
            return {"id": new_id}
        self._supersede(new_id, current)
        return {"id": new_id, "superseded_id": current}

    def _supersede(self, kept: str, gone: str) -> None:
        self.facts[gone].state = "superseded"
        self.links.add((kept, gone))
        self.record("fact_superseded", gone)

    def store_rule(self, new_id: str, content: str) -> None:
        """Store a rule; it is a candidate."""
        self.rules[new_id] = Rule(content)
        self.record("rule_created", new_id)

    def store_episode(self, new_id: str, content: str) -> None:
        """Store an episode."""
        self.episodes[new_id] = Episode(content)
        self.record("episode_created", new_id)

    def get(self, kind: str, memory_id: str) -> str:
        """Get a memory in any state; it counts as a read."""
        memory = self.find(kind, memory_id)
        if memory is None:
            return NOT_FOUND
        memory.reads += 1
        return OK

    def inspect(self, kind: str, memory_id: str) -> str:
        """Get the links or the history of a memory in any state; it does not count as a read."""
        return OK if self.find(kind, memory_id) else NOT_FOUND

    def confirm(self, kind: str, memory_id: str) -> str:
        """Confirm a live fact or rule; an episode can't be confirmed."""
        if kind == "episode":
            return INVALID
        return self._change(kind, memory_id, "confirmed", {"active"}, None)

    def forget(self, kind: str, memory_id: str) -> str:
        """Forget a live memory; forgetting it again changes nothing."""
        memory = self.find(kind, memory_id)
        if memory is not None and memory.state == "forgotten":
            return OK
        return self._change(kind, memory_id, "forgotten", {"active"}, "forgotten")

    def restore(self, kind: str, memory_id: str) -> str:
        """Restore a forgotten memory; a fact only if no live fact has its key."""
        memory = self.find(kind, memory_id)
        if isinstance(memory, Fact) and any(
            each.key == memory.key and each.state == "active" for each in self.facts.values()
        ):
            return CONFLICT
        return self._change(kind, memory_id, "restored", {"forgotten"}, "active")

    def _change(self, kind: str, memory_id: str, event: str, allowed: set[str], state: str | None) -> str:
        memory = self.find(kind, memory_id)
        if memory is None:
            return NOT_FOUND
        if memory.state not in allowed:
            return CONFLICT
        memory.state = state or memory.state
        self.record(f"{kind}_{event}", memory_id)
        return OK

    def mark(self, rule_id: str, *, helpful: bool) -> str:
        """Mark a rule: five successes establish it, a harm weighs four, three harms make it await inversion."""
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
        self.record(f"rule_marked_{'helpful' if helpful else 'harmful'}", rule_id)
        return OK

    def recall(self) -> set[str]:
        """Recall every live fact and every rule that does not await inversion; each counts as a read."""
        found = {each: it for each, it in self.live("fact", "rule").items() if not self.awaits_inversion(each)}
        for memory in found.values():
            memory.reads += 1
        return set(found)

    def awaits_inversion(self, memory_id: str) -> bool:
        """Whether this is a harmful rule that is hidden until it is inverted."""
        return memory_id in self.rules and self.rules[memory_id].awaits_inversion

    def retract(self, episode_id: str) -> str:
        """Retract an episode; nothing is derived from it in this model."""
        if episode_id in self.episodes and self.episodes[episode_id].state == "active":
            self.forget("episode", episode_id)
        return OK

    def clean_up(self) -> int:
        """Delete the forgotten episodes and return their number."""
        expired = [each for each, episode in self.episodes.items() if episode.state == "forgotten"]
        for each in expired:
            del self.episodes[each]
            self.record("episode_expired", each)
        return len(expired)

    def find_entity(self, name: str) -> str | None:
        """Return the entity with that name, ignoring case."""
        return next((each for each, it in self.unmerged().items() if it.name.lower() == name.lower()), None)

    def unmerged(self) -> dict[str, Entity]:
        """Return the entities that are not merged into another."""
        return {each: it for each, it in self.entities.items() if it.merged_into is None}

    def create_entity(self, new_id: str, name: str, aliases: list[str]) -> None:
        """Create an entity."""
        self.entities[new_id] = Entity(name, _distinct(aliases, name))
        self.record("entity_created", new_id)

    def rename(self, entity_id: str, name: str, aliases: list[str]) -> str:
        """Rename an entity, unless another one has the name."""
        if (result := self.check_entity(entity_id)) != OK:
            return result
        if self.find_entity(name) not in {None, entity_id}:
            return EXISTS
        entity = self.entities[entity_id]
        entity.name, entity.aliases = name, _distinct(aliases, name)
        self.record("entity_updated", entity_id)
        return OK

    def merge(self, source_id: str, target_id: str) -> str:
        """Merge two entities: the target gets all facts, and its own fact wins a conflict."""
        if source_id == target_id:
            return INVALID
        results = [self.check_entity(each) for each in (source_id, target_id)]
        if set(results) != {OK}:
            return next(each for each in results if each != OK)
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
        self.record("entity_merge", target_id)
        return OK

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the expected answer of memory_stats."""
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


def _distinct(names: list[str], excluded: str) -> list[str]:
    known = {excluded.lower()}
    return [name for name in names if not (name.lower() in known or known.add(name.lower()))]  # type: ignore[func-returns-value]
