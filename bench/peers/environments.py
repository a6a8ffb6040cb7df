"""The peers with their pinned versions, and the installation of each in its own environment."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "peers"
_MODEL = ("numpy==2.4.6", "onnxruntime==1.31.1", "tokenizers==0.23.3")
_INSTALL_TIMEOUT_SECONDS = 900
_LOADS_EXTENSIONS = "import sqlite3, sys; sys.exit(not hasattr(sqlite3.Connection, 'enable_load_extension'))"


@dataclass(frozen=True, slots=True)
class Peer:
    """A memory to measure through one of its interfaces."""

    name: str
    driver: str
    interface: str
    searches: str
    filled: str
    packages: Sequence[str] = ()
    npm: Sequence[str] = ()
    postgres: bool = False
    sqlite_extensions: bool = False
    embeds: bool = True

    @property
    def version(self) -> str:
        """The pinned version; `this one` for butlers."""
        return (*self.npm, *self.packages, "this one")[0].rpartition("==" if self.packages else "@")[2]

    @property
    def environment(self) -> Path:
        """The folder of its packages."""
        return CACHE / self.name.lower().replace(" ", "-")

    @property
    def python(self) -> Path:
        """The interpreter of its driver."""
        return self.environment / "bin" / "python" if self.packages else Path(sys.executable)


PEERS = (
    Peer("butlers", "with_butlers.py", "MCP over HTTP", "vectors and words", "COPY", postgres=True),
    Peer("butlers, stdio", "with_butlers.py", "MCP over stdio", "vectors and words", "COPY", postgres=True),
    Peer(
        "mem0",
        "with_mem0.py",
        "`Memory` in process, pgvector",
        "vectors and words",
        "COPY",
        ("mem0ai==2.2.1", "psycopg[binary,pool]==3.3.8", *_MODEL),
        postgres=True,
    ),
    Peer(
        "LangGraph",
        "with_langgraph.py",
        "`PostgresStore` in process",
        "vectors",
        "COPY",
        ("langgraph-checkpoint-postgres==3.2.0", "langgraph==1.2.20", "psycopg[binary,pool]==3.3.8", *_MODEL),
        postgres=True,
    ),
    Peer(
        "Chroma",
        "with_chroma.py",
        "`PersistentClient` in process",
        "vectors",
        "its own `add` in batches",
        ("chromadb==1.5.9", *_MODEL),
    ),
    Peer(
        "MCP memory server",
        "with_server_memory.py",
        "MCP over stdio",
        "substring: no embeddings",
        "its file",
        npm=("@modelcontextprotocol/server-memory@2026.8.31",),
        embeds=False,
    ),
    Peer(
        "mcp-memory-service",
        "with_memory_service.py",
        "MCP over stdio, SQLite",
        "vectors",
        "INSERT",
        ("mcp-memory-service==12.2.0", *_MODEL),
        sqlite_extensions=True,
    ),
)


def install(peer: Peer) -> str | None:
    """Install the peer unless it is installed; returns the reason when that fails."""
    packages = "\n".join((*peer.packages, *peer.npm))
    stamp = peer.environment / "installed.txt"
    if not packages or (stamp.exists() and stamp.read_text(encoding="utf-8") == packages):
        return None
    shutil.rmtree(peer.environment, ignore_errors=True)
    peer.environment.mkdir(parents=True)
    reason = _install_npm(peer) if peer.npm else _install_venv(peer)
    if reason is None:
        stamp.write_text(packages, encoding="utf-8")
    return reason


def _install_npm(peer: Peer) -> str | None:
    if shutil.which("npm") is None:
        return "not installed: npm is missing"
    return _run("npm", "install", "--no-audit", "--no-fund", "--prefix", str(peer.environment), *peer.npm)


def _install_venv(peer: Peer) -> str | None:
    python = _find_interpreter(peer)
    if python is None:
        return "not installed: needs a Python whose SQLite loads extensions"
    return _run(python, "-m", "venv", "--without-pip", str(peer.environment)) or _run(
        sys.executable, "-m", "pip", "--python", str(peer.python), "install", "--quiet", *peer.packages
    )


def _find_interpreter(peer: Peer) -> str | None:
    """This interpreter, or the system's where the peer needs SQLite extensions and this one can't load them."""
    if not peer.sqlite_extensions:
        return sys.executable
    for python in (sys.executable, shutil.which("python3", path=os.defpath)):
        if python and subprocess.run([python, "-c", _LOADS_EXTENSIONS], check=False).returncode == 0:
            return python
    return None


def _run(*command: str) -> str | None:
    """None, or the reason of the failure; without the installer's output, which may contain addresses."""
    try:
        result = subprocess.run(command, check=False, capture_output=True, timeout=_INSTALL_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return "not installed: timeout"
    return None if result.returncode == 0 else "not installed: its installer failed"


def isolated_environment(folder: Path) -> Mapping[str, str]:
    """Environment variables that turn off telemetry and downloads and keep files out of the home folder."""
    return {
        **os.environ,
        "HOME": str(folder),
        "MEM0_DIR": str(folder / "mem0"),
        "MEM0_TELEMETRY": "False",
        "ANONYMIZED_TELEMETRY": "False",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "OPENAI_API_KEY": "none",
        "LANGSMITH_TRACING": "false",
    }
