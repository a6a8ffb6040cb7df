"""A session that stores false episodes, and the memories a model learns from them."""

from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from butlers.caller import Caller
from butlers.modules.memory.domain.model import NewEpisode
from butlers.modules.memory.operations import consolidation, writing
from butlers.modules.memory.runtime import Memory
from memory.memory_fixtures import REQUEST
from memory.scripted_model import ScriptedModel, model_output, with_model


@dataclass(frozen=True)
class LyingSession:
    """A session that stores episodes and consolidates them."""

    memory: Memory
    caller: Caller

    @property
    def id(self) -> str:
        assert self.caller.session_id
        return self.caller.session_id

    async def store_episode(self, content: str = "She said so") -> str:
        """Store an episode of this session and return its id."""
        episode = NewEpisode(content=content, butler=self.memory.butler, session_id=self.id)
        return (await writing.store_episode(self.memory, self.caller, episode, REQUEST))["id"]

    async def learn_from_episode(self, *, distilled_confidence: float = 0.7, **lists: Any) -> list[str]:
        """Store an episode, consolidate with this output and return the ids of the learned memories."""
        await self.store_episode()
        learned = await learn(self.memory, self.caller, distilled_confidence=distilled_confidence, **lists)
        return [each["id"] for each in learned]


def start_session(memory: Memory, caller: Caller) -> LyingSession:
    """Return a new session of the caller's tenant."""
    return LyingSession(memory, replace(caller, session_id=str(uuid4())))


async def learn(
    memory: Memory, caller: Caller, *, distilled_confidence: float = 0.7, **lists: Any
) -> list[dict[str, Any]]:
    """Consolidate all pending episodes with this output and return the learned memories."""
    model = ScriptedModel(model_output(**lists))
    learner = with_model(memory, model, distilled_confidence=distilled_confidence)
    answer = await consolidation.consolidate(learner, replace(caller, session_id=None))
    assert answer["errors"] == []
    return answer["learned"]
