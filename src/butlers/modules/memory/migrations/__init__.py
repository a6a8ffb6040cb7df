"""The memory module's tables, on the Alembic branch `memory`."""

from pathlib import Path

from butlers.migrate import Branch

MEMORY = Branch(
    label="memory",
    location=Path(__file__).parent,
    head="mem_006",
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
        "function memory_backlog()": "execute",
    },
)
