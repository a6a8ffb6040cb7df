"""Traits of a database that decide whether a butler can work in it: encoding, letters, extensions."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncpg

from butlers.db import PlainConnection
from butlers.errors import ConfigurationFault
from butlers.migrate import Branch, quote_identifier, refuse_old_extension

_ENCODING = "UTF8"
_BUILTIN_LOCALE_VERSION = 17
_TRAITS = """
    select d.datname::text as name, pg_encoding_to_char(d.encoding)::text as encoding,
           to_regclass('public.alembic_version') is null as is_new,
           d.datcollversion as collation_version, pg_database_collation_actual_version(d.oid) as actual_version,
           (select coalesce(jsonb_object_agg(extname, extversion), '{}') from pg_extension)::text as extensions
      from pg_database d
     where d.datname = current_database()
"""


@dataclass(frozen=True, slots=True)
class DatabaseTraits:
    """What decides whether a butler can work in a database."""

    name: str
    major: int
    encoding: str
    has_case: bool
    """Whether it knows upper and lower case outside ASCII."""
    is_new: bool
    """Whether no butler has migrated it yet."""
    extensions: Mapping[str, str]
    collation_change: tuple[str, str] | None
    """The version of the collation when the database was made and the server's, if they differ."""


@dataclass(frozen=True, slots=True)
class Shortcoming:
    """Something that works less well than it could, and what to do about it."""

    found: str
    fix: str


async def read_traits(connection: PlainConnection) -> DatabaseTraits:
    """Return the traits of the connected database; every role may read them."""
    [row] = await connection.fetch(_TRAITS)
    recorded, actual = row["collation_version"], row["actual_version"]
    return DatabaseTraits(
        name=row["name"],
        major=connection.get_server_version().major,
        encoding=row["encoding"],
        has_case=row["encoding"] == _ENCODING and await _has_case(connection),
        is_new=row["is_new"],
        extensions=json.loads(row["extensions"]),
        collation_change=(recorded, actual) if recorded and actual and recorded != actual else None,
    )


async def _has_case(connection: PlainConnection) -> bool:
    """Return whether the database knows the case of letters outside ASCII: a locale's name would not tell."""
    try:
        return bool(await connection.fetchval("select lower('ЖÖ') = 'жö'"))
    except asyncpg.PostgresError:
        return False


def refuse_unsuitable(traits: DatabaseTraits, branches: Sequence[Branch]) -> None:
    """Raise `ConfigurationFault` or `MigrationFault` for a database that a butler can't work in.

    One that does not know the case of all letters is refused while it is new: later, there are memories in it.
    """
    if traits.encoding != _ENCODING:
        raise ConfigurationFault(
            f"the database {traits.name} has the encoding {traits.encoding}, and memories need {_ENCODING}",
            hint=f"{_creation(traits)} A backup of the old one can be restored there.",
        )
    if traits.is_new and not traits.has_case:
        raise ConfigurationFault(
            f"the database {traits.name} knows upper and lower case of ASCII letters only", hint=_creation(traits)
        )
    for branch in branches:
        for extension, minimum in branch.extensions.items():
            # The migrations create a missing one.
            if version := traits.extensions.get(extension):
                refuse_old_extension(extension, version, minimum)


def shortcomings(traits: DatabaseTraits) -> list[Shortcoming]:
    """Return what works less well in this database, the worst first."""
    found = []
    if traits.collation_change:
        old, new = traits.collation_change
        name = quote_identifier(traits.name)
        found.append(
            Shortcoming(
                f"its collation was {old} and is {new}: indexes on text may be wrong",
                f"Run: REINDEX DATABASE {name}; ALTER DATABASE {name} REFRESH COLLATION VERSION;",
            )
        )
    if not traits.has_case:
        found.append(
            Shortcoming(
                "it knows upper and lower case of ASCII letters only: names such as ЖЕНЯ and женя are two",
                f"{_creation(traits)} Restore a backup there.",
            )
        )
    return found


def _creation(traits: DatabaseTraits) -> str:
    """Return the statement that creates a suitable database, as a sentence."""
    builtin = "LOCALE 'C' LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C.UTF-8'"
    locale = builtin if traits.major >= _BUILTIN_LOCALE_VERSION else "LOCALE 'C.UTF-8'"
    return f"Create another one: CREATE DATABASE … TEMPLATE template0 ENCODING '{_ENCODING}' {locale};"
