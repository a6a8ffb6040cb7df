"""Settings of the servers that tests start."""

import asyncpg

from butlers import embedded_server


async def skip_fsync(cluster: embedded_server.Cluster) -> None:
    """Let the server not wait for the disk: tests crash the server and never the machine."""
    connection = await asyncpg.connect(cluster.dsn("postgres"))
    try:
        await connection.execute("alter system set fsync = off")
        await connection.execute("select pg_reload_conf()")
    finally:
        await connection.close()
