"""The address of a running butler's dashboard, with a ticket where a login is needed."""

from pathlib import Path

from butlers import app
from butlers.caller import Caller
from butlers.config import Configuration
from butlers.config_types import http_address
from butlers.environment import read_environment
from butlers.errors import ConfigurationFault, Unavailable

_TIMEOUT_SECONDS = 3.0


async def dashboard_address(folder: Path, port: int | None, tenant: str | None) -> str:
    """Return the address of the dashboard. Raises `Unavailable` if the butler does not run."""
    config = app.load_configuration(folder)
    butler = config.butler
    if not butler.dashboard.enabled:
        raise ConfigurationFault(
            "the dashboard is turned off", hint="Set `enabled = true` under [butler.dashboard] in butler.toml."
        )
    base = http_address(butler.http.host, port or butler.port)
    await _require_running(base, butler.name)
    if butler.auth.mode == "local":
        return f"{base}{butler.dashboard.base_path}/"
    return f"{base}{butler.dashboard.base_path}/login#ticket={await _make_ticket(config, tenant)}"


async def _require_running(base: str, name: str) -> None:
    import httpx2

    try:
        async with httpx2.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=False) as http:
            health = (await http.get(f"{base}/health")).json()
    except (httpx2.HTTPError, ValueError):
        health = None
    if not isinstance(health, dict) or health.get("butler") != name:
        raise Unavailable(
            f"the butler {name} does not answer at {base}", hint="Start it with `butlers run`, or name its --port."
        )


async def _make_ticket(config: Configuration, tenant: str | None) -> str:
    from butlers.host import browser_sessions

    caller = Caller(tenant=tenant or config.butler.auth.tenant, butler=config.butler.name, actor="local")
    async with (
        app.migrated_database(config, read_environment(), stop=False) as location,
        location.owner_connection() as owner,
    ):
        return await browser_sessions.make_ticket(owner, caller)
