"""Access to a butler's memory: open it, validate arguments, call a tool and show its answer."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from butlers.cli.output import AsJson, command, show
from butlers.cli.wording import option_name
from butlers.errors import ConfigurationFault, InvalidInput

if TYPE_CHECKING:
    from butlers.caller import Caller
    from butlers.contract import Tool
    from butlers.modules.memory.runtime import Memory

Key = Annotated[str | None, typer.Option(help="Repeat a request with the same key to carry it out only once.")]
Tenant = Annotated[str | None, typer.Option(help="The tenant. Default: the configured one.")]


@asynccontextmanager
async def open_memory(folder: Path, tenant: str | None) -> "AsyncIterator[tuple[Memory, Caller]]":
    """Open the memory of the butler in a folder. Raises a configuration fault when the butler has none."""
    from butlers import app
    from butlers.cli.model import await_model
    from butlers.environment import read_environment

    environment = read_environment()
    async with app.open_butler(app.load_configuration(folder), environment) as butler:
        module = next((each for each in butler.modules if each.name == "memory"), None)
        if module is None:
            raise ConfigurationFault(
                f"the butler {butler.config.butler.name} has no memory",
                hint="Set `enabled = true` under [modules.memory] in its butler.toml.",
            )
        if module.state.config.embedding.onnx_folder is None:
            await await_model(environment.home)
        yield module.state, butler.caller(tenant)


def tool_command(tool: str, app: typer.Typer | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command that calls a tool with the declared arguments and has --tenant and --json; add it to the app."""

    def decorate(declared: Callable[..., None]) -> Callable[..., None]:
        async def run(folder: Path, tenant: Tenant = None, as_json: AsJson = False, **arguments: Any) -> None:
            await call_tool(tool, folder, tenant, as_json, arguments)

        _, *shared, _ = signature(run).parameters.values()
        shown = signature(declared)
        run.__signature__ = shown.replace(parameters=[*shown.parameters.values(), *shared])  # type: ignore[attr-defined]
        made = command(wraps(declared)(run))
        return app.command()(made) if app else made

    return decorate


async def call_tool(name: str, folder: Path, tenant: str | None, as_json: bool, arguments: Mapping[str, Any]) -> None:
    """Call a tool and show its answer; arguments that are None are left out."""
    from butlers.cli import entity_views, memory_views, receipt_views, run_views
    from butlers.contract import current_notes
    from butlers.modules.memory.tools import TOOLS

    tool = next(each for each in TOOLS if each.name == name)
    valid = validate_arguments(tool, arguments)
    async with open_memory(folder, tenant) as (memory, caller):
        if "butler" in get_type_hints(tool.function):
            valid.setdefault("butler", memory.butler)
        notes: list[str] = []
        current_notes.set(notes)
        answer = await tool.function(memory, caller, **valid)
    for note in notes:
        typer.echo(note, err=True)
    views = {**memory_views.VIEWS, **entity_views.VIEWS, **receipt_views.VIEWS, **run_views.VIEWS}
    show(answer, views[name], as_json=as_json)


def split_values(values: list[str] | None) -> list[str] | str | None:
    """Return the values of an option that is repeated or has commas; a JSON list is returned as it is."""
    if values is not None and len(values) == 1 and values[0].lstrip().startswith("["):
        return values[0]
    return [word.strip() for value in values or () for word in value.split(",") if word.strip()] or None


def validate_arguments(tool: "Tool", arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments as the tool takes them, validated as for an agent. Raises invalid input."""
    import pydantic

    split = {name: split_values(value) if isinstance(value, list) else value for name, value in arguments.items()}
    given = {name: value for name, value in split.items() if value is not None}
    hints = get_type_hints(tool.function, include_extras=True)
    fields: dict[str, Any] = {name: (hints[name], ...) for name in given}
    try:
        return dict(pydantic.create_model(tool.name, **fields)(**given))
    except pydantic.ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        problems = (f"{option_name(str(detail['loc'][0]))}: {detail['msg']}" for detail in details)
        raise InvalidInput("; ".join(problems), hint="See --help for what each argument accepts.") from None
