"""Who is measured beside a butler, and the environment each has of its own: made once, kept, never one of ours."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "peers"
_MODEL = ("numpy==2.4.6", "onnxruntime==1.31.1", "tokenizers==0.23.3")
_INSTALL_SECONDS = 900
_LOADS_EXTENSIONS = "import sqlite3, sys; sys.exit(not hasattr(sqlite3.Connection, 'enable_load_extension'))"


@dataclass(frozen=True, slots=True)
class Peer:
    """What is needed to measure one of them."""

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
        """Of what is measured; ours is the one of this repository."""
        return (*self.npm, *self.packages, "this one")[0].rpartition("==" if self.packages else "@")[2]

    @property
    def environment(self) -> Path:
        """Where its packages are."""
        return CACHE / self.name.lower().replace(" ", "-")

    @property
    def python(self) -> Path:
        """What runs its driver."""
        return self.environment / "bin" / "python" if self.packages else Path(sys.executable)


PEERS = (
    Peer("butlers", "with_butlers.py", "MCP over HTTP", "meaning and words", "COPY", postgres=True),
    Peer("butlers, stdio", "with_butlers.py", "MCP over stdio", "meaning and words", "COPY", postgres=True),
    Peer(
        "mem0",
        "with_mem0.py",
        "`Memory` in process, pgvector",
        "meaning and words",
        "COPY",
        ("mem0ai==2.2.1", "psycopg[binary,pool]==3.3.8", *_MODEL),
        postgres=True,
    ),
    Peer(
        "LangGraph",
        "with_langgraph.py",
        "`PostgresStore` in process",
        "meaning",
        "COPY",
        ("langgraph-checkpoint-postgres==3.2.0", "langgraph==1.2.20", "psycopg[binary,pool]==3.3.8", *_MODEL),
        postgres=True,
    ),
    Peer(
        "Chroma",
        "with_chroma.py",
        "`PersistentClient` in process",
        "meaning",
        "its own `add` in batches",
        ("chromadb==1.5.9", *_MODEL),
    ),
    Peer(
        "MCP memory server",
        "with_server_memory.py",
        "MCP over stdio",
        "a part of the text: it has no embeddings",
        "its file",
        npm=("@modelcontextprotocol/server-memory@2026.8.31",),
        embeds=False,
    ),
    Peer(
        "mcp-memory-service",
        "with_memory_service.py",
        "MCP over stdio, SQLite",
        "meaning",
        "INSERT",
        ("mcp-memory-service==12.2.0", *_MODEL),
        sqlite_extensions=True,
    ),
)


def missing(peer: Peer) -> str | None:
    """Install it unless it is there; why it can't be measured, if so."""
    wanted = "\n".join((*peer.packages, *peer.npm))
    noted = peer.environment / "installed.txt"
    if not wanted or (noted.exists() and noted.read_text(encoding="utf-8") == wanted):
        return None
    shutil.rmtree(peer.environment, ignore_errors=True)
    peer.environment.mkdir(parents=True)
    reason = _npm(peer) if peer.npm else _venv(peer)
    if reason is None:
        noted.write_text(wanted, encoding="utf-8")
    return reason


def _npm(peer: Peer) -> str | None:
    if shutil.which("npm") is None:
        return "not installed: no npm here"
    return _ran("npm", "install", "--no-audit", "--no-fund", "--prefix", str(peer.environment), *peer.npm)


def _venv(peer: Peer) -> str | None:
    python = _interpreter(peer)
    if python is None:
        return "not installed: needs a Python whose SQLite loads extensions"
    return _ran(python, "-m", "venv", "--without-pip", str(peer.environment)) or _ran(
        sys.executable, "-m", "pip", "--python", str(peer.python), "install", "--quiet", *peer.packages
    )


def _interpreter(peer: Peer) -> str | None:
    """Ours, or for who needs it the system's: not every Python is built to load SQLite's extensions."""
    if not peer.sqlite_extensions:
        return sys.executable
    for python in (sys.executable, shutil.which("python3", path=os.defpath)):
        if python and subprocess.run([python, "-c", _LOADS_EXTENSIONS], check=False).returncode == 0:
            return python
    return None


def _ran(*command: str) -> str | None:
    """Nothing, or that it failed; what an installer says may hold addresses and is kept to ourselves."""
    try:
        finished = subprocess.run(command, check=False, capture_output=True, timeout=_INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        return "not installed: took too long"
    return None if finished.returncode == 0 else "not installed: its installer failed"


def quietly(place: Path) -> Mapping[str, str]:
    """Surroundings in which nothing is sent anywhere or downloaded, and nothing is left in a home folder."""
    return {
        **os.environ,
        "HOME": str(place),
        "MEM0_DIR": str(place / "mem0"),
        "MEM0_TELEMETRY": "False",
        "ANONYMIZED_TELEMETRY": "False",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "OPENAI_API_KEY": "none",
        "LANGSMITH_TRACING": "false",
    }
