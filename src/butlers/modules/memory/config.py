"""Configuration models for [modules.memory] in butler.toml."""

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
    """The weights of the parts of a recall score; only their proportions matter."""

    relevance: Weight = Field(
        0.4, description="Weight of how well the memory fits the query. Raise it when answers stray from the topic."
    )
    importance: Weight = Field(
        0.3, description="Weight of the stored importance. Raise it when trivial memories hide vital ones."
    )
    recency: Weight = Field(
        0.2, description="Weight of recent use. Raise it when old memories crowd out current ones."
    )
    confidence: Weight = Field(
        0.1, description="Weight of the confidence. Raise it when unconfirmed memories rank too high."
    )

    @model_validator(mode="after")
    def _check_sum(self) -> Self:
        total = self.relevance + self.importance + self.recency + self.confidence
        if not 0 < total < math.inf:
            raise ValueError("at least one must be above 0, and their sum must be finite")
        return self


class SectionQuotas(Table):
    """The share of the context's tokens for each section; unused tokens go to the next section."""

    facts: Share = Field(0.6, description="Share of key facts. Raise it for a butler that mostly needs facts.")
    rules: Share = Field(0.25, description="Share of active rules. Raise it for a butler that mostly follows rules.")
    episodes: Share = Field(
        0.15, description="Share of recent episodes. Raise it when a session should know what the last ones did."
    )

    @model_validator(mode="after")
    def _check_sum(self) -> Self:
        total = math.fsum((self.facts, self.rules, self.episodes))
        if total > 1 + _ROUNDING:
            raise ValueError(
                f"facts {self.facts:g} + rules {self.rules:g} + episodes {self.episodes:g} make {total:g}, "
                "but their sum must be at most 1; a share that is left out keeps its default"
            )
        return self


class MaturityImportance(Table):
    """The importance of rules in recall, from 0 to 10, by maturity; a rule has no importance of its own."""

    candidate: float = Field(4.0, ge=0, le=10, description="A rule without enough successes.")
    established: float = Field(6.0, ge=0, le=10, description="A rule that has worked a few times.")
    proven: float = Field(8.0, ge=0, le=10, description="A rule that has worked for a long time.")
    anti_pattern: float = Field(6.0, ge=0, le=10, description="A warning made from a harmful rule.")


class RetrievalConfig(Table):
    """Search, recall and the context block."""

    context_token_budget: int = Field(
        3000,
        ge=64,
        le=100_000,
        description="Tokens of the context block a session starts with. Lower it for a runtime with a small window.",
    )
    default_limit: int = Field(
        20, ge=1, le=100, description="Results of a search without a limit. Lower it to spend fewer tokens."
    )
    default_mode: Literal["semantic", "keyword", "hybrid", "blended"] = Field(
        "hybrid",
        description="Mode of a search without one: by meaning (`semantic`), by words (`keyword`), or by both, "
        "combined by rank (`hybrid`) or by measure (`blended`). Change it when another mode finds more in your "
        "texts.",
    )
    recall_mode: Literal["hybrid", "blended"] = Field(
        "hybrid",
        description="How `memory_recall` and `memory_context` compute relevance: by rank or by measure, as above.",
    )
    least_match: Literal["strong", "fair", "weak"] = Field(
        "weak",
        description="The worst match that `memory_recall` and `memory_context` return. `fair` leaves out memories "
        "that hardly fit the question, so that a question nothing answers gets few or none.",
    )
    min_confidence: Share = Field(
        0.2, description="Facts and rules with less confidence are not found. 0 finds all of them."
    )
    score_weights: ScoreWeights = ScoreWeights()
    section_quotas: SectionQuotas = SectionQuotas()
    maturity_importance: MaturityImportance = MaturityImportance()


class ConfidenceConfig(Table):
    """Thresholds at which an unconfirmed memory fades and expires."""

    fading_below: Share = Field(
        0.2, description="A memory with less confidence is marked as fading. Raise it to be warned earlier."
    )
    expired_below: Share = Field(
        0.05,
        validate_default=True,
        description="A memory with less confidence expires and is no longer found; it must be below `fading_below`. "
        "0 keeps all.",
    )
    max_expired_share: Share = Field(
        0.1,
        description="The largest share of a tenant's live facts, and of its rules, that one sweep expires (but "
        "never less than 100); the rest waits for the next sweep. It protects a memory from a clock that jumps.",
    )

    @field_validator("expired_below")
    @classmethod
    def _check_order(cls, expired: float, info: ValidationInfo) -> float:
        fading = info.data.get("fading_below", math.inf)
        if expired >= fading:
            raise ValueError(f"must be below fading_below ({fading:g}), got {expired:g}")
        return expired


class ConsolidationConfig(Table):
    """Consolidation of episodes into facts and rules."""

    batch_size: int = Field(
        50, ge=1, le=500, description="Episodes in one session. Lower it for a small context window."
    )
    max_attempts: int = Field(5, ge=1, le=20, description="Failed attempts after which an episode is dead-lettered.")
    max_prompt_tokens: int = Field(
        24_000,
        ge=4_000,
        le=1_000_000,
        description="Largest prompt of one session, in tokens; episodes that do not fit wait for the next. Lower it "
        "for a small context window.",
    )
    daily_token_limit: int = Field(
        1_000_000,
        ge=0,
        description="Tokens consolidation may use for a tenant in 24 hours, input and output. 0 means no limit.",
    )
    distilled_confidence: Share = Field(
        0.7,
        description="The share of a directly stored memory's confidence that distilled knowledge starts with, until "
        "a confirmation, the same memory stored directly or an episode of another session supports it.",
    )
    drop_echoes: bool = Field(
        True,
        description="Whether a new memory is dropped whose only source is a memory that its session was told.",
    )
    confirm_twins: bool = Field(
        True,
        description="Whether a new fact that says what a live one says under another key confirms that one.",
    )
    ask_about_updates: bool = Field(
        True,
        description="Whether the model is asked, in a second and short session, what a new fact is that says "
        "otherwise about something known. Without it the fact is stored with a `contradicts` link.",
    )
    list_predicates: bool = Field(
        True, description="Whether the prompt lists the predicates in use, so that the model invents no new ones."
    )
    review: Literal["after", "before"] = Field(
        "after",
        description="When people review what consolidation learns: `after` stores it with less confidence, `before` "
        "keeps it as a proposal, in no search, until a person accepts it.",
    )
    proposal_days: int = Field(14, ge=1, le=365, description="Days until a proposal that nobody decided expires.")
    lease_seconds: float = Field(
        120.0,
        ge=1,
        le=3600,
        description="Seconds until other workers can take the episodes of a worker that died. A live worker renews "
        "its lease.",
    )


class HintsConfig(Table):
    """Similar memories in the answer of `memory_store_fact` and `memory_store_rule`."""

    enabled: bool = Field(
        True,
        description="Whether a store names memories that say nearly the same, or the opposite, under another key.",
    )
    min_similarity: Share = Field(
        0.72,
        description="The least cosine similarity of a memory that is named. Raise it when hints name memories that "
        "merely share a topic.",
    )

    @property
    def threshold(self) -> float | None:
        """The least similarity, or None where hints are off."""
        return self.min_similarity if self.enabled else None


def _check_absolute(path: str) -> str:
    if not Path(path).expanduser().is_absolute():
        raise ValueError(f"{display_value(path)} is not an absolute path; start it with / or ~/")
    return path


class EmbeddingConfig(Table):
    """The embedding model."""

    folder: Annotated[str, AfterValidator(_check_absolute)] | None = Field(
        None,
        description="Folder with `model.onnx` and `tokenizer.json` of another model with 384 dimensions; "
        "all-MiniLM-L6-v2 if left out. After a change every memory is re-embedded in the background.",
    )
    pooling: Literal["mean", "cls"] = Field(
        "mean",
        description="How the vectors of the tokens become one, if the model in that folder does not do it itself.",
    )

    @property
    def onnx_folder(self) -> OnnxFolder | None:
        """The configured model folder, or None for the built-in model."""
        return OnnxFolder(Path(self.folder).expanduser(), self.pooling) if self.folder else None


class ScheduleConfig(Table):
    """Cron expressions of the memory jobs."""

    consolidate: Cron = Field(
        "0 */6 * * *", description="When episodes are consolidated. More often learns sooner but costs more sessions."
    )
    consolidation_retry: Cron = Field("*/5 * * * *", description="When failed episodes that are due are retried.")
    decay_sweep: Cron = Field(
        "0 3 * * *", description="When memories with low confidence fade or expire. Once a day is enough."
    )
    episode_cleanup: Cron = Field("0 4 * * *", description="When expired episodes are deleted. Choose a quiet hour.")
    reembed: Cron = Field(
        "*/10 * * * *",
        description="When memories embedded by another model or version are re-embedded. It costs almost nothing "
        "when there are none.",
    )
    index_upkeep: Cron = Field(
        "30 * * * *",
        description="When vector indexes are measured. An index that its table has outgrown is rebuilt beside the "
        "one in use, within a minute and not only at these times; until then searches scan the table.",
    )


class MemoryModuleConfig(ModuleConfig):
    """The memory module: episodes, facts and rules."""

    episode_ttl_days: int = Field(
        7,
        ge=1,
        le=3650,
        description="Days until an episode expires. Raise it if consolidation runs so rarely that it would miss "
        "some.",
    )
    max_episodes: int = Field(10_000, ge=1, description="Largest number of episodes. Lower it to save space.")
    receipt_days: int = Field(
        90,
        ge=0,
        le=3650,
        description="Days until the receipt of what a session was told is deleted: ids, ranks and scores, no words. "
        "0 writes no receipts.",
    )
    toolset: Toolset = Field(
        "core",
        description="`core`: the 19 tools every agent needs. `full`: also the tools for maintaining the memory; "
        "each tool takes context of every session.",
    )
    secrets: Literal["redact", "refuse", "keep"] = Field(
        "redact",
        description="Passwords, keys, tokens and card numbers in a memory to store: `redact` puts their kind in "
        "their place, `refuse` stores nothing, `keep` does not look for them.",
    )
    retrieval: RetrievalConfig = RetrievalConfig()
    confidence: ConfidenceConfig = ConfidenceConfig()
    consolidation: ConsolidationConfig = ConsolidationConfig()
    hints: HintsConfig = HintsConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()
    schedule: ScheduleConfig = ScheduleConfig()
