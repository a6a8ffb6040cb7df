"""Runs one butler; knows modules through `butlers.contract` alone."""

import os

# Before FastMCP is imported: it would log for itself, read a .env of the working directory and look for updates.
os.environ.update(FASTMCP_LOG_ENABLED="false", FASTMCP_ENV_FILE=os.devnull, FASTMCP_CHECK_FOR_UPDATES="off")
