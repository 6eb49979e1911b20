"""All risk models, the simplest first."""

from __future__ import annotations

from anubis.core.errors import RiskError, did_you_mean
from anubis.models.risk.baselines import (
    Constant,
    Exponential,
    ExponentialPerCount,
    ExponentialPerHour,
    KaplanMeier,
    Weibull,
)
from anubis.models.risk.cox import Cox
from anubis.models.risk.cox_time import CoxTime
from anubis.models.risk.risk_model import RiskModel

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


def model_named(name: str) -> type[RiskModel]:
    models = {model.name: model for model in MODELS}
    if name not in models:
        raise RiskError(f'unknown risk model "{name}"; {did_you_mean(name, models)}')
    return models[name]
