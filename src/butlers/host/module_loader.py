"""Start and stop of the enabled modules, in the order of their dependencies."""

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
    """Return the enabled modules, dependencies first. Raises `ConfigurationFault` for a missing or circular one."""
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
        raise ConfigurationFault(f"modules depend on each other in a circle: {' → '.join(error.args[1])}") from None


async def start_modules(
    modules: list[type[Module]],
    configured: Mapping[str, ModuleConfig],
    database: Database,
    butler: str,
    spawner: Spawner,
) -> list[Module]:
    """Start the modules. Raises `Unavailable` if one fails that is not optional; optional ones are left out."""
    started: list[Module] = []
    try:
        for module_type in modules:
            await _start_module(module_type, configured[module_type.name], database, butler, spawner, started)
    except BaseException:
        await stop_modules(started)
        raise
    return started


async def _start_module(
    module_type: type[Module],
    config: ModuleConfig,
    database: Database,
    butler: str,
    spawner: Spawner,
    started: list[Module],
) -> None:
    """Start a module and add it to `started`, unless it is optional and fails."""
    module = module_type()
    try:
        _check_dependencies(module_type, started)
        await module.on_startup(config, database, butler, spawner)
        started.append(module)
    except Exception as error:
        await _stop_module(module)
        if not config.optional:
            reason = error.message if isinstance(error, Fault) else type(error).__name__
            raise Unavailable(
                f"the module {module_type.name} did not start: {reason}",
                hint=f"Fix it, or set modules.{module_type.name}.optional = true to run without it.",
            ) from error
        log.warning("module left out", extra={"part": module_type.name}, exc_info=error)


def _check_dependencies(module_type: type[Module], started: list[Module]) -> None:
    if missing := set(module_type.dependencies) - {other.name for other in started}:
        raise Unavailable(f"it needs {', '.join(sorted(missing))}, which did not start")


async def stop_modules(modules: list[Module]) -> None:
    """Stop all modules in reverse order, even if one of them fails."""
    for module in reversed(modules):
        await _stop_module(module)


async def _stop_module(module: Module) -> None:
    try:
        await module.on_shutdown()
    except Exception as error:
        log.warning("module did not stop cleanly", extra={"part": module.name}, exc_info=error)
