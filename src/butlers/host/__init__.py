"""Host of one butler: server, scheduler and sessions. It knows modules only through `butlers.contract`."""

import os

# Set before FastMCP is imported: otherwise it logs by itself, reads .env and checks for updates.
os.environ.update(FASTMCP_LOG_ENABLED="false", FASTMCP_ENV_FILE=os.devnull, FASTMCP_CHECK_FOR_UPDATES="off")
