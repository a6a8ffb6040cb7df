"""The `butlers memory store-batch` command."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from butlers.cli.memory_client import Key, Tenant, open_memory
from butlers.cli.memory_export import open_input
from butlers.cli.output import AsJson, Folder, command, show
from butlers.cli.progress import progress
from butlers.cli.transfer_speed import transfer_speed
from butlers.errors import Fault, InvalidInput

if TYPE_CHECKING:
    from butlers.modules.memory.tools.batch import Item

_ITEM = re.compile(r"^items\.(\d+): ")


@command
async def store_batch(
    folder: Folder,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON Lines, one memory a line with its type; `-` is stdin.")
    ],
    idempotency_key: Key = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Store episodes, facts and rules from a file. Every line is checked first.

    A hundred lines are stored at a time: all of them, or none if one is refused. A line has the arguments of its tool
    and a type, such as {"type": "rule", "content": "Ask before you send an email"}.

    Example: `butlers memory store-batch . memories.jsonl --idempotency-key monday`
    """
    from butlers.cli import memory_views
    from butlers.modules.memory.operations.batch_writing import MAX_ITEMS
    from butlers.modules.memory.tools.batch import memory_store_batch

    with open_input(file) as source:
        lines = list(_read_items(source))
    if not lines:
        raise InvalidInput(f"{file} has no memories", hint="Write one JSON object a line, each with its type.")
    started, results = time.monotonic(), []
    async with open_memory(folder, tenant) as (memory, caller):
        with progress("storing") as update:
            for start in range(0, len(lines), MAX_ITEMS):
                part = lines[start : start + MAX_ITEMS]
                key = f"{idempotency_key}:{start}" if idempotency_key else None
                with _naming_line(part, start):
                    answer = await memory_store_batch.function(
                        memory, caller, items=[item for _, item in part], idempotency_key=key
                    )
                results += answer["results"]
                update(len(results), len(lines))
    stored = {"tenant": caller.tenant, "stored": len(results), "results": results}
    show(stored | transfer_speed(len(results), started), memory_views.stored_batch, as_json=as_json)


COMMANDS = (store_batch,)


def _read_items(source: BinaryIO) -> "Iterator[tuple[int, Item]]":
    """Yield the number and the item of each line; blank lines are left out. Raises `InvalidInput`."""
    import pydantic

    from butlers.modules.memory.tools.batch import Item

    adapter: Any = pydantic.TypeAdapter(Item)
    for number, line in enumerate(source, start=1):
        if not line.strip():
            continue
        try:
            yield number, adapter.validate_json(line)
        except pydantic.ValidationError as error:
            detail = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in detail["loc"][1:])
            problem = f"{where}: {detail['msg']}" if where else detail["msg"]
            raise InvalidInput(f"line {number}: {problem}", hint="Nothing was stored. Fix that line.") from None


@contextmanager
def _naming_line(part: "Sequence[tuple[int, Item]]", stored: int) -> Iterator[None]:
    """Name the line instead of the item in a fault, and say how many memories are stored."""
    try:
        yield
    except Fault as fault:
        fault.message = _ITEM.sub(lambda found: f"line {part[int(found[1])][0]}: ", fault.message)
        before = f"{stored} memories before line {part[0][0]} are stored." if stored else "Nothing was stored."
        fault.hint = f"{before} {fault.hint}".rstrip()
        raise
