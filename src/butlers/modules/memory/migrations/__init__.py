"""The memory module's tables, on the Alembic branch `memory`."""

from pathlib import Path

from butlers.migrate import Branch

_WORDS = "text, text[], text[], double precision, bigint, bigint, text[], text[], text[]"
MEMORY = Branch(
    label="memory",
    location=Path(__file__).parent,
    head="mem_013",
    rights={
        "table episodes": "select, insert, update, delete",
        "table facts": "select, insert, update, delete",
        "table rules": "select, insert, update, delete",
        "table memory_links": "select, insert, update, delete",
        "table entities": "select, insert, update, delete",
        # What happened stays as it was written.
        "table memory_events": "select, insert",
        "table rule_applications": "select, insert",
        "table embedding_versions": "select, insert",
        "table consolidation_runs": "select, insert, update, delete",
        "function memory_backlog()": "execute",
        "function consolidation_groups(bigint)": "execute",
        "function memory_tenants()": "execute",
        "function effective_confidence(double precision, double precision, timestamptz, timestamptz)": "execute",
        "function any_word(text)": "execute",
        "function one_word(text)": "execute",
        "function prefixed(text, text[])": "execute",
        f"function fact_words({_WORDS})": "execute",
        f"function rule_words({_WORDS})": "execute",
        f"function episode_words({_WORDS})": "execute",
        "function folded(text)": "execute",
        "function folded_names(text, text[])": "execute",
        "function pieces(text, text)": "execute",
        "function entities_called(text, text, bigint)": "execute",
        "function entities_nicknamed(text, text, bigint)": "execute",
        "function entities_containing(text, text, bigint)": "execute",
        "function entities_alike(text, text, bigint)": "execute",
    },
)
