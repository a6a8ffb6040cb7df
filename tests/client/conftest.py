"""Fixtures for tests of the client: a butler that serves over HTTP."""

from host.conftest import process, variables  # noqa: F401 — fixtures
