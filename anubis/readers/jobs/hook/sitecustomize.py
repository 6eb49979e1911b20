"""A hook that makes a job answer how far its collectives are, without a change to its code.

With this folder on PYTHONPATH and ANUBIS_LIVE_DIR set, every rank that imports torch.distributed
starts PyTorch's own worker server on a unix socket in that folder, which only its owner may enter,
and announces itself there. Other programs are not slowed. It runs inside the programs of others: it
imports the standard library only, when it is needed, and its failures must not fail them. A
sitecustomize that was there before is run too.
"""

import sys

HOOKED = "torch.distributed.distributed_c10d"


def _start(folder: str, rank: int) -> object:
    import json
    import os
    import socket
    from pathlib import Path

    place = Path(folder)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = place.lstat()
    above = place.parent.stat()
    if owner.st_uid != os.getuid() or owner.st_mode & 0o077:
        raise PermissionError(f"others may enter {folder}")
    if above.st_mode & 0o022 and not above.st_mode & 0o1000:
        raise PermissionError(f"others may exchange {folder}: {place.parent} has no sticky bit")
    path = str(place / f"{rank}.{os.getpid()}.sock")
    # by now torch has loaded it
    server = sys.modules["torch._C._distributed_c10d"]._WorkerServer(path, -1)
    words = {
        "rank": rank,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "socket": path,
        "world": int(os.environ.get("WORLD_SIZE", "0")),
        "here": int(os.environ.get("LOCAL_WORLD_SIZE", "0")),
    }
    beside = place / f".{rank}.{os.getpid()}.new"
    _write_new(str(beside), json.dumps(words))
    beside.replace(place / f"{rank}.json")
    return server


def _write_new(file: str, text: str) -> None:
    """Write a new file. Others may write to this folder, so no link in it is followed."""
    import os
    from contextlib import suppress

    with suppress(FileNotFoundError):
        os.unlink(file)  # noqa: PTH108 # pathlib is not loaded yet
    number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(number, "w", encoding="utf-8") as opened:
        opened.write(text)


def _note(folder: str, rank: int, why_not: str) -> None:
    from contextlib import suppress

    with suppress(OSError):
        _write_new(f"{folder}/{rank}.refused", why_not)


class _Loader:
    """The real loader, which also starts the server."""

    def __init__(self, loader: object, folder: str, rank: int) -> None:
        self._loader, self._folder, self._rank = loader, folder, rank

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: object) -> object:
        return self._loader.create_module(spec)  # type: ignore[attr-defined]

    def exec_module(self, module: object) -> None:
        self._loader.exec_module(module)  # type: ignore[attr-defined]
        try:
            sys.anubis_live = _start(self._folder, self._rank)  # type: ignore[attr-defined]
        except Exception as cause:
            _note(self._folder, self._rank, str(cause))


class _Finder:
    def __init__(self, folder: str, rank: int) -> None:
        self._folder, self._rank = folder, rank

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name != HOOKED:
            return None
        import importlib.machinery

        spec = importlib.machinery.PathFinder.find_spec(name, path)  # type: ignore[arg-type]
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._folder, self._rank)  # type: ignore[assignment]
        return spec


def _install() -> None:
    import os

    folder, rank = os.environ.get("ANUBIS_LIVE_DIR"), os.environ.get("RANK", "")
    if folder and rank.isdigit():
        sys.meta_path.insert(0, _Finder(folder, int(rank)))  # type: ignore[arg-type]


def _chain() -> None:
    """Run the next sitecustomize too: Python runs only the first of its path."""
    import importlib.machinery
    import importlib.util
    import os

    own = __file__.rpartition(os.sep)[0]
    path = [entry for entry in sys.path if os.path.realpath(entry or ".") != os.path.realpath(own)]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    _install()
    _chain()
