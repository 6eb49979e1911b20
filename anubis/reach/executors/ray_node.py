"""The start of Ray on one machine, or a report of what that machine has: `ray_node.py REQUEST`.

It travels to the nodes as text and runs under the guardian, in a folder that ends with it: the
standard library alone. The driver judges its findings.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import random
import resource
import shutil
import socket
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NoReturn

OWN_FOLDER = "r"  # of Ray, in that of its start; a short name: sockets lie below it
SERVICES = (
    "--node-manager-port",
    "--object-manager-port",
    "--runtime-env-agent-port",
    "--dashboard-agent-grpc-port",
    "--dashboard-agent-listen-port",
    "--metrics-export-port",
    "--ray-client-server-port",
)
WORKERS = 9  # an agent, the driver, and some that Ray starts in advance
PORTS_NEEDED = len(SERVICES) + WORKERS
OBJECTS_BYTES = 256 << 20  # programs travel through Ray's store, and little else
FILES = 65536  # open files that Ray asks for
PAIR_TEST_PATIENCE_S = 5.0  # for the partner's server to accept

RayRequest = dict[str, Any]


def look(request: RayRequest) -> dict[str, Any]:
    """Return the facts that doctor judges. `time` last: it is compared with the driver's."""
    shared = shutil.disk_usage("/dev/shm") if Path("/dev/shm").is_dir() else None
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "ray": ray_version(),
        "free_ports": len(free_ports(request["ports"], PORTS_NEEDED)),
        "memlock_bytes": hard_limit(resource.RLIMIT_MEMLOCK),
        "hcas": len(list(Path("/sys/class/infiniband").glob("*"))),
        "shm_bytes": shared.total if shared else 0,
        "shm_free_bytes": shared.free if shared else 0,
        "nofile": hard_limit(resource.RLIMIT_NOFILE),
        **meet(request),
        "time": time.time(),  # wall clock: this is what is looked at
    }


def ray_version() -> str:
    try:
        return importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        return ""


def hard_limit(kind: int) -> int | None:
    """Return the hard limit; None if there is none."""
    limit = resource.getrlimit(kind)[1]
    return None if limit == resource.RLIM_INFINITY else limit


def address_towards(host: str, port: int) -> str:
    """Return the address of this machine by which packets leave for there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))
        address: str = probe.getsockname()[0]
        return address


def free_ports(ports: Iterable[int], count: int) -> list[int]:
    """Return as many free ports as are asked for, in any order, so that two processes seldom choose
    the same."""
    choices = list(ports)
    random.shuffle(choices)
    free: list[int] = []
    with ExitStack() as bound:  # Ray listens on all addresses, and these are let go together
        while choices and len(free) < count:
            probe = bound.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("", choices.pop()))
                free.append(probe.getsockname()[1])
    return free


def meet(request: RayRequest) -> dict[str, str]:
    """Check that this machine reaches the driver, and is reached by it, at ports of the range."""
    host, port = request["driver"]
    facts = {"address": "", "out_trouble": "", "back_trouble": ""}
    try:
        facts["address"] = address_towards(host, port)
        (port_here,) = free_ports(request["ports"] or [0], 1) or [0]
        with socket.create_server(("", port_here)) as server:
            facts["back_trouble"] = ask_for_connection(host, port, server.getsockname()[1])
    except OSError as error:
        facts["out_trouble"] = error.strerror or str(error)
    return facts


def ask_for_connection(host: str, port: int, port_here: int) -> str:
    """Ask the driver to connect to this port; its answer is why it could not."""
    with socket.create_connection((host, port), timeout=PAIR_TEST_PATIENCE_S) as line:
        line.settimeout(2 * PAIR_TEST_PATIENCE_S)
        line.sendall(f"{os.environ['ANUBIS_PASSWORD']} {port_here}\n".encode())
        answer = b"".join(iter(lambda: line.recv(1024), b""))
    return answer.decode(errors="replace")


# --- Ray -----------------------------------------------------------------------------------


def refuse_another(request: RayRequest) -> None:
    """Refuse another Ray: other versions would not join, and say so at length."""
    if (version := ray_version()) != request["ray"]:
        has = f"has Ray {version}" if version else "has no Ray"
        sys.exit(f"{sys.executable} {has}, and the driver has {request['ray']}")
    python = platform.python_version()
    if python.split(".")[:2] != request["python"].split(".")[:2]:
        sys.exit(f"{sys.executable} is Python {python}, and the driver's is {request['python']}")


def command(request: RayRequest, ports: list[int], folder: Path) -> list[str]:
    words = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
        *("--disable-usage-stats", "--include-log-monitor=false"),
        *("--num-gpus=0", f"--object-store-memory={OBJECTS_BYTES}"),
        f"--node-ip-address={request['address']}",
        f"--node-name={request['name']}",
        f"--temp-dir={folder / OWN_FOLDER}",  # which it opens to everybody
    ]
    services: tuple[str, ...] = SERVICES[:-1]
    if request["is_head"]:
        port = request["head"].rpartition(":")[2]
        words += ["--head", f"--port={port}", "--num-cpus=0", "--no-monitor"]
        words += ["--include-dashboard=false", f"--system-config={json.dumps(request['health'])}"]
        if importlib.util.find_spec("grpc"):  # then Ray serves its clients, too
            services = SERVICES
    else:
        words += [f"--address={request['head']}", "--num-cpus=1"]
    if ports:
        words += [f"{name}={port}" for name, port in zip(services, ports, strict=False)]
        words += [f"--worker-port-list={','.join(map(str, ports[len(SERVICES) :]))}"]
    return words


def environment(folder: Path) -> dict[str, str]:
    """Return an environment with the token in a file that only its owner may read, and without the
    address of another Ray."""
    settings = {name: text for name, text in os.environ.items() if name != "RAY_ADDRESS"}
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(settings.pop("RAY_AUTH_TOKEN"))
    return {**settings, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}


def become_ray(request: RayRequest) -> NoReturn:
    refuse_another(request)
    folder = Path.cwd()
    ports: list[int] = []
    if request["ports"]:
        ports = free_ports(request["ports"], PORTS_NEEDED)
        if len(ports) < PORTS_NEEDED:
            sys.exit(f"of its ports {len(ports)} are free, and Ray needs {PORTS_NEEDED}")
    if not request["is_head"]:
        host, _, port = request["head"].rpartition(":")
        request["address"] = address_towards(host, int(port))
    with suppress(ValueError, OSError):  # programs have it from Ray, and NCCL opens many files
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, FILES) if hard >= 0 else FILES, hard))
    settings = environment(folder)
    os.execve(sys.executable, command(request, ports, folder), settings)


def main() -> None:
    request: RayRequest = json.loads(sys.argv[1])
    first, last = request["ports"] or (0, -1)
    request["ports"] = range(first, last + 1)
    if request["task"] == "look":
        json.dump(look(request), sys.stdout)
    else:
        become_ray(request)


if __name__ == "__main__":
    main()
