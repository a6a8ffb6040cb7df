"""Connections of butlers to agents: planned, shown, written, removed and checked."""

from butlers.connect.entry import Connection, check_address, mcp_configuration
from butlers.connect.file_change import FileChange
from butlers.connect.planning import new_files, plan_connect, plan_remove

__all__ = [
    "Connection",
    "FileChange",
    "check_address",
    "mcp_configuration",
    "new_files",
    "plan_connect",
    "plan_remove",
]
