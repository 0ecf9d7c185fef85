"""Settings from the environment, ``CLEAVE_*``. Read once; what can't work is refused with both values named."""

import os
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

MIN_TTL_INTERVALS = 3


class Settings(BaseSettings):
    """How this server runs. Seconds and bytes."""

    model_config = SettingsConfigDict(env_prefix="CLEAVE_", frozen=True, extra="ignore")

    database_url: str = "sqlite:///cleave.db"
    heartbeat_interval_s: float = Field(10.0, gt=0, le=86_400, allow_inf_nan=False)
    ttl_s: float = Field(30.0, gt=0, le=604_800, allow_inf_nan=False)
    retention_s: float = Field(86_400.0, ge=0, le=31_536_000, allow_inf_nan=False)
    default_reserve_bytes: int = Field(6_000_000_000, ge=0, le=2**63 - 1)
    default_policy: Literal["auto", "ram_balanced", "throughput", "manual"] = "ram_balanced"
    max_nodes: int = Field(10_000, ge=1, le=100_000)
    max_deployments: int = Field(1_000, ge=1, le=100_000)
    max_deployments_per_caller: int = Field(100, ge=1, le=100_000)
    log_format: Literal["auto", "json", "text"] = "auto"

    @model_validator(mode="after")
    def _three_beats_to_live(self) -> Self:
        if self.ttl_s < MIN_TTL_INTERVALS * self.heartbeat_interval_s * (1 - 1e-9):  # 1.2 is thrice 0.4
            message = (
                f"CLEAVE_TTL_S={self.ttl_s:g} is less than {MIN_TTL_INTERVALS} x "
                f"CLEAVE_HEARTBEAT_INTERVAL_S={self.heartbeat_interval_s:g}: one lost beat would end a node"
            )
            raise ValueError(message)
        return self


OTHERS = frozenset({"CLEAVE_URL", "CLEAVE_HOST", "CLEAVE_PORT", "CLEAVE_SHARED"})
"""Names that are no settings of the server but of what stands around it."""


def unknown_settings() -> list[str]:
    """Names in the environment that look like settings and are none, mistyped perhaps."""
    known = {f"CLEAVE_{name.upper()}" for name in Settings.model_fields} | OTHERS
    return sorted(name for name in os.environ if name.upper().startswith("CLEAVE_") and name.upper() not in known)


class SettingsError(Exception):
    """Settings that can't work, each named, for the operator who starts the server."""


def read_settings() -> Settings:
    """The settings of this process's environment. Raises SettingsError."""
    try:
        return Settings()
    except ValidationError as error:
        faults = [
            f"CLEAVE_{'_'.join(map(str, fault['loc'])).upper()}: {fault['msg']}"
            if fault["loc"]
            else fault["msg"].removeprefix("Value error, ")
            for fault in error.errors(include_url=False, include_input=False)
        ]
        raise SettingsError("these settings can't work:\n  " + "\n  ".join(faults)) from None
