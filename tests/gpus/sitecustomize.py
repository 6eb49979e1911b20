"""Read by Python at the start of each process whose PYTHONPATH names this folder.

What it runs finds a driver's library, and a torch that has GPUs.
"""

from __future__ import annotations

import ctypes
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any


class AfterTorch(MetaPathFinder):
    """Gives torch its GPUs as soon as it is loaded."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def load_and_pose(module: Any) -> None:
            load(module)
            note_load()
            install()

        spec.loader.exec_module = load_and_pose  # type: ignore[method-assign]
        return spec


def note_load() -> None:
    """Note that a process loaded torch in the file that FAKE_LOADS names."""
    if file := os.environ.get("FAKE_LOADS"):
        with open(file, "a") as loads:  # noqa: PTH123 # pathlib would be loaded for it
            loads.write(f"{os.getpid()}\n")


def install() -> None:
    import fake_cuda

    fake_cuda.install()


if "FAKE_GPUS" in os.environ:
    for library in filter(None, os.environ["FAKE_DRIVER"].split(os.pathsep)):
        ctypes.CDLL(library)  # found by its name from now on
    if "torch" in sys.modules:
        install()
    else:
        sys.meta_path.insert(0, AfterTorch())
