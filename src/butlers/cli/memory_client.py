"""How `butlers memory` reaches the memory: the butler opened, a tool's arguments checked, the tool called."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from butlers.errors import ConfigurationFault, InvalidInput

if TYPE_CHECKING:
    from butlers.caller import Caller
    from butlers.contract import Tool
    from butlers.modules.memory.runtime import Memory

Key = Annotated[str | None, typer.Option(help="The same key again carries the request out once.")]
Tenant = Annotated[str | None, typer.Option(help="Whose memories; the configured tenant by default.")]


@dataclass(frozen=True, slots=True)
class Opened:
    """A running memory, and who uses it."""

    memory: "Memory"
    caller: "Caller"


@asynccontextmanager
async def opened(folder: Path, tenant: str | None) -> AsyncIterator[Opened]:
    """The memory of the butler in that folder, for as long as the block lasts."""
    from butlers import app
    from butlers.environment import read_environment

    async with app.open_butler(app.load_configuration(folder), read_environment()) as butler:
        module = next((each for each in butler.modules if each.name == "memory"), None)
        if module is None:
            raise ConfigurationFault(
                f"the butler {butler.config.butler.name} has no memory",
                hint="Set `enabled = true` under [modules.memory] in its butler.toml.",
            )
        yield Opened(module.state, butler.caller(tenant))


async def call(name: str, folder: Path, tenant: str | None, as_json: bool, /, **arguments: Any) -> None:
    """Call the tool of that name and show what it answers; arguments that are None are left out."""
    from butlers.cli import entity_views, memory_views

    views = {**memory_views.VIEWS, **entity_views.VIEWS}
    memory_views.show(await _answer(name, folder, tenant, arguments), views[name], as_json=as_json)


async def _answer(name: str, folder: Path, tenant: str | None, arguments: Mapping[str, Any]) -> Any:
    from butlers.modules.memory.tools import TOOLS

    tool = next(each for each in TOOLS if each.name == name)
    said = accepted(tool, {word: value for word, value in arguments.items() if value is not None})
    async with opened(folder, tenant) as reached:
        if "butler" in get_type_hints(tool.function):
            said.setdefault("butler", reached.memory.butler)
        return await tool.function(reached.memory, reached.caller, **said)


def several(values: list[str] | None) -> list[str] | str | None:
    """The words of an option that takes many: repeated, separated by commas, or as a JSON list."""
    if values is not None and len(values) == 1 and values[0].lstrip().startswith("["):
        return values[0]
    return [word.strip() for value in values or () for word in value.split(",") if word.strip()] or None


def accepted(tool: "Tool", arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as the tool takes them, checked as they are for an agent."""
    import pydantic

    hints = get_type_hints(tool.function, include_extras=True)
    fields: dict[str, Any] = {name: (hints[name], ...) for name in arguments}
    try:
        return dict(pydantic.create_model(tool.name, **fields)(**arguments))
    except pydantic.ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        complaints = (f"{str(detail['loc'][0]).replace('_', '-')}: {detail['msg']}" for detail in details)
        raise InvalidInput("; ".join(complaints), hint="--help says what each word takes.") from None
