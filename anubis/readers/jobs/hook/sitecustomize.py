"""A hook that makes a job answer how far its collectives are, without a change to its code.

With this folder on PYTHONPATH and ANUBIS_LIVE_DIR set, every rank that imports torch.distributed
starts PyTorch's own worker server on a unix socket in that folder, which only its owner may enter,
and announces itself there: at the import if RANK says which rank it is, else when it joins the job
(init_process_group), by the arguments or by what its launcher set. Other programs are not slowed.
A rank that sends messages, of which gloo keeps no record, notes beside it how many they were and
where the program was, by a look every two seconds. The hook runs inside the programs of others: it
imports the standard library only, when it is needed, and its failures must not fail them. A
sitecustomize that was there before is run too.
"""

import sys

TYPE_CHECKING = False  # typing is not loaded
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import Any

HOOKED = "torch.distributed.distributed_c10d"
# as launchers name a process's rank, the number of ranks, and how many of them are on its machine
LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),  # torchrun, accelerate, Ray Train
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),  # MPICH, Intel MPI
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_TASKS_PER_NODE"),  # srun: 4(x2)
)
# as they name the job itself; MPI alone has a name of its own
JOB_NAMES = ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "MASTER_PORT")
MPI_JOB = "PMIX_NAMESPACE"
# the first parameters of init_process_group, in their order
JOINING = ("backend", "init_method", "timeout", "world_size", "rank")
MESSAGES = ("isend", "irecv", "send", "recv")  # functions by which stages of a pipeline talk
EVERY_S = 2.0  # a look at the program's own place
PARTS = 8  # of one length: two of the oldest become one of twice the length
LOOKS_A_NOTE = 3  # a note is up to six seconds old
DEEP = 6  # frames of a place, from the innermost
MOST_PLACES = 256  # of a program; a small one has ten


def _whole(text: object) -> int:
    """Return a number that is not negative; -1: it is none."""
    word = str(text)
    return int(word) if word.isascii() and word.isdigit() and len(word) < 8 else -1


def job_of(environment: "Mapping[str, str]") -> str:
    """Return how launchers name the job of a process; the same on all its machines. Empty if they
    set nothing."""
    names = filter(None, (environment.get(name) for name in JOB_NAMES))
    return "/".join(names) or environment.get(MPI_JOB, "")


class _Rank:
    """This process as a rank: announced once, by the number that is known first."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._rank = -1
        self._messages = 0

    def announce_early(self) -> None:
        """Announce a rank before it joins: only RANK is never set for a launcher. Processes that a
        rank starts have its environment, too, so a living rank is not replaced."""
        import os

        rank = _whole(os.environ.get("RANK"))
        if rank >= 0 and not self._is_taken(rank):
            self._announce(rank, 0)

    def announce(self, rank: object, world: object) -> None:
        import os

        own = _whole(rank)
        names = (variables[0] for variables in LAUNCHERS)
        numbers = (_whole(os.environ.get(name)) for name in names)
        own = own if own >= 0 else next((number for number in numbers if number >= 0), -1)
        if own >= 0 and own != self._rank:
            self._announce(own, max(_whole(world), 0))

    def note_joined(self) -> None:
        """Add to the announcement when the rank had joined, and for how long its program had waited
        for a processor by then: what follows is its work."""
        import json
        import os
        import time
        from pathlib import Path

        file = Path(self._folder, f"{self._rank}.{os.getpid()}.json")
        words = json.loads(file.read_text())
        if words["pid"] == os.getpid():
            waited_ns = int(Path("/proc/self/schedstat").read_text().split()[1])
            _write_words(str(file), words | {"joined": time.monotonic(), "waited_ns": waited_ns})

    def count_message(self) -> None:
        """Count a message. The first one begins the notes of the past."""
        self._messages += 1
        if self._messages == 1:
            import threading
            from contextlib import suppress

            def record(speaker: int = threading.get_ident()) -> None:
                with suppress(Exception):
                    self._record(speaker)

            with suppress(RuntimeError):  # it may start no more threads
                threading.Thread(target=record, daemon=True).start()

    def _record(self, speaker: int) -> None:
        import os
        import time

        levels: list[list[_Part]] = []
        places: dict[str, int] = {}
        counted, began = self._messages, time.time()  # wall clock: looks are dated by it
        while True:
            for _ in range(LOOKS_A_NOTE):
                time.sleep(EVERY_S)
                frame = sys._current_frames().get(speaker)
                if frame is None:
                    return  # it has ended
                place = ";".join(_frames(frame))
                if len(places) < MOST_PLACES:
                    places.setdefault(place, len(places))
                number = places.get(place, -1)
                now, messages = time.time(), self._messages  # wall clock: likewise
                _add_part(levels, [now, now - began, messages - counted, {number: 1}])
                counted, began = messages, now
            parts = [part for level in reversed(levels) for part in level]
            past = {"places": list(places), "parts": parts}
            _write_words(f"{self._folder}/{self._rank}.{os.getpid()}.past", past)

    def _is_taken(self, rank: int) -> bool:
        import os

        job, own = job_of(os.environ), os.getpid()
        return any(
            is_alive and words.get("job", "") == job and words["pid"] != own
            for _, words, is_alive in _announcements(self._folder, rank)
        )

    def _announce(self, rank: int, world: int) -> None:
        try:
            sys.anubis_live = _start(self._folder, rank, world)  # type: ignore[attr-defined]
            self._rank = rank
        except Exception as cause:
            _note(self._folder, rank, str(cause))


_Part = list["Any"]  # when it ended, its length, messages, and looks at each place by its number


def _frames(frame: "Any") -> list[str]:
    """Return where a thread is, innermost last, as stacks are written."""
    frames: list[str] = []
    while frame is not None and len(frames) < DEEP:
        code = frame.f_code
        frames.insert(0, f"{code.co_name} ({code.co_filename}:0)")
        frame = frame.f_back
    return frames


def _add_part(levels: list[list[_Part]], part: _Part) -> None:
    """Add the newest part to the first level. A full level joins its two oldest into one of the
    next: so days take few parts, and the last minutes are fine."""
    for level in levels:
        level.append(part)
        if len(level) <= PARTS:
            return
        first, second = level.pop(0), level.pop(0)
        looks = {
            place: first[3].get(place, 0) + second[3].get(place, 0)
            for place in first[3].keys() | second[3].keys()
        }
        part = [second[0], first[1] + second[1], first[2] + second[2], looks]
    levels.append([part])


def _announcements(folder: str, rank: int) -> "Iterator[tuple[Path, dict[str, Any], bool]]":
    """Yield announcements of a rank: the file, its words, and whether that process lives here."""
    import json
    from pathlib import Path

    for file in Path(folder).glob(f"{rank}.*json"):
        try:
            words = json.loads(file.read_text())
            here = _pid_namespace()
            is_here = words.get("pid_namespace", here) == here  # else its pod has ended
            is_alive = is_here and _began(int(words["pid"])) == words.get("began")
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            is_alive, words = False, {}
        yield file, words, is_alive


def _began(pid: int) -> int:
    """Return when a process began, in ticks since the machine did: ids are used again."""
    from pathlib import Path

    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def _start(folder: str, rank: int, world: int) -> object:
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
    names = next((names for names in LAUNCHERS if names[0] in os.environ), LAUNCHERS[0])
    size, here = (_whole(os.environ.get(name, "").partition("(")[0]) for name in names[1:])
    words = {
        "rank": rank,
        "pid": os.getpid(),
        "pid_namespace": _pid_namespace(),
        "host": socket.gethostname(),
        "socket": path,
        "world": world or max(size, 0),
        "here": max(here, 0),
        "job": job_of(os.environ),
        "began": _began(os.getpid()),
    }
    for file, earlier, is_alive in _announcements(folder, rank):
        if not is_alive or earlier.get("job", "") == words["job"]:  # it has ended, or was too early
            for suffix in (".json", ".past", ".sock"):
                if (stale := str(file.with_suffix(suffix))) != path:
                    Path(stale).unlink(missing_ok=True)
    _write_words(str(place / f"{rank}.{os.getpid()}.json"), words)
    return server


def _write_words(file: str, words: dict[str, object]) -> None:
    import json
    import os

    beside = f"{file}.{os.getpid()}.new"
    _write_new(beside, json.dumps(words))
    os.replace(beside, file)  # noqa: PTH105 # pathlib is not loaded yet


def _pid_namespace() -> int:
    """Return the namespace in which the id of this process counts: a pod has its own."""
    import os

    return os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 # pathlib is not loaded yet


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
    """The real loader, which also announces the rank, now or when it joins."""

    def __init__(self, loader: object, rank: _Rank) -> None:
        self._loader, self._rank = loader, rank

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: object) -> object:
        return self._loader.create_module(spec)  # type: ignore[attr-defined]

    def exec_module(self, module: object) -> None:
        self._loader.exec_module(module)  # type: ignore[attr-defined]
        try:
            self._rank.announce_early()
            _announce_joining(module, self._rank)
            for name in MESSAGES:
                setattr(module, name, _count_calls(getattr(module, name), self._rank))
        except Exception:
            return  # the program comes first


def _announce_joining(module: object, rank: _Rank) -> None:
    import functools

    join = module.init_process_group  # type: ignore[attr-defined]

    @functools.wraps(join)
    def init_process_group(*arguments: object, **named: object) -> object:
        parameters = dict(zip(JOINING, arguments, strict=False)) | named
        rank.announce(parameters.get("rank"), parameters.get("world_size"))
        joined = join(*arguments, **named)
        try:
            rank.announce(module.get_rank(), module.get_world_size())  # type: ignore[attr-defined]
            rank.note_joined()
        except Exception:
            return joined
        return joined

    module.init_process_group = init_process_group  # type: ignore[attr-defined]


def _count_calls(function: "Any", rank: _Rank) -> object:
    import functools

    @functools.wraps(function)
    def counted(*arguments: object, **named: object) -> object:
        rank.count_message()
        return function(*arguments, **named)

    return counted


class _Finder:
    def __init__(self, rank: _Rank) -> None:
        self._rank = rank

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name != HOOKED:
            return None
        import importlib.machinery

        spec = importlib.machinery.PathFinder.find_spec(name, path)  # type: ignore[arg-type]
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._rank)  # type: ignore[assignment]
        return spec


def _install() -> None:
    import os

    if folder := os.environ.get("ANUBIS_LIVE_DIR"):
        sys.meta_path.insert(0, _Finder(_Rank(folder)))  # type: ignore[arg-type]


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
