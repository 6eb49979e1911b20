"""The drawings of DESIGN section 3, held against the imports of every file."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from itertools import accumulate, pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "anubis").rglob("*.py"))

DESIGN = (ROOT / "DESIGN.md").read_text()


def drawing(after: str) -> list[str]:
    """The lines of the drawing that follows a sentence of DESIGN.md, without the strokes."""
    block = DESIGN.split(after)[1].lstrip("\n").split("\n\n")[0]
    return [line.strip() for line in block.splitlines() if line.strip(" │")]


def names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


# from the centre outwards; a part may import from its own line's parts and from those before it
LAYERS = tuple(
    names(line.partition(":")[0])
    for line in reversed(drawing("An import goes down or stays on its line, never up:"))
)
# the rooms of core, and which others each may enter; all may import from the base
*ROOM_LINES, BASE_LINE = drawing("All may enter the base:")
ROOMS = {
    room.strip(): set(names(entered)) - {""}
    for room, _, entered in (line.partition("→") for line in ROOM_LINES)
}
BASE = set(names(BASE_LINE.removeprefix("base:")))
PURE = {"numpy", "scipy", "statsmodels", "numba"}
IMPURE = {"os", "pathlib", "time", "random", "socket", "subprocess", "threading", "sqlite3"}
ONLY_IN = {
    "ray": "anubis/reach/executors/ray_process.py",
    "sqlalchemy": "anubis/store/",
    "alembic": "anubis/store/",
    "torch": "anubis/models/",
    "torchtuples": "anubis/models/risk/cox_time_training.py",
    "pycox": "anubis/models/risk/cox_time_training.py",
    "typer": "anubis/cli/",
    "fastapi": "anubis/service/",
    "starlette": "anubis/service/",
    "uvicorn": "anubis/service/",
    "prometheus_client": "anubis/service/",
    "jinja2": "anubis/report/",
    "pydantic": ("anubis/text/reading.py", "anubis/report/schemas.py"),
    "yaml": "anubis/text/files.py",
    "kubernetes": "anubis/reach/orchestrators/kubernetes_api.py",
}


@cache
def parsed(file: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file's tree; a dozen tests look at each file."""
    return tuple(ast.walk(ast.parse(file.read_text())))


@cache
def imports(file: Path) -> frozenset[str]:
    """Every module a file imports anywhere, late imports included."""
    found: set[str] = set()
    for node in parsed(file):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def part(module: str) -> str:
    """`anubis.core.judge.ecdf` belongs to `core`; `anubis` itself to `__init__`."""
    words = module.split(".")
    known = {name for layer in LAYERS for name in layer}
    return words[1] if len(words) > 1 and words[1] in known else "__init__"


def rank(name: str) -> int:
    return next(i for i, layer in enumerate(LAYERS) if name in layer)


def part_of(file: Path) -> str:
    return file.relative_to(ROOT / "anubis").parts[0].removesuffix(".py")


def test_imports_point_inwards():
    outwards = [
        f"{file.relative_to(ROOT)} must not import {module}"
        for file in FILES
        for module in imports(file)
        if module.split(".")[0] in {"benchmarks", "tests"}
        or (module.split(".")[0] == "anubis" and rank(part(module)) > rank(part_of(file)))
    ]
    assert not outwards


def test_simulated_fleets_and_the_study_of_policies_know_nothing_of_each_other():
    for room, other in (("simulation", "study"), ("study", "simulation")):
        for file in (ROOT / "anubis" / "lab" / room).glob("*.py"):
            assert not {m for m in imports(file) if m.startswith(f"anubis.lab.{other}")}, file.name


def room(module: str) -> str:
    """`anubis.core.judge.ecdf` is in `judge`, `anubis.core.records` in the base."""
    words = module.split(".")
    return words[2] if len(words) > 2 else ""


def test_every_file_of_core_is_in_a_room_or_in_the_base():
    core = ROOT / "anubis" / "core"
    assert {path.stem for path in core.glob("*.py")} == BASE | {"__init__"}
    assert {path.parent.name for path in core.glob("*/*.py")} == ROOMS.keys()


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_of_core_imports_from_the_base_and_from_the_rooms_it_may(name):
    for file in (ROOT / "anubis" / "core" / name).glob("*.py"):
        for module in imports(file):
            if module.startswith("anubis."):
                assert room(module) in BASE | {name} | ROOMS[name], f"{file.name}: {module}"


def test_the_base_of_core_needs_no_room():
    for name in BASE:
        for module in imports(ROOT / "anubis" / "core" / f"{name}.py"):
            assert not module.startswith("anubis.") or room(module) in BASE, f"{name}: {module}"


def test_core_is_pure():
    for file in FILES:
        if part_of(file) == "core":
            for module in imports(file):
                top = module.split(".")[0]
                assert top not in IMPURE, f"{file.name} imports {module}"
                assert top in PURE | {"anubis"} | set(sys.stdlib_module_names), module


def test_heavy_packages_are_imported_only_in_their_rooms():
    for file in FILES:
        for module in imports(file):
            home = ONLY_IN.get(module.split(".")[0])
            where = str(file.relative_to(ROOT))
            assert home is None or where.startswith(home), f"{where} imports {module}"


# allowed only to the owner of a terminal and a process: the command line
OF_THE_PROCESS = {"print", "input", "SystemExit", "exit", "sys.exit", "os._exit"}
OF_THE_PROCESS |= {"sys.argv", "sys.stdin", "sys.stdout", "sys.stderr", "signal.signal"}
ON_NODES = {  # processes of their own, or of Ray's, on a node
    "anubis/reach/executors/guardian.py": {"sys.exit", "os._exit", "signal.signal"},
    "anubis/reach/executors/node_agent.py": {"os._exit"},
    "anubis/reach/executors/ray_node.py": {"sys.exit", "sys.argv", "sys.stdout"},
    "anubis/reach/executors/ray_process.py": {"os._exit", "sys.exit", "signal.signal", "sys.argv"},
}


def names_used(file: Path) -> set[str]:
    """`print` and `sys.exit` in any place; not attributes of the same names."""
    nodes = parsed(file)
    plain = {node.id for node in nodes if isinstance(node, ast.Name)}
    dotted = {
        f"{node.value.id}.{node.attr}"
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    return plain | dotted


def test_only_the_command_line_prints_exits_or_handles_signals():
    for file in FILES:
        where = str(file.relative_to(ROOT))
        if part_of(file) not in {"cli", "__main__"}:
            assert names_used(file) & OF_THE_PROCESS == ON_NODES.get(where, set()), where


def test_only_the_command_line_and_reports_know_rich():
    for file in FILES:
        if part_of(file) not in {"cli", "report"}:
            assert "rich" not in {module.split(".")[0] for module in imports(file)}, file.name


def with_packages(module: str) -> list[str]:
    """`a.b.c` as `a`, `a.b` and `a.b.c`."""
    return list(accumulate(module.split("."), "{}.{}".format))


def test_no_two_modules_import_each_other():
    graph = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts): imports(file) for file in FILES
    }
    edges = {
        name: {part for module in ms for part in with_packages(module)} & graph.keys() - {name}
        for name, ms in graph.items()
        if not name.endswith("__init__")
    }
    finished: set[str] = set()

    def walk(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " -> ".join((*above, name))
        if name not in finished:
            for other in edges.get(name, ()):
                walk(other, (*above, name))
            finished.add(name)

    for name in edges:
        walk(name, ())


def loaded_by(*argv: str) -> set[str]:
    """The modules a command has loaded when it ends."""
    script = (
        "import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr));"
        f"sys.argv = {['anubis', *argv]!r}; from anubis.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=os.environ
    )
    return set(done.stderr.split())


def test_help_loads_no_heavy_package():
    loaded = loaded_by("--help")
    assert "anubis.cli.main" in loaded
    heavy = {"torch", "ray", "sqlalchemy", "pydantic", "numba", "statsmodels", "pandas", "fastapi"}
    assert not heavy & loaded


def test_importing_loads_neither_torch_nor_ray():
    script = (
        "import sys, anubis, anubis.operations.validator, anubis.reach.executors.ray_cluster,"
        "anubis.models.risk.cox_time; print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"torch", "ray"} & set(loaded)


def test_a_gate_that_the_history_answers_loads_nothing_that_tests_locates_or_compares():
    script = (
        "import sys, anubis.cli.gate, anubis.operations.gate,"
        "anubis.models.risk.risk_files;"
        "print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "anubis.operations.decide" in loaded
    heavy = {"scipy", "numba", "pandas", "torch", "rich", "jinja2"}
    own = {
        *(
            "anubis.operations.validator",
            "anubis.operations.campaigns",
            "anubis.models.risk.evaluation",
        ),
        *("anubis.core.network.localization", "anubis.core.campaign.state_machine"),
        *(
            "anubis.reach.executors.ray_link",
            "anubis.lab.study.scenario",
            "anubis.readers.incidents.incident_mapping",
        ),
    }
    assert not (heavy | own) & set(loaded)


def test_measurements_of_few_nodes_are_compared_without_loading_a_compiler():
    script = (
        "import sys, numpy; from anubis.core.judge.ecdf import *;"
        "nodes = Bundle.from_samples(numpy.ones((7, 4))); distance_sums(nodes, 0.0);"
        "distances_to(nodes, nodes[0], 0.0, worse=True); typical_losses(nodes, nodes[0]);"
        "print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"numba", "scipy"} & set(loaded)


def test_importing_anubis_loads_only_the_standard_library_until_a_function_is_asked_for():
    script = "import sys; before = {*sys.modules}; import anubis; print(*{*sys.modules} - before)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {name.partition(".")[0] for name in loaded} <= {"anubis"} | sys.stdlib_module_names


# --- benchmarks ----------------------------------------------------------------------------

PROGRAMS = ROOT / "benchmarks"
BENCHMARKS = {  # as they import each other
    ".".join(file.relative_to(PROGRAMS).with_suffix("").parts): file
    for file in PROGRAMS.rglob("*.py")
    if not file.stem.startswith("__")
}
WITH_TORCH = {  # when they are imported; programs and what these need import it when they measure
    "kit.copies",
    "kit.training.decoding",
    "kit.training.densenet",
    "kit.training.lstm",
    "kit.training.moe",
    "kit.training.operations",
    "kit.training.resnet",
    "kit.training.steps",
    "kit.timing",
    "kit.training.transformers",
    "kit.training.vgg",
}


def modules_of(node: ast.AST) -> set[str]:
    """The modules that a statement names; `from kit import numa` names one of the kit's."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if not isinstance(node, ast.ImportFrom):
        return set()
    named = {f"{node.module}.{alias.name}" for alias in node.names}
    return named & BENCHMARKS.keys() or {str(node.module)}


@cache
def needed_at_import(file: Path) -> frozenset[str]:
    """The modules without which a file cannot be imported: none of functions or of types."""
    return frozenset(
        module
        for statement in ast.parse(file.read_text()).body
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef)
        and not (isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING")
        for node in ast.walk(statement)
        for module in modules_of(node)
    )


@cache
def neighbours(file: Path) -> set[str]:
    """The modules of benchmarks that a file imports, late imports included."""
    named = set().union(*map(modules_of, ast.walk(ast.parse(file.read_text()))))
    return named & BENCHMARKS.keys()


def needed_by(name: str) -> set[str]:
    """All modules that are imported with a benchmark's module, directly or not."""
    needed: set[str] = set()
    new = set(needed_at_import(BENCHMARKS[name]))
    while new:
        needed |= new
        files = [BENCHMARKS[module] for module in new & BENCHMARKS.keys()]
        new = set().union(*map(needed_at_import, files)) - needed
    return {module if module in BENCHMARKS else module.split(".")[0] for module in needed}


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_a_program_loads_heavy_packages_only_to_measure(name):
    needed = needed_by(name) | {name}
    heavy = needed - sys.stdlib_module_names - BENCHMARKS.keys()
    if name in WITH_TORCH:
        assert heavy == {"torch"}
    else:
        assert heavy == ({"pynvml"} if "kit.gpus.nvml" in needed else set())


def test_programs_that_measure_load_the_bindings_of_the_driver_late():
    programs = [name for name in BENCHMARKS if "." not in name and name != "_template"]
    assert len(programs) > 20
    assert [name for name in programs if "kit.gpus.nvml" in needed_by(name)] == []


def test_the_bindings_of_the_driver_are_imported_by_one_file():
    using = [name for name, file in BENCHMARKS.items() if "pynvml" in imports(file)]
    assert using == ["kit.gpus.nvml"]


def test_programs_need_torch_and_nothing_that_may_be_absent_beside_it():
    """NumPy is no part of torch: two programs use it if it is there, and none by torch's ways."""
    texts = {name: file.read_text() for name, file in BENCHMARKS.items()}
    by_torch = [n for n, text in texts.items() if re.search(r"all_gather_object|to_object", text)]
    assert by_torch == []
    using = [name for name, text in texts.items() if "numpy" in text]
    assert using == ["cpu_memory_latency", "memory_bandwidth"]
    assert all('find_spec("numpy")' in texts[name] for name in using)


def test_the_contract_needs_the_standard_library_only():
    assert needed_by("contract") <= sys.stdlib_module_names
    assert neighbours(BENCHMARKS["contract"]) == {
        "kit.gpus.cards",
        "kit.gpus.gpu_watch",
        "kit.host_memory",
    }, "what a program that stands alone lacks"


def test_a_program_is_one_file_which_no_other_imports():
    """What programs share is in the kit; the agent's telemetry is the agent's."""
    for name, file in BENCHMARKS.items():
        allowed = {"contract", "kit"} | ({"telemetry"} & {name.partition(".")[0]})
        assert {module.partition(".")[0] for module in neighbours(file)} <= allowed, name


def test_no_two_modules_of_benchmarks_import_each_other():
    """Late imports included."""
    graph = {name: neighbours(file) for name, file in BENCHMARKS.items()}
    tuple(TopologicalSorter(graph).static_order())


def test_benchmarks_and_anubis_are_bound_by_a_document_only():
    for file in PROGRAMS.rglob("*.py"):
        assert not {m for m in imports(file) if m.split(".")[0] == "anubis"}, file.name


# --- clocks --------------------------------------------------------------------------------

WALL_CLOCK = re.compile(r"\btime\.time\(\)|\bdatetime\.(now|today)\(|\bcaller\.clock\(\)")


def unexplained_clocks(source: str) -> list[str]:
    """Lines that read the wall clock, without a reason there or on the line above."""
    lines = ["", *source.splitlines()]
    return [
        line.strip()
        for above, line in pairwise(lines)
        if WALL_CLOCK.search(line) and "# wall clock: " not in above + line
    ]


def test_each_use_of_the_wall_clock_has_its_reason_beside_it():
    """Any user can set it; `operations.clusters.time_in` knows whether it can be right."""
    found = {file.relative_to(ROOT): unexplained_clocks(file.read_text()) for file in FILES}
    assert not {file: lines for file, lines in found.items() if lines}
    assert unexplained_clocks("x\nnow = caller.clock()\nlast = time.time()") == [
        "now = caller.clock()",
        "last = time.time()",
    ]
    assert not unexplained_clocks("now = time.time()  # wall clock: of a file")
