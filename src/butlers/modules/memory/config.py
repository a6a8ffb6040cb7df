"""[modules.memory] of butler.toml: what is kept, how it is found, and when it is looked after."""

import math
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from butlers.config import ModuleConfig, Table
from butlers.config_types import Cron
from butlers.contract import Toolset
from butlers.modules.memory.onnx_folder import OnnxFolder
from butlers.toml_diagnostics import display_value

Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0)]
_ROUNDING = 1e-9


class ScoreWeights(Table):
    """How much each part counts when recall ranks memories; only their proportions matter."""

    relevance: Weight = Field(
        0.4, description="How well the memory fits the question. Raise it when answers stray from the topic."
    )
    importance: Weight = Field(
        0.3, description="What was said of its importance. Raise it when vital memories drown in small ones."
    )
    recency: Weight = Field(
        0.2, description="How lately it was used. Raise it when old memories crowd out what is going on now."
    )
    confidence: Weight = Field(
        0.1, description="How far it is still believed. Raise it when unconfirmed memories come too early."
    )

    @model_validator(mode="after")
    def _weigh_something(self) -> Self:
        total = self.relevance + self.importance + self.recency + self.confidence
        if not 0 < total < math.inf:
            raise ValueError("the weights make no sense: at least one must be above 0, and their sum a number")
        return self


class SectionQuotas(Table):
    """The share of a context's tokens each section may take; what one leaves unused goes to the next."""

    facts: Share = Field(0.6, description="Key facts. Raise it for a butler that mostly knows things.")
    rules: Share = Field(0.25, description="Active rules. Raise it for a butler that mostly follows habits.")
    episodes: Share = Field(
        0.15, description="Recent episodes. Raise it when a session should know what the last ones did."
    )

    @model_validator(mode="after")
    def _share_one_budget(self) -> Self:
        total = math.fsum((self.facts, self.rules, self.episodes))
        if total > 1 + _ROUNDING:
            raise ValueError(
                f"facts {self.facts:g} + rules {self.rules:g} + episodes {self.episodes:g} make {total:g}, "
                "and a sum of at most 1 is allowed; a share that is left out keeps its default"
            )
        return self


class MaturityImportance(Table):
    """How important a rule counts in recall, from 0 to 10: rules have no importance of their own."""

    candidate: float = Field(4.0, ge=0, le=10, description="A rule nobody has tried yet.")
    established: float = Field(6.0, ge=0, le=10, description="A rule that has worked a few times.")
    proven: float = Field(8.0, ge=0, le=10, description="A rule that has worked for long.")
    anti_pattern: float = Field(6.0, ge=0, le=10, description="A warning made of a rule that did harm.")


class RetrievalConfig(Table):
    """How memories are found and how much of them goes into a prompt."""

    context_token_budget: int = Field(
        3000,
        ge=64,
        le=100_000,
        description="Tokens of memory a session starts with. Lower it for a runtime with a small window.",
    )
    default_limit: int = Field(
        20,
        ge=1,
        le=100,
        description="Results of a search that names no limit. Lower it to spend fewer tokens.",
    )
    default_mode: Literal["semantic", "keyword", "hybrid", "blended"] = Field(
        "hybrid",
        description="How a search that names no mode looks: by meaning, by words, or by both, put together by their "
        "ranks (`hybrid`) or by what both measure (`blended`). Change it when another serves your texts better.",
    )
    recall_mode: Literal["hybrid", "blended"] = Field(
        "hybrid",
        description="What `memory_recall` and `memory_context` take relevance from: ranks or measures, as above.",
    )
    min_confidence: Share = Field(
        0.2, description="Facts and rules believed less than this are not found. 0 finds everything."
    )
    score_weights: ScoreWeights = ScoreWeights()
    section_quotas: SectionQuotas = SectionQuotas()
    maturity_importance: MaturityImportance = MaturityImportance()


class ConfidenceConfig(Table):
    """When a memory that nobody confirms fades, and when it is let go."""

    fading_below: Share = Field(
        0.2, description="Below this a memory is marked as fading. Raise it to be warned earlier."
    )
    expired_below: Share = Field(
        0.05,
        validate_default=True,
        description="Below this it expires and is no longer found; less than `fading_below`. 0 keeps all.",
    )

    max_expired_share: Share = Field(
        0.1,
        description="The share of a tenant's live facts, and of its rules, that one sweep lets go at the most, and "
        "100 in any case; the rest fades until the next. It keeps a clock that jumped from emptying a memory.",
    )

    @field_validator("expired_below")
    @classmethod
    def _fade_before_expiring(cls, expired: float, info: ValidationInfo) -> float:
        fading = info.data.get("fading_below", math.inf)
        if expired >= fading:
            raise ValueError(f"must be below fading_below ({fading:g}), got {expired:g}")
        return expired


class ConsolidationConfig(Table):
    """How episodes become facts and rules."""

    batch_size: int = Field(
        50,
        ge=1,
        le=500,
        description="Episodes one session reads at once. Lower it for a small context window.",
    )
    max_attempts: int = Field(
        5, ge=1, le=20, description="Failed attempts after which an episode is set aside as a dead letter."
    )
    max_prompt_tokens: int = Field(
        24_000,
        ge=4_000,
        le=1_000_000,
        description="Tokens one session is sent at most; what does not fit waits for the next. Lower it for a "
        "small context window.",
    )
    daily_token_limit: int = Field(
        1_000_000,
        ge=0,
        description="Tokens consolidation may take of a tenant in 24 hours, sent and answered. 0 sets no limit.",
    )
    trust: Share = Field(
        0.7,
        description="How far distilled knowledge is believed, against what is stored directly, until something else "
        "supports it: a confirmation, the same stored directly, or an episode of another session.",
    )
    lease_seconds: float = Field(
        120.0,
        ge=1,
        le=3600,
        description="How long the episodes of a worker that died stay out of reach of the others. A worker that "
        "lives renews it.",
    )


def _absolute(path: str) -> str:
    if not Path(path).expanduser().is_absolute():
        raise ValueError(f"{display_value(path)} is not an absolute path: /… and ~/… are allowed")
    return path


class EmbeddingConfig(Table):
    """Which model makes the vectors."""

    folder: Annotated[str, AfterValidator(_absolute)] | None = Field(
        None,
        description="A folder with `model.onnx` and `tokenizer.json` of another model of 384 dimensions. Left out, "
        "it is all-MiniLM-L6-v2. After a change every memory is embedded anew, in the background.",
    )
    pooling: Literal["mean", "cls"] = Field(
        "mean",
        description="How a text's vector is made of its tokens', where that model's file does not do it itself.",
    )

    @property
    def brought(self) -> OnnxFolder | None:
        """The model somebody brings, if any."""
        return OnnxFolder(Path(self.folder).expanduser(), self.pooling) if self.folder else None


class ScheduleConfig(Table):
    """When memory looks after itself; cron expressions."""

    consolidate: Cron = Field(
        "0 */6 * * *",
        description="When episodes are consolidated. More often learns sooner and costs more sessions.",
    )
    consolidation_retry: Cron = Field(
        "*/5 * * * *",
        description="When episodes whose consolidation failed are looked for that may be tried again by now.",
    )
    decay_sweep: Cron = Field(
        "0 3 * * *",
        description="When fading memories are marked and expired ones let go. Once a day is enough.",
    )
    episode_cleanup: Cron = Field("0 4 * * *", description="When expired episodes are deleted. Choose a quiet hour.")
    reembed: Cron = Field(
        "*/10 * * * *",
        description="When memories that another model, or another version of it, embedded are embedded anew. With "
        "nothing to do it costs next to nothing.",
    )
    index_upkeep: Cron = Field(
        "30 * * * *",
        description="When vector indexes are looked after: one that its table has outgrown is built anew, beside the "
        "one in use. Until then searches compare with everything.",
    )


class MemoryModuleConfig(ModuleConfig):
    """The memory module: episodes, facts and rules."""

    episode_ttl_days: int = Field(
        7,
        ge=1,
        le=3650,
        description="Days an episode is kept. Raise it where consolidation runs seldom and would miss some.",
    )
    max_episodes: int = Field(
        10_000, ge=1, description="Episodes that are kept at most. Lower it where space is scarce."
    )
    toolset: Toolset = Field(
        "core",
        description="`core`: the 19 tools every agent needs. `full`: those and the further ones, for agents "
        "that look after the memory itself; each tool costs every session context.",
    )
    retrieval: RetrievalConfig = RetrievalConfig()
    confidence: ConfidenceConfig = ConfidenceConfig()
    consolidation: ConsolidationConfig = ConsolidationConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()
    schedule: ScheduleConfig = ScheduleConfig()
