"""All risk models, the simplest first."""

from __future__ import annotations

from anubis.risk.baselines import (
    Constant,
    Exponential,
    ExponentialPerCount,
    ExponentialPerHour,
    KaplanMeier,
    Weibull,
)
from anubis.risk.cox import Cox
from anubis.risk.cox_time import CoxTime
from anubis.risk.model import RiskModel

MODELS: tuple[type[RiskModel], ...] = (
    Constant,
    Exponential,
    ExponentialPerHour,
    KaplanMeier,
    Weibull,
    ExponentialPerCount,
    Cox,
    CoxTime,
)
