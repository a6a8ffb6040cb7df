"""Loads the modules a butler's configuration turns on, each after those it needs."""

import logging
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

from butlers.config import ModuleConfig
from butlers.contract import Module, Spawner
from butlers.db import Database
from butlers.errors import ConfigurationFault, Fault, Unavailable

log = logging.getLogger("butlers.modules")


def modules_in_order(
    available: Mapping[str, type[Module]], configured: Mapping[str, ModuleConfig]
) -> list[type[Module]]:
    """The enabled modules, dependencies first."""
    enabled = {name: available[name] for name, config in configured.items() if config.enabled}
    for name, module in enabled.items():
        if missing := [needed for needed in module.dependencies if needed not in enabled]:
            raise ConfigurationFault(
                f"modules.{name} needs modules.{missing[0]}", hint=f"Set modules.{missing[0]}.enabled = true."
            )
    try:
        order = TopologicalSorter({name: module.dependencies for name, module in enabled.items()}).static_order()
        return [enabled[name] for name in order]
    except CycleError as error:
        raise ConfigurationFault(f"modules need one another in a circle: {' → '.join(error.args[1])}") from None


async def start_modules(
    modules: list[type[Module]],
    configured: Mapping[str, ModuleConfig],
    database: Database,
    butler: str,
    spawner: Spawner,
) -> list[Module]:
    """Started modules. One that fails stops the butler, unless its configuration calls it optional."""
    started: list[Module] = []
    try:
        for kind in modules:
            if module := await _start_module(kind, configured[kind.name], database, butler, spawner, started):
                started.append(module)
    except BaseException:
        await stop_modules(started)
        raise
    return started


async def _start_module(
    kind: type[Module],
    config: ModuleConfig,
    database: Database,
    butler: str,
    spawner: Spawner,
    before: list[Module],
) -> Module | None:
    module = kind()
    try:
        _check_dependencies(kind, before)
        await module.on_startup(config, database, butler, spawner)
    except Exception as error:
        await _stop_module(module)
        if not config.optional:
            reason = error.message if isinstance(error, Fault) else type(error).__name__
            raise Unavailable(
                f"the module {kind.name} did not start: {reason}",
                hint=f"Mend it, or set modules.{kind.name}.optional = true to run without it.",
            ) from error
        log.warning("module left out", extra={"part": kind.name}, exc_info=error)
        return None
    return module


def _check_dependencies(kind: type[Module], before: list[Module]) -> None:
    if absent := set(kind.dependencies) - {other.name for other in before}:
        raise Unavailable(f"it needs {', '.join(sorted(absent))}, which did not start")


async def stop_modules(modules: list[Module]) -> None:
    """Stop them all, in the order opposite to their start, whatever one of them does."""
    for module in reversed(modules):
        await _stop_module(module)


async def _stop_module(module: Module) -> None:
    try:
        await module.on_shutdown()
    except Exception as error:
        log.warning("module did not stop cleanly", extra={"part": module.name}, exc_info=error)
