"""Real ssh servers for a test: one in each host of a test bed without Ray. It asserts nothing."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.edges.bed import Bed, why_not

PORT = 2222  # told to ssh by its configuration alone
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin") or ""
SERVER = """Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
"""
CLIENT = """Host node*
  Port {port}
  User root
  IdentityFile {folder}/user
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
"""


def why_no_ssh() -> str:
    return why_not() or ("" if SSHD else "ssh needs its server: apt-get install openssh-server")


class SshBed(Bed):
    """`ssh_config` is the client's; a host that is left out has no server."""

    def __init__(
        self, folder: Path, nodes: int, *options: str, without: Sequence[str] = ()
    ) -> None:
        super().__init__(nodes, "--no-ray", *options)
        self.folder = folder
        self.ssh_config = folder / "ssh_config"
        self._served = [node for node in self.nodes if node not in without]

    def __enter__(self) -> SshBed:
        super().__enter__()
        try:
            self._make_keys()
            for node in self._served:
                self.serve(node)
        except BaseException:
            self.verb("down")
            raise
        return self

    def _make_keys(self) -> None:
        for key in ("host", "user"):
            argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key)]
            subprocess.run(argv, check=True)
        public = (self.folder / "host.pub").read_text()
        names = ",".join(f"[{node}]:{PORT}" for node in self.nodes)
        (self.folder / "known_hosts").write_text(f"{names} {public}")
        (self.folder / "sshd_config").write_text(SERVER.format(port=PORT, folder=self.folder))
        self.ssh_config.write_text(CLIENT.format(port=PORT, folder=self.folder))
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # it asks for that

    def serve(self, node: str, *before: str) -> None:
        """It goes into the background once it listens. `before`: what starts it, if not we."""
        log = str(self.folder / f"{node}.log")
        self.run(node, [*before, SSHD, "-f", str(self.folder / "sshd_config"), "-E", log])

    def programs_of(self, node: str, mark: str) -> list[str]:
        """Command lines in a host that have this in them."""
        return [line for line in self.processes_of(node) if mark in line]

    def processes_of(self, node: str) -> list[str]:
        lines = []
        for pid in self.pids_of(node):
            with suppress(OSError):  # it has just ended
                lines.append(Path("/proc", pid, "cmdline").read_text().replace("\0", " "))
        return lines

    def pids_of(self, host: str) -> list[str]:
        """Ids of a node's processes, or of the driver's."""
        procs = Path(f"/sys/fs/cgroup/cpu/testbed-{self.name}/{host}/cgroup.procs")
        if not procs.exists():
            procs = Path(f"/sys/fs/cgroup/testbed-{self.name}/{host}/cgroup.procs")
        return procs.read_text().split()
