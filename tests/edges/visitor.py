"""A client of the service in a test, without a socket between, and checks of every answer."""

from __future__ import annotations

import asyncio

import httpx

from anubis.service.app import application
from anubis.service.fleet_cache import Board
from anubis.service.gate import Gates, StartedTests
from anubis.service.keeper_turns import Turns
from anubis.service.metrics import Gauges
from anubis.service.requester import OpenHistory, Requester
from anubis.service.service_settings import ServiceSettings
from anubis.service.service_state import AuditTrail, House
from anubis.service.slow_pages import Overviews, Question
from tests.edges.desk import check_line


class Visitor:
    """Asks an application without a socket between."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.admission = application(house)

    def ask(self, path, method="GET", *, token="", at="http://localhost", **how):
        headers = dict(how.pop("headers", {}))
        if token:
            headers["authorization"] = f"Bearer {token}"
        if "json" in how:
            headers.setdefault("content-type", "application/json")

        async def asked():
            transport = httpx.ASGITransport(self.admission, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url=at) as client:
                return await client.request(method, path, headers=headers, **how)

        return asyncio.run(asked())

    def told(self):
        """The audit, the oldest first."""
        self.house.trail._flush()
        return self.house.history.audit.newest(99)[::-1]


def house_of(url, **settings):
    history = OpenHistory.open(url)
    chosen = ServiceSettings(**settings)
    question = Question(history_url=url, settings=chosen)
    board = Board(Requester(history, "", ()))
    return House(
        settings=chosen,
        history=history,
        history_url=url,
        board=board,
        gauges=Gauges(board.read, chosen.turns_every_s),
        trail=AuditTrail(history.audit.add),
        started=StartedTests(),
        gates=Gates(in_process=True),
        turns=Turns((), 0.0, lambda cluster: None),
        overviews=Overviews(question, in_process=True),
    )


def items(answer):
    assert answer.status_code == 200, answer.text
    lines = answer.json()["items"]
    for line in lines:
        check_line(line)
    return lines


def problem(answer, status):
    assert (answer.status_code, answer.headers["content-type"]) == (
        status,
        "application/problem+json",
    ), answer.text
    document = answer.json()
    assert document["status"] == status
    assert "Traceback" not in answer.text
    return document["detail"]


def page(visitor, path):
    answer = visitor.ask(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert (
        "unsafe-inline" not in answer.headers["content-security-policy"].partition("script-src")[2]
    )
    return answer.text
