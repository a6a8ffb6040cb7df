"""The butler in a folder as an MCP server over stdio; its first start creates it."""

import os
import subprocess
import sys
from pathlib import Path

folder = Path(sys.argv[1]).expanduser()
if not (folder / "butler.toml").exists():
    # The protocol has stdout for itself.
    subprocess.run(["butlers", "init", str(folder)], stdout=sys.stderr, check=True)
os.execvp("butlers", ["butlers", "run", str(folder), "--stdio"])
