"""What people see: the pages of reports, over what readers see."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter

from anubis.service.house import House


def router(house: House) -> APIRouter:
    return APIRouter()


def script_digests() -> Iterable[str]:
    return ()
