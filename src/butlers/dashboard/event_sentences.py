"""Events of the audit trail in words: the verb of each event, and the name of its memory."""

from collections.abc import Mapping
from typing import Any

Record = Mapping[str, Any]

_VERBS = {
    "fact_created": "stored",
    "rule_created": "stored",
    "episode_created": "stored",
    "entity_created": "created",
    "entity_updated": "changed",
    "entity_merge": "merged another entity into",
    "fact_superseded": "replaced",
    "fact_fading": "marked as fading",
    "rule_fading": "marked as fading",
    "fact_recovered": "marked as live again",
    "rule_recovered": "marked as live again",
    "fact_expired": "expired",
    "fact_forgotten": "forgot",
    "rule_forgotten": "forgot",
    "episode_forgotten": "forgot",
    "rule_marked_helpful": "marked as helpful",
    "rule_marked_harmful": "marked as harmful",
    "fact_confirmation_withdrawn": "took back a confirmation of",
    "rule_confirmation_withdrawn": "took back a confirmation of",
    "rule_inverted": "turned into a warning",
    "rule_inversion_reverted": "turned back into a rule",
    "episode_consolidation_failed": "could not consolidate",
    "episode_dead_lettered": "dead-lettered",
    "episode_expired": "deleted, because it expired,",
    "episode_crowded_out": "deleted, because there were too many,",
    "embeddings_renewed": "embedded again",
    "memory_imported": "imported",
    "tenant_erased": "erased",
    "browser_session_ended": "ended",
    "job_requested": "started",
}
_THINGS = {
    "tenant": "everything in this tenant",
    "import": "a file",
    "proposal": "a proposal of consolidation",
    "browser_session": "a browser session",
    "embedding_version": "memories of another model",
}


def verb_for(row: Record) -> str:
    """Return what the actor did. An event without a verb of its own is spelled out: fact_looked_at is looked at."""
    event_type: str = row["event_type"]
    if event_type in _VERBS:
        return _VERBS[event_type]
    return event_type.removeprefix(f"{row['entity_type']}_").replace("_", " ")


def object_name(row: Record) -> str:
    """Return the present name of the memory; a deleted one has its type for a name."""
    if row["name"] is not None:
        return str(row["name"])
    kind = row["entity_type"] or "memory"
    if kind == "job":
        return f"the job {row['payload'].get('job', '')}"
    if kind in _THINGS:
        return _THINGS[kind]
    several = row["payload"].get("episode_ids")
    if several:
        return f"{len(several)} episodes" if len(several) > 1 else "a deleted episode"
    return f"a deleted {kind}"
