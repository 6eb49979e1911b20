"""A process that has loaded what programs need, and programs as its children: kit/forks.py.

No asserts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile

from tests.patience import LIMIT_S

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from kit import forks

STAND_IN = """#!{python} -IS
import os, sys
sys.path.insert(0, {here!r})
from forks import stand_in
os.environ["ANUBIS_FORKS"] = {address!r}
stand_in(sys.argv[1:])
"""


class ForkServer:
    def __init__(self, folder: Path, *modules: str) -> None:
        """Load these modules; torch if none is named."""
        self._modules = modules
        self._address = f"{folder}/address"
        self._stand_in = folder / "python"
        self._stand_in.write_text(
            STAND_IN.format(
                python=sys.executable,
                here=str(Path(forks.__file__).parent),
                address=self._address,
            )
        )
        self._stand_in.chmod(0o755)

    def __enter__(self) -> ForkServer:
        self._server = subprocess.Popen(
            [sys.executable, forks.__file__, self._address, *self._modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._server.stdout
        self._server.stdout.readline()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate()

    def ask(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str] | None,
        folder: Path,
        limit_s: float = LIMIT_S,
    ) -> tuple[int, str, str]:
        """Its exit code, stdout and stderr."""
        given = dict(os.environ if environment is None else environment)
        given["PYTHON_EXEC"] = str(self._stand_in)  # by which torchrun starts ranks
        with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
            files = (out.fileno(), err.fileno())
            code = forks.ask(self._address, list(argv), files, given, str(folder), limit_s)
            out.seek(0)
            err.seek(0)
            return code, out.read(), err.read()
