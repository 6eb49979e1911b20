"""The process that Ray runs in, beside the driver. Only this imports ray.

It joins the cluster, starts agents as requested, and passes requests and answers on. It decides
nothing, and ends with the driver, however that ended. Or it only finds out if a cluster answers.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import queue
import re
import signal
import sys
import threading
import zipfile
from concurrent.futures import Future
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from anubis.reach.executors import forked_python, guardian, machine
from anubis.reach.executors import node_agent as agent_module
from anubis.reach.executors.ray_link import (
    HEALTH_CHECKS,
    HERE,
    KNOCK,
    KNOCK_PATIENCE_S,
    REFUSED,
    Answer,
    AskAgent,
    Dismiss,
    Echo,
    Join,
    Joined,
    ListNodes,
    Request,
    StartAgent,
)

PROGRAMS_AT_ONCE = 32  # on one node; exclusive ones come one at a time anyway


class Correspondent:
    """Requests, carried out one after the other; answers go back as they come."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._agents: dict[str, Any] = {}
        self._package: Any = None
        self._digest = ""

    def offer(self, package: bytes) -> None:
        """Put the programs into Ray's store, from which each agent takes them. On a node other
        users who reach the store's socket may change what is there: the digest travels apart."""
        import ray

        self._digest = hashlib.sha256(package).hexdigest()
        self._package = ray.put(package)

    def send(self, message: Joined | Answer) -> None:
        with self._lock:
            self._pipe.send(message)

    def carry_out(self, request: Request) -> None:
        match request:
            case StartAgent():
                self._agents[request.node_id] = actor_on(request, self._package, self._digest)
            case AskAgent():
                self._ask(request)
            case ListNodes(number=number):
                self.send(Answer(number=number, value=records()))
            case Echo(number=number):
                self.send(Answer(number=number))
            case Dismiss(node_id=node_id) if node_id in self._agents:
                handle = self._agents[node_id]  # aside, because a frozen head never answers
                threading.Thread(target=dismiss, args=(handle,), daemon=True).start()

    def _ask(self, ask: AskAgent) -> None:
        method = getattr(self._agents[ask.node_id], ask.method)
        call = method.options(concurrency_group=ask.group).remote(*ask.arguments)
        call.future().add_done_callback(lambda future: self.send(answer_in(ask.number, future)))


def main() -> None:
    if sys.argv[1] == KNOCK:
        return knock(sys.argv[2])
    pipe = Connection(int(sys.argv[1]))
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    join: Join = pipe.recv()
    leaving = threading.Event()
    threading.Thread(target=read, args=(pipe, requests, leaving), daemon=True).start()
    correspondent = Correspondent(pipe)
    try:
        joined = connect(join)
        correspondent.offer(pack(join.programs))
    except Exception as error:
        correspondent.send(Joined(trouble=shorten_error(error)))
        os._exit(1)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # meant for the driver, which will hang up
    correspondent.send(joined)
    while True:
        correspondent.carry_out(requests.get())


def read(pipe: Connection, requests: queue.SimpleQueue[Request], leaving: threading.Event) -> None:
    try:
        while True:
            requests.put(pipe.recv())
    except (EOFError, OSError):
        leave()


def leave() -> None:
    import ray

    ray.shutdown()  # may never return: the driver ends us, or we end as its orphans do
    os._exit(0)


def knock(address: str) -> None:
    """Connect to a cluster with what this process shows, a token or none. Exit with 0 if the head
    accepts it, with REFUSED if it does not, with 1 if there is no answer."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled, without types
    from ray.exceptions import AuthenticationError

    try:
        GcsClient(address=address).internal_kv_get(b"anubis", b"", timeout=KNOCK_PATIENCE_S)
    except AuthenticationError:
        sys.exit(REFUSED)


def connect(join: Join) -> Joined:
    import ray
    from ray._private.state import available_resources_per_node

    settings: dict[str, Any] = {
        "address": join.address,
        "log_to_driver": False,
        "logging_level": logging.ERROR,
    }
    if join.address == HERE:
        settings |= {
            "_temp_dir": str(join.folder),  # which Ray opens to everybody: nobody else gets there
            "include_dashboard": False,
            "object_store_memory": 256 << 20,
            "_system_config": HEALTH_CHECKS,
        }
    elif join.own_address:
        settings["_node_ip_address"] = join.own_address
    ray.init(**settings)
    free = available_resources_per_node()
    return Joined(records=records(), free={node: dict(kinds) for node, kinds in free.items()})


def pack(folder: Path) -> bytes:
    """Pack all files of a folder: the same bytes each time. Ray ships folders as well, but by a
    `runtime_env`, with which every worker loads Ray twice."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            member = zipfile.ZipInfo(str(file.relative_to(folder)))  # without the time of day
            archive.writestr(member, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def session_folder() -> str:
    """Return Ray's own folder on the calling machine; it ends as Ray's logs do."""
    from ray._private.worker import global_worker

    node: Any = global_worker.node
    return str(node.get_session_dir_path())


def records() -> list[dict[str, Any]]:
    import ray

    nodes: list[dict[str, Any]] = ray.nodes()
    return nodes


def actor_on(request: StartAgent, package: Any, digest: str) -> Any:
    """Start an agent; it has the node's GPUs from Ray for as long as it lives, so that no other job
    runs beside it."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    kind, source = agent_kind()
    return kind.options(
        num_cpus=0,
        num_gpus=request.gpus,
        max_restarts=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(request.node_id, soft=False),
    ).remote(source, request.address, package, digest, session_folder)


@cache
def agent_kind() -> tuple[Any, str]:
    """Return the class of all agents for Ray, and the guardian's source. Ray sends a class to its
    head once, however many agents there are."""
    import ray

    # nodes need no Anubis: its code travels in the actor
    for module in (agent_module, forked_python, guardian, machine):
        ray.cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    # two groups of threads, so that it answers while programs run; ray's types know nothing of it
    groups: Any = {"concurrency_groups": {"control": PROGRAMS_AT_ONCE, "work": PROGRAMS_AT_ONCE}}
    return ray.remote(**groups)(agent_module.Agent), Path(guardian.__file__).read_text()


def dismiss(handle: Any) -> None:
    """End an agent for good: if the node comes back, what its agent runs would disturb other
    programs."""
    import ray

    ray.kill(handle)


def answer_in(number: int, future: Future[Any]) -> Answer:
    from ray.exceptions import ActorUnavailableError, RayTaskError

    error = future.exception()
    if error is None:
        return Answer(number=number, value=future.result())
    if isinstance(error, RayTaskError):  # the agent is well, but could not do it
        return Answer(number=number, trouble=shorten_error(error.cause))
    if isinstance(error, ActorUnavailableError):  # for now: the next ping will tell
        return Answer(number=number, trouble="Ray cannot reach it at the moment")
    return Answer(number=number, trouble=explain_loss(error), gone=True)


def explain_loss(error: object) -> str:
    """Say why an agent will never answer again, in words for the verdict."""
    if "node has died" in str(error):
        return "the node left the ray cluster: it crashed, its ray was ended, or it was cut off"
    return f"its agent is gone: {shorten_error(error)}"


def shorten_error(error: object) -> str:
    """Return the sentence of a long error of Ray that gives the reason, or else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "because" in line or "reason" in line.lower()]
    sentence = (telling or lines or [type(error).__name__])[0]
    return re.split(r"\s*(?:Node|Actor) Id:", sentence, flags=re.IGNORECASE)[0][:300]


if __name__ == "__main__":
    main()
