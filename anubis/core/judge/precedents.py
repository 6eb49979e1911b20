"""Precedents: what was known before a campaign, of settings and of criteria."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anubis.core.judge.equality import NodeSettings
from anubis.core.records import CriteriaSet


@dataclass(frozen=True, kw_only=True)
class Precedents:
    settings: Sequence[NodeSettings] = ()  # that other nodes last reported
    criteria: Sequence[CriteriaSet] = ()  # that other campaigns taught


NOTHING_BEFORE = Precedents()
