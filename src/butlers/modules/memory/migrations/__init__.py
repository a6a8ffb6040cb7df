"""The memory module's tables, on the Alembic branch `memory`."""

from pathlib import Path

from butlers.migrate import Branch

_KEYWORD_ARGUMENTS = "text, text, text[], text[], text[], text[], text[], double precision, bigint, bigint"
_GRAPH_ARGUMENTS = "text, text[], boolean, double precision, bigint, vector, uuid"
_NEAREST_ARGUMENTS = "text, text[], boolean, boolean, double precision, bigint, vector, uuid"
_MATCH_ARGUMENTS = (
    "text, text[], boolean, double precision, bigint, regconfig, text, text[], text[], text[], text[], bigint"
)
_SEARCH_ARGUMENTS = (
    "text, text[], boolean, boolean, boolean, double precision, bigint, vector, uuid, regconfig, text, text[], "
    "text[], text[], text[], bigint, text[], double precision[]"
)
MEMORY = Branch(
    label="memory",
    location=Path(__file__).parent,
    head="mem_013",
    # 0.8 scans an index further until a tenant has enough rows; before it, small tenants missed most of theirs.
    extensions={"vector": "0.8"},
    rights={
        "table episodes": "select, insert, update, delete",
        "table facts": "select, insert, update, delete",
        "table rules": "select, insert, update, delete",
        "table memories": "select",
        "table memory_links": "select, insert, update, delete",
        "table entities": "select, insert, update, delete",
        # Append-only.
        "table memory_events": "select, insert",
        "table rule_applications": "select, insert",
        "table embedding_versions": "select, insert",
        # UPDATE, because a worker locks the rows it takes.
        "table claimable_episodes": "select, update",
        "table consolidation_runs": "select, insert, update, delete",
        "table consolidation_proposals": "select, insert, update, delete",
        "table edit_history": "select, insert, update, delete",
        "table session_receipts": "select, insert, delete",
        "table session_receipt_lines": "select, insert, delete",
        "function memory_backlog()": "execute",
        "function consolidation_groups(bigint)": "execute",
        "function memory_tenants()": "execute",
        "function effective_confidence(double precision, double precision, timestamptz, timestamptz)": "execute",
        "function any_term_query(text)": "execute",
        "function term_query(text)": "execute",
        "function tenant_terms(text, text[])": "execute",
        f"function keyword_candidates({_KEYWORD_ARGUMENTS})": "execute",
        "function terms_query(text[])": "execute",
        f"function nearest_by_graph({_GRAPH_ARGUMENTS})": "execute",
        f"function nearest_memories({_NEAREST_ARGUMENTS})": "execute",
        f"function keyword_matches({_MATCH_ARGUMENTS})": "execute",
        f"function search_candidates({_SEARCH_ARGUMENTS})": "execute",
        "function normalized_name(text)": "execute",
        "function normalized_names(text, text[])": "execute",
        "function name_ngrams(text, text)": "execute",
        "function find_entities_by_name(text, text, bigint)": "execute",
        "function find_entities_by_alias(text, text, bigint)": "execute",
        "function find_entities_by_part(text, text, bigint)": "execute",
        "function find_entities_by_similarity(text, text, bigint)": "execute",
        "function find_entity_twins(bigint, bigint)": "execute",
        "function list_entities_by_name(text, text, text, uuid, boolean, bigint)": "execute",
    },
)
