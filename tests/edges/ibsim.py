"""A simulated InfiniBand fabric that the real infiniband-diags read. No asserts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from anubis.core.fabric import Fabric
from tests.patience import eventually

DIAGS = ("ibnetdiscover", "ibqueryerrors", "perfquery")

ANSWER_S = 20
# A tool may wait for ever while ibsim comes up, and crashes now and then under ibsim's library.
# Its half of an answer is dropped with the shell's word on the crash, and it is asked again.
WRAPPER = """\
#!/bin/sh
cd '{folder}'
warnings=$(mktemp)
for _ in 1 2 3; do
    {{
        said=$({command} "$@")
        code=$?
    }} 2>"$warnings"
    [ "$code" -lt 124 ] && break
done
printf '%s\\n' "$said"
cat "$warnings" >&2
rm "$warnings"
exit "$code"
"""


def net_of(fabric: Fabric) -> str:
    """The file that ibsim makes a simulated fabric of: every port of every switch and HCA."""
    ends: dict[str, list[str]] = {switch.id: [] for switch in fabric.switches}
    hcas = []
    for nic in fabric.nics:
        name = f"{nic.node} {nic.device}"
        ends[nic.switch].append(f'"{name}"[1]')
        hcas.append(f'Hca\t1 "{name}"\n[1]\t"{nic.switch}"[{len(ends[nic.switch])}]\n')
    for link in fabric.links:
        for _ in link.cables:
            a, b = len(ends[link.a]) + 1, len(ends[link.b]) + 1
            ends[link.a].append(f'"{link.b}"[{b}]')
            ends[link.b].append(f'"{link.a}"[{a}]')
    switches = [
        "\n".join([f'Switch\t{len(far)} "{name}"', *(f"[{i}]\t{e}" for i, e in enumerate(far, 1))])
        for name, far in ends.items()
    ]
    return "\n\n".join([*switches, *hcas]) + "\n"


class Simulator:
    """ibsim with its console, the wrappers that lead the tools to it, and a subnet manager."""

    def __init__(self, fabric: Fabric, folder: Path, further: Sequence[str] = ()) -> None:
        tools = (*DIAGS, *further)
        missing = [tool for tool in ("ibsim", "opensm", *tools) if not shutil.which(tool)]
        if missing:
            pytest.skip(f"absent: {', '.join(missing)} (scripts/tools installs them)")
        self._folder = folder  # the tools leave a stand-in for /sys where they run
        (folder / "net").write_text(net_of(fabric))
        self.programs = folder / "diags"
        self.programs.mkdir()
        self._environment = {
            **os.environ,
            "IBSIM_SOCKNAME": f"anubis-{os.getpid()}-{folder.name}",
            "SIM_HOST": f"{fabric.nics[0].node} {fabric.nics[0].device}",
            "OSM_CACHE_DIR": str(folder),
            "OSM_TMP_DIR": str(folder),
        }
        for tool in tools:
            self._lead_here(tool)
        self._said = folder / "ibsim.log"
        with self._said.open("w") as said:
            self._simulator = subprocess.Popen(
                ["ibsim", "-s", "net"],
                cwd=folder,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        self._manager: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Simulator:
        if not eventually(lambda: self.run("ibnetdiscover").returncode == 0):
            self.__exit__()
            pytest.fail("ibsim did not come up in 20 s")
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self._manager, self._simulator):
            if process:
                process.kill()
                process.communicate()

    @property
    def path(self) -> str:
        """A path with these tools before all others."""
        return f"{self.programs}{os.pathsep}{os.environ['PATH']}"

    def manage(self) -> None:
        """Start the subnet manager, without which no counter can be read."""
        self._manager = subprocess.Popen(
            ["ibsim-run", "opensm", "-f", "opensm.log"],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.settle()

    def settle(self) -> None:
        """Wait until every port can be asked, by the routes of the fabric as it is now."""
        if not eventually(lambda: "query failed" not in self._errors()):
            pytest.fail("opensm did not bring the fabric up in 20 s")

    def tell(self, *commands: str) -> None:
        """Type this at ibsim's console."""
        stdin, before = self._simulator.stdin, self._prompts()
        assert stdin
        stdin.write("".join(f"{command}\n" for command in commands))
        stdin.flush()
        if not eventually(lambda: self._prompts() >= before + len(commands)):
            pytest.fail("ibsim did not obey in 30 s")

    def run(self, tool: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Answer of the tool, with its exit code."""
        command = [str(self.programs / tool), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def _prompts(self) -> int:
        return self._said.read_text().count("sim> ")

    def _errors(self) -> str:
        done = self.run("ibqueryerrors")
        return done.stderr if "## Summary" in done.stdout else "query failed"

    def _lead_here(self, tool: str) -> None:
        names = ("IBSIM_SOCKNAME", "SIM_HOST")
        given = " ".join(f"{name}='{self._environment[name]}'" for name in names)
        command = f"env {given} timeout {ANSWER_S} ibsim-run {shutil.which(tool)}"
        file = self.programs / tool
        file.write_text(WRAPPER.format(folder=self._folder, command=command))
        file.chmod(0o755)
