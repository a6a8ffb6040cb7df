"""A session that tells lies, and what a model makes of its episodes."""

from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from butlers.caller import Caller
from butlers.modules.memory.domain.model import NewEpisode
from butlers.modules.memory.operations import consolidation, writing
from butlers.modules.memory.runtime import Memory
from memory.stage import ASKED
from memory.thinking import Thinker, minded, said


@dataclass(frozen=True)
class Session:
    """One session of a tenant: what it tells, and what is distilled of that."""

    memory: Memory
    caller: Caller

    @property
    def id(self) -> str:
        assert self.caller.session_id
        return self.caller.session_id

    async def tells(self, content: str = "She said so") -> str:
        """The id of a new episode of this session."""
        episode = NewEpisode(content=content, butler=self.memory.butler, session_id=self.id)
        return (await writing.store_episode(self.memory, self.caller, episode, ASKED))["id"]

    async def teaches(self, *, trust: float = 0.7, **lists: Any) -> list[str]:
        """The ids of what a model learns that reads one more episode of this session."""
        await self.tells()
        return [each["id"] for each in await learned(self.memory, self.caller, trust=trust, **lists)]


def session(memory: Memory, caller: Caller) -> Session:
    """A session of that tenant that nobody else has."""
    return Session(memory, replace(caller, session_id=str(uuid4())))


async def learned(memory: Memory, caller: Caller, *, trust: float = 0.7, **lists: Any) -> list[dict[str, Any]]:
    """What comes of everything that waits when the model says this."""
    answer = await consolidation.consolidate(
        minded(memory, Thinker(said(**lists)), trust=trust), replace(caller, session_id=None)
    )
    assert answer["errors"] == []
    return answer["learned"]
