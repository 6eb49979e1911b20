"""torch on a machine without GPUs, as if it had some: CPU tensors that pose as `cuda:i`.

`install()` is called in a program's process by `sitecustomize.py`, so that the program is run
unchanged and unaware. What is planted stands in the environment:

    FAKE_GPUS=8                 how many there are
    FAKE_GPU=<name>             what they are called; FAKE_CAPABILITY=9.0
    FAKE_MAKER=amd              they are AMD's, and torch is its build for ROCm; FAKE_CHIP=gfx942
    FAKE_FAULTS=3:hang,5:ecc    GPU 3 never ends what it is given; GPU 5 fails with an error of CUDA
                                (lost: no process sees it; copies: it fails when it copies; liar:
                                a processor of it errs in one product of 64, alike each time;
                                slow_products, slow_memory, slow_copies: it takes 50 times as long
                                for these; slow_launches: it begins each operation 1 ms late);
                                @FILE: what stands in a file, which may change meanwhile

GPUs are numbered as in the node, whatever CUDA_VISIBLE_DEVICES leaves of them. Tensors of two
devices in one operation are refused as CUDA would refuse them, and so is a generator of another
device. Nothing here is timed as a GPU would be, nothing is asynchronous, and memory never runs out.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import fake_blocks
import fake_sms
import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

ERRORS = {
    "ecc": "CUDA error: uncorrectable ECC error encountered\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the "
    "stacktrace below might be incorrect.\n"
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
}
MEMORY_BYTES = 80 << 30
CHOOSING = "CUDA_VISIBLE_DEVICES"
NAMES = {"nvidia": "NVIDIA H100 80GB HBM3", "amd": "AMD Instinct MI300X"}
PROCESSORS = {"nvidia": 132, "amd": 304}
MOVING = {"to", "cpu", "cuda"}  # to another device
ACROSS = {"copy_", "__get__", "__set__", "set_", "index_put_", "__setitem__", "__getitem__"}


# --- which GPUs there are ------------------------------------------------------------------


def faults() -> dict[int, str]:
    text = os.environ.get("FAKE_FAULTS", "")
    if text.startswith("@"):
        with open(text[1:]) as file:  # noqa: PTH123 # asked for before each operation
            text = file.read()
    words = text.split(",")
    pairs = [word.partition(":") for word in words if word]
    return {int(gpu): fault for gpu, _, fault in pairs}


def visible() -> list[int]:
    """The node's numbers of the GPUs that CUDA shows, or HIP: of what one list leaves, another may
    choose again."""
    present = range(int(os.environ.get("FAKE_GPUS", "8")))
    planted = faults()
    reached = [gpu for gpu in present if planted.get(gpu) != "lost"]
    if not is_amd():
        return listed_in("CUDA_VISIBLE_DEVICES", {gpu: gpu for gpu in reached})
    reached = listed_in("ROCR_VISIBLE_DEVICES", dict(enumerate(reached)))
    either = "HIP_VISIBLE_DEVICES" if "HIP_VISIBLE_DEVICES" in os.environ else CHOOSING
    return listed_in(either, dict(enumerate(reached)))


def listed_in(variable: str, by_number: dict[int, int]) -> list[int]:
    """A list ends at its first wrong word."""
    words = os.environ.get(variable)
    if words is None:
        return list(by_number.values())
    chosen: list[int] = []
    for word in words.split(","):
        number = word.strip().removeprefix("GPU-").removeprefix("MIG-")
        if not number.isdecimal() or int(number) not in by_number:
            break
        chosen.append(by_number[int(number)])
    return chosen


def maker() -> str:
    return os.environ.get("FAKE_MAKER", "nvidia")


def is_amd() -> bool:
    return maker() == "amd"


def index_of(device: Any = None) -> int:
    """Index of a device as torch takes it, in CUDA's numbers."""
    if device is None:
        return current.index
    if isinstance(device, int):
        return device
    device = torch.device(device)
    return current.index if device.index is None else device.index


class Current(threading.local):
    index = 0


current = Current()


begun = [False]  # CUDA, in this process


def begin() -> None:
    """Begin CUDA, at the first work for a GPU, and note it in the file that FAKE_BEGINS names."""
    if not begun[0] and (file := os.environ.get("FAKE_BEGINS")):
        with open(file, "a") as begins:  # noqa: PTH123 # pathlib would be loaded for it
            begins.write(f"{os.getpid()}\n")
    begun[0] = True


def work_on(index: int) -> None:
    """Do what is asked of a GPU; one that is sick does not."""
    begin()
    if index >= len(visible()):
        raise torch.AcceleratorError("CUDA error: invalid device ordinal")
    fault = faults().get(visible()[index], "")
    if fault == "hang":
        time.sleep(1e6)
    if fault in ERRORS:
        raise torch.AcceleratorError(ERRORS[fault])


LIAR = fake_sms.Fault(sms=frozenset({3}), flips=8, keeps=64)


def spoil(name: str, index: int, answer: Any, args: Sequence[Any]) -> None:
    fake_sms.spoil(name, index, answer, args)
    if faults().get(visible()[index]) == "liar":
        fake_sms.err(name, LIAR, answer)


def slow_down(name: str, gpus: set[int | None], began: float) -> None:
    """Let an operation take as long as it does on a GPU that is slow at its kind."""
    fault = next((faults().get(visible()[gpu], "") for gpu in gpus if gpu is not None), "")
    if not fault.startswith("slow"):
        return
    crosses = name in ACROSS and len(gpus) > 1
    kind = "copies" if crosses else "products" if name in fake_sms.PRODUCTS else "memory"
    if fault == f"slow_{kind}" and name != "__get__":
        time.sleep(49 * (time.perf_counter() - began))
    elif fault == "slow_launches" and not name.startswith("__"):
        time.sleep(1e-3)


def copy_on(index: int | None) -> None:
    if index is not None and faults().get(visible()[index]) == "copies":
        raise torch.AcceleratorError(ERRORS["ecc"])


# --- tensors that pose ---------------------------------------------------------------------


def gpu_of(tensor: torch.Tensor) -> int | None:
    return tensor.__dict__.get("fake_gpu")


def pose(thing: Any, gpu: int | None) -> Any:
    """It, and all tensors in it, as of that GPU."""
    if isinstance(thing, torch.Tensor):
        if gpu is None:
            thing.__dict__.pop("fake_gpu", None)
        else:
            thing.__dict__["fake_gpu"] = gpu
    elif isinstance(thing, list | tuple):
        for part in thing:
            pose(part, gpu)
    return thing


def tensors_in(things: Any) -> Iterator[torch.Tensor]:
    for thing in things:
        if isinstance(thing, torch.Tensor):
            yield thing
        elif isinstance(thing, list | tuple):
            yield from tensors_in(thing)


class Generator(torch.Generator):
    def __new__(cls, device: Any = "cpu") -> Generator:
        return super().__new__(cls, "cpu")

    def __init__(self, device: Any = "cpu") -> None:
        self.posed = torch.device(device)

    @property
    def device(self) -> torch.device:
        return self.posed


def is_device(word: Any) -> bool:
    return isinstance(word, torch.device) or (
        isinstance(word, str) and word.partition(":")[0] in ("cpu", "cuda")
    )


class Posing(TorchFunctionMode):
    """Every operation of torch: on the CPU, and its answer poses as of its arguments' GPU."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        if name == "__get__" and (answer := self.attribute(function, args[0])) is not None:
            return answer
        if function is torch.device:
            return function(*args, **kwargs)
        target = kwargs.pop("device", None)
        if name in MOVING:
            return self.moved(function, name, target, args, kwargs)
        kwargs.pop("pin_memory", None)
        if name == "pin_memory":
            return args[0].clone()
        gpu = self.common(name, args, kwargs)
        if target is not None:
            kind = (
                torch.device(target)
                if not isinstance(target, int)
                else torch.device("cuda", target)
            )
            gpu = index_of(kind) if kind.type == "cuda" else None
            kwargs["device"] = "cpu" if kind.type != "meta" else kind
        generator = kwargs.get("generator")
        if isinstance(generator, Generator) and (generator.device.type == "cuda") != (
            gpu is not None
        ):
            raise RuntimeError(
                f"Expected a '{'cuda' if gpu is not None else 'cpu'}' device type for generator "
                f"but found '{generator.device.type}'"
            )
        if gpu is not None and name not in ("__get__", "dim", "size", "numel"):
            work_on(gpu)
        if name == "copy_":
            for tensor in args[:2]:
                copy_on(gpu_of(tensor))
        if name == "_scaled_mm" and args[2].dim():  # scales in blocks
            function, kwargs = fake_blocks.multiply, {"out": kwargs["out"]}
        with nullcontext() if name != "_scaled_mm" else torch.backends.mkldnn.flags(enabled=False):
            began = time.perf_counter()
            answer = function(*args, **kwargs)  # oneDNN lacks MI300's fp8 on processors with AMX
            slow_down(name, {gpu_of(tensor) for tensor in tensors_in(args)}, began)
        if gpu is None:
            return answer
        spoil(name, gpu, answer, args)
        return pose(answer, gpu)

    def attribute(self, function: Any, tensor: torch.Tensor) -> Any:
        gpu = gpu_of(tensor)
        if gpu is None:
            return None
        if function == DEVICE:
            return torch.device("cuda", gpu)
        return True if function == IS_CUDA else None

    def moved(self, function: Any, name: str, target: Any, args: Any, kwargs: Any) -> Any:
        tensor, *rest = args
        words = [word for word in rest if is_device(word)]
        if name in ("cpu", "cuda"):
            words = [name]
        target = target if target is not None else next(iter(words), None)
        rest = [word for word in rest if not is_device(word)]
        before = after = gpu_of(tensor)
        if target is not None:
            after = index_of(target) if torch.device(target).type == "cuda" else None
        for gpu in (before, after):
            if gpu is not None:
                work_on(gpu)
        answer = tensor.to(*rest, **kwargs) if name == "to" and (rest or kwargs) else tensor
        if before != after and answer.data_ptr() == tensor.data_ptr():
            answer = answer.clone()
        return pose(answer, after)

    def common(self, name: str, args: Any, kwargs: Any) -> int | None:
        """The device of all tensors; a number without dimensions may come from the CPU."""
        tensors = [*tensors_in(args), *tensors_in(kwargs.values())]
        gpus = {gpu_of(tensor) for tensor in tensors if gpu_of(tensor) is not None or tensor.dim()}
        if len(gpus) > 1 and name not in ACROSS:
            names = sorted("cpu" if gpu is None else f"cuda:{gpu}" for gpu in gpus)
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{' and '.join(names)}! ({name})"
            )
        return gpu_of(tensors[0]) if name in ACROSS and tensors else next(iter(gpus), None)


DEVICE = torch.Tensor.device.__get__
IS_CUDA = torch.Tensor.is_cuda.__get__
POSING = Posing()


# --- torch.cuda ----------------------------------------------------------------------------


class Event:
    def __init__(self, **_: Any) -> None:
        self.at = 0.0

    def record(self, stream: Any = None) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        return max(1e-6, 1e3 * (end.at - self.at))

    def synchronize(self) -> None:
        pass

    def wait(self, stream: Any = None) -> None:
        pass

    def query(self) -> bool:
        return True


class Stream:
    def __init__(self, device: Any = None, **_: Any) -> None:
        self.device = torch.device("cuda", index_of(device))

    def wait_stream(self, other: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def record_event(self, event: Any = None) -> Event:
        event = event or Event()
        event.record()
        return event

    def synchronize(self) -> None:
        work_on(self.device.index)


@contextmanager
def on_stream(stream: Any) -> Iterator[None]:
    with on_device(stream.device if stream else None):
        yield


@contextmanager
def on_device(device: Any) -> Iterator[None]:
    before, current.index = current.index, index_of(device)
    try:
        yield
    finally:
        current.index = before


def properties(device: Any = None) -> SimpleNamespace:
    physical = visible()[index_of(device)]
    major, minor = capability()
    chip = {"gcnArchName": f"{os.environ.get('FAKE_CHIP', 'gfx942')}:sramecc+:xnack-"}
    return SimpleNamespace(
        **(chip if is_amd() else {}),
        name=card(),
        uuid=str(physical),
        major=major,
        minor=minor,
        total_memory=MEMORY_BYTES,
        multi_processor_count=PROCESSORS[maker()],
        pci_domain_id=0,
        pci_bus_id=0x1B + 0x20 * physical,
        pci_device_id=0,
    )


def card(device: Any = None) -> str:
    return os.environ.get("FAKE_GPU", NAMES[maker()])


def capability(device: Any = None) -> tuple[int, int]:
    major, _, minor = os.environ.get("FAKE_CAPABILITY", "9.0").partition(".")
    return int(major), int(minor)


def set_device(device: Any) -> None:
    work_on(index_of(device))
    current.index = index_of(device)


CUDA = {
    "is_available": lambda: bool(visible()),
    "is_initialized": lambda: begun[0],
    "_lazy_init": lambda: begin(),
    "device_count": lambda: len(visible()),
    "current_device": lambda: current.index,
    "set_device": set_device,
    "device": on_device,
    "get_device_name": card,
    "get_device_capability": capability,
    "get_device_properties": properties,
    "synchronize": lambda device=None: work_on(index_of(device)),
    "current_stream": lambda device=None: Stream(device),
    "default_stream": lambda device=None: Stream(device),
    "stream": on_stream,
    "Stream": Stream,
    "Event": Event,
    "mem_get_info": lambda device=None: (MEMORY_BYTES, MEMORY_BYTES),
    "memory_allocated": lambda device=None: 0,
    "max_memory_allocated": lambda device=None: 0,
    "reset_peak_memory_stats": lambda device=None: None,
    "empty_cache": lambda: None,
    "manual_seed": lambda seed: None,
    "manual_seed_all": lambda seed: None,
    "can_device_access_peer": lambda device, peer: True,
    "is_bf16_supported": lambda including_emulation=True: True,
}


def install() -> None:
    if torch.Generator is Generator:  # by the process that this one was forked from
        return
    for name, stand_in in CUDA.items():
        setattr(torch.cuda, name, stand_in)
    torch.cuda.nccl.version = lambda: (2, 27, 3)
    torch.version.cuda, torch.version.hip = (None, "6.4") if is_amd() else ("12.8", None)
    torch.Generator = Generator  # type: ignore[misc]
    keep_posing()
    stand_in_for_nccl()
    as_on_the_cpu = torch.autocast

    def autocast(device_type: str, *rest: Any, **options: Any) -> Any:
        return as_on_the_cpu("cpu" if device_type == "cuda" else device_type, *rest, **options)

    torch.autocast = autocast  # type: ignore[misc,assignment]
    POSING.__enter__()
    run = threading.Thread.run

    def run_posing(thread: threading.Thread) -> None:
        with POSING:
            run(thread)

    threading.Thread.run = run_posing  # type: ignore[method-assign]


def keep_posing() -> None:
    """Pose also if torch makes tensors without asking a mode."""
    make, apply = torch.nn.Parameter.__new__, torch.autograd.Function.apply.__func__

    def parameter(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        made = make(cls, data, requires_grad)
        return made if data is None else pose(made, gpu_of(data))

    def applied(cls: Any, *args: Any, **kwargs: Any) -> Any:
        gpus = [gpu_of(tensor) for tensor in tensors_in(args)]
        return pose(apply(cls, *args, **kwargs), next(iter(gpus), None))

    torch.nn.Parameter.__new__ = parameter  # type: ignore[method-assign]
    torch.autograd.Function.apply = classmethod(applied)  # type: ignore[method-assign,assignment]


def stand_in_for_nccl() -> None:
    new_group = dist.new_group

    def grouped(*args: Any, **options: Any) -> Any:
        if options.get("backend") == "nccl":
            options["backend"] = "gloo"
        return new_group(*args, **options)

    dist.new_group = grouped
    dist.is_nccl_available = lambda: True
