"""Tables of measurements into the history: any shape, nothing half, nothing twice."""

from __future__ import annotations

import csv
import gzip
import io
import math
import sqlite3
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anubis.core.errors import UsageError
from anubis.core.judge.units import units
from anubis.core.records import Judgement
from anubis.operations.caller import Caller
from anubis.operations.history import campaigns, forget_import, recall
from anubis.operations.import_ import ImportedResults, import_csv, import_superbench
from anubis.operations.judge import judge
from anubis.operations.requests import CsvImport, JudgeRequest, SuperbenchImport
from anubis.readers.tables.adoption import adopt
from anubis.readers.tables.intake import ForeignTable, TableMapping, read

NOW = 1_800_000_000.0
PLAIN = TableMapping(sku="v100")
HEADING = "node,device,metric,value,unit,direction"
NAMES = ("n1", "N1", "n1.rack1", "n2.rack1", "n2.rack2", "n3.a", "N3.a", "10.0.0.1", "10.0.0.2")
Measured = dict[tuple[str, str, str], list[float]]  # by node, metric and device


class Listener(Caller):
    def __init__(self, folder: Path) -> None:
        super().__init__(history_url=f"sqlite:///{folder / 'history'}", clock=lambda: NOW)
        self.remarks: list[str] = []

    def remark(self, sentence: str) -> None:
        self.remarks.append(sentence)


@pytest.fixture
def listener(tmp_path) -> Listener:
    return Listener(tmp_path)


@pytest.fixture
def write(tmp_path) -> Callable[..., Path]:
    def written(content: str | bytes, name: str = "table.csv") -> Path:
        file = tmp_path / name
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    return written


def measured(table: ForeignTable) -> Measured:
    """Samples as units have them, which are judged."""
    plan, executions = adopt(table, "tool")
    return {
        (*unit.participants, unit.key.metric, unit.device): sorted(unit.samples.tolist())
        for alike in units(executions, plan)
        for unit in alike
    }


def fleet(slow: str = "", *, nodes: int = 6) -> str:
    """Two GPUs a node, three samples each, all alike but for the slow one."""
    rows = [
        f"n{n},gpu:{g},step,{(130 if f'n{n}/{g}' == slow else 100) + s / 100},ms,lower"
        for n in range(1, nodes + 1)
        for g in (0, 1)
        for s in range(3)
    ]
    return "\n".join([HEADING, *rows]) + "\n"


@pytest.mark.parametrize("nodes", [1, 2, 3, 8])
def test_a_gpu_of_another_model_is_no_slow_gpu_of_a_table(write, listener, nodes):
    rows = [
        f"n{n},{g},{'A100,rate,20' if (n, g) == (1, 2) else 'H100,rate,100'}.{s}"
        for n in range(1, nodes + 1)
        for g in range(8)
        for s in range(4)
    ]
    table = "\n".join(["node,device,gpu_model,metric,value", *rows])
    take(write(table), listener, metrics=["rate=higher,GB/s"])
    first, *others = recall(caller=listener).assessment.nodes
    assert (first.judgement, first.code) == (Judgement.UNKNOWN, "CRITERION-REFUSED")
    assert "on device of model A100: learned from 1 of the 3 units it takes" in first.reason
    assert {node.judgement for node in others} <= {Judgement.HEALTHY}


def test_a_slow_node_of_a_table_was_measured_once_and_the_answer_says_so(write, listener):
    rows = [f"n{n},{80 if n == 4 else 100}.{s}" for n in range(1, 13) for s in range(4)]
    take(write("\n".join(["node,rate", *rows])), listener, metrics=["rate=higher"])
    seen = recall(caller=listener)
    assert seen.assessment.named(Judgement.DEFECTIVE) == ("n4",)
    assert "; nothing was measured again, so a run that is slow by chance " in seen.caveat


def test_names_that_may_be_of_one_node_are_remarked(write, listener):
    rows = [f"{name},{100 + s}" for name in NAMES for s in range(4)]
    take(write("\n".join(["node,rate", *rows])), listener, metrics=["rate=higher"])
    (remark,) = listener.remarks
    assert remark.startswith("N1, n1, n1.rack1 may be one node, and so may the names of 1 other: ")
    assert remark.endswith("so write one name for each node")


def test_a_table_is_imported_again_once_it_names_models(write, listener):
    rows = [f"n{n},{m},{100 + s}" for n, m in enumerate("AAB") for s in range(4)]
    plain = [f"{row[:3]}{row[5:]}" for row in rows]
    metrics = ["rate=higher"]
    first = take(write("\n".join(["node,rate", *plain])), listener, metrics=metrics)
    again = take(write("\n".join(["node,gpu_model,rate", *rows])), listener, metrics=metrics)
    assert again.campaign.id != first.campaign.id


# --- shapes --------------------------------------------------------------------------------

FEW: Measured = {
    ("n1", "step", "gpu:0"): [1.5, 2.5],
    ("n1", "copy", "gpu:0"): [7.0],
    ("n2", "step", "gpu:0"): [3.5],
    ("n2", "copy", "gpu:0"): [8.0],
}
LONG = f"""{HEADING}
n1,gpu:0,step,1.5,ms,lower
n1,gpu:0,step,2.5,ms,lower
n2,gpu:0,step,3.5,ms,lower
n1,gpu:0,copy,7,GB/s,higher
n2,gpu:0,copy,8e0,GB/s,higher
"""
WIDE = """id,host,slot,step,copy
1,n1,0,1.5,7
2,n1,0,2.5,
3,n2,0,3.5,8
"""
AS_WIDE = TableMapping.parse(
    ["node=host", "device=gpu:{slot}"], ["step=lower,ms", "copy=higher,GB/s"], sku="v100"
)
SHAPES = {
    "long": (LONG, PLAIN),
    "wide": (WIDE, AS_WIDE),
    "semicolons": (LONG.replace(",", ";"), PLAIN),
    "tabs": (WIDE.replace(",", "\t"), AS_WIDE),
    "other line ends and empty lines": (LONG.replace("\n", "\r\n\r\n"), PLAIN),
    "quotes and blanks": (WIDE.replace("n1", '"n1"').replace(",1.5", ", 1.5 "), AS_WIDE),
    "gzip": (gzip.compress(WIDE.encode(), mtime=0), AS_WIDE),
    "a mark of UTF-8": (LONG.encode("utf-8-sig"), PLAIN),
    "UTF-16": (LONG.encode("utf-16"), PLAIN),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_is_read_from_every_shape(write, shape):
    content, mapping = SHAPES[shape]
    table = read(write(content), mapping, NOW)
    assert measured(table) == FEW
    assert {spec.name: (spec.unit, spec.direction) for spec in table.metrics.values()} == {
        "step": ("ms", "lower"),
        "copy": ("GB/s", "higher"),
    }


samples = st.floats(1e-300, 1e300, exclude_min=True).map(repr)
lines = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c-1"]),
        st.sampled_from(["", "0", "1", "cuda:7", "GPU-8b39"]),
        st.sampled_from(["step", "busbw:8", "busbw:16"]),
        samples,
    ),
    min_size=1,
    max_size=40,
)


@given(lines)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_measurements_of_a_table_agree_with_a_dictionary_of_lists(write, rows):
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["node", "device", "metric", "value", "unit", "direction"])
    writer.writerows([*row, "x", "higher"] for row in rows)
    expected: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    for node, device, metric, value in rows:
        whole = device if ":" in device else f"device:{device}" if device else "node"
        expected[node, metric, whole].append(float(value))
    table = read(write(text.getvalue()), PLAIN, NOW)
    assert measured(table) == {place: sorted(numbers) for place, numbers in expected.items()}


def test_only_metrics_that_were_asked_for_are_taken(write, listener):
    imported = take(write(LONG), listener, metrics=["copy=higher,GB/s"])
    assert [spec.name for spec in imported.campaign.plan.specs[0].metrics] == ["copy"]
    assert imported.values == 2
    assert listener.remarks == ["not imported, because no --metric names it: step"]


def test_an_imported_campaign_has_the_dates_of_its_table(write, listener):
    table = "node,step,when\nn1,1,2026-03-01T10:00\nn1,2,2026-03-01T11:00Z\nn2,1,1772366400\n"
    imported = take(write(table), listener, columns=["time=when"], metrics=["step=lower"])
    assert imported.campaign.created_at == 1772359200.0  # 10:00 UTC
    assert imported.campaign.finished_at == 1772366400.0  # 12:00 UTC
    first, second = recall(caller=listener).executions
    assert (first.started_at, first.duration_s, second.duration_s) == (1772359200.0, 3600.0, 0.0)


# --- wrong lines ---------------------------------------------------------------------------

WRONG = {
    "n1,gpu:0,step,fast,ms,lower": 'step on gpu:0 of n1 is "fast", expected a positive finite',
    "n1,gpu:0,step,,ms,lower": 'step on gpu:0 of n1 is ""',
    "n1,gpu:0,step,nan,ms,lower": 'step on gpu:0 of n1 is "nan"',
    "n1,gpu:0,step,inf,ms,lower": 'step on gpu:0 of n1 is "inf"',
    "n1,gpu:0,step,0,ms,lower": 'step on gpu:0 of n1 is "0"',
    "n1,gpu:0,step,-1,ms,lower": 'step on gpu:0 of n1 is "-1"',
    "n1,gpu:0": "2 cells, expected 6 as in the heading",
    ",gpu:0,step,1,ms,lower": "it names no node",
    "n 1,gpu:0,step,1,ms,lower": 'node "n 1" is no name',
    "n1,gpu:0,,1,ms,lower": "it names no metric",
    "n1,gpu:0,step,1,s,lower": 'metric "step" is s (lower is better) here and ms (lower is better)',
    "n1,gpu:0,other,1,s,": 'metric "other" has no direction: expected higher, lower or either',
    "n1,gpu:0,other,1,s,down": 'metric "other" has the direction "down"',
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_line_is_named_with_its_reason(write, line):
    file = write(f"{HEADING}\nn1,gpu:0,step,1,ms,lower\n{line}\nn2,gpu:0,step,2,ms,lower\n")
    (wrong,) = read(file, PLAIN, NOW).wrong
    assert str(wrong).startswith("line 3: ")
    assert WRONG[line] in str(wrong)


def test_a_table_with_a_wrong_line_is_not_imported(write, listener):
    broken = fleet().replace("n2,gpu:1,step,100.02", "n2,gpu:1,step,n/a")
    with pytest.raises(UsageError, match="wrong lines: nothing was imported"):
        take(write(broken), listener)
    assert listener.remarks == [
        'line 13: step on gpu:1 of n2 is "n/a", expected a positive finite number'
    ]
    assert campaigns(caller=listener) == []


@pytest.mark.parametrize(
    ("cell", "reason"),
    [("soon", 'time "soon" cannot be read'), ("2099-01-01", 'time "2099-01-01" is in the future')],
)
def test_a_time_that_cannot_be_is_a_wrong_line(write, cell, reason):
    table = read(write(f"node,step,time\nn1,1,{cell}\n"), _step(), NOW)
    (wrong,) = table.wrong
    assert str(wrong).startswith(f"line 2: {reason}")
    assert not table.samples.size


def _step() -> TableMapping:
    return TableMapping.parse([], ["step=lower,ms"], sku="v100")


def test_wrong_lines_of_one_reason_are_listed_together_and_too_many_end_the_reading(write):
    rows = [f"n{i},0" for i in range(3)] * 1000
    table = read(write("\n".join(["node,step", *rows])), _step(), NOW)
    assert sum(wrong.count for wrong in table.wrong) == 1000
    first = str(table.wrong[0])
    assert first.startswith("lines 2, 5, 8, ")
    assert 'and 314 more: step on node of n0 is "0"' in first


def test_a_node_with_a_skipped_line_is_unknown_and_never_healthy(write, listener):
    broken = fleet().replace("n2,gpu:1,step,100.02", "n2,gpu:1,step,n/a")
    take(write(broken), listener, skip_wrong=True)
    (told,) = listener.remarks
    assert told.startswith('line 13: step on gpu:1 of n2 is "n/a"')
    assessment = recall(caller=listener).assessment
    assert assessment.named(Judgement.UNKNOWN) == ("n2",)
    (reason,) = [node.reason for node in assessment.nodes if node.node == "n2"]
    assert reason == f"tool: {told}"
    assert len(assessment.named(Judgement.HEALTHY)) == 5


def test_a_node_without_a_value_that_most_nodes_have_is_unknown(write, listener):
    without = "".join(
        line for line in fleet().splitlines(keepends=True) if not line.startswith("n4,gpu:1")
    )
    take(write(without), listener)
    assessment = recall(caller=listener).assessment
    assert assessment.named(Judgement.UNKNOWN) == ("n4",)
    (reason,) = [node.reason for node in assessment.nodes if node.node == "n4"]
    assert reason == "tool: 1 value that most nodes have is missing: step on gpu:1"


# --- what cannot be read -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "mapping", "reason"),
    [
        ("", PLAIN, "is empty, expected a table with a heading"),
        ("\x7fELF\x02\x01,a", PLAIN, "is no text, expected a table with a heading"),
        ('{"node": "n1"}', PLAIN, "is JSON, expected a table"),
        (LONG, TableMapping(), "name it, such as --sku a100-sxm-8x"),
        ("host,step\nn1,1\n", PLAIN, "has no column node: say which one it is, --map node=COLUMN"),
        ("node,step\nn1,1\n", PLAIN, "--metric step_ms=lower,ms"),
        ("node,step\nn1,1\n", TableMapping.parse(["node=nod"], sku="x"), 'did you mean "node"?'),
        ("node,metric\nn1,a\n", PLAIN, "has no column value"),
        ("node,node,value\nn1,n1,1\n", PLAIN, 'has two columns "node"'),
        (HEADING, PLAIN, "has no measurement"),
        (LONG, TableMapping.parse([], ["speed=lower"], sku="x"), "its metrics are step, copy"),
        (f'{HEADING}\nn1,gpu:0,step,"1\n' + "x" * 200_000, PLAIN, "is a quote left open?"),
        (gzip.compress(LONG.encode(), mtime=0)[:-9], PLAIN, "not a complete gzip file"),
    ],
)
def test_a_table_that_cannot_be_used_is_one_clear_error(write, content, mapping, reason):
    with pytest.raises(UsageError) as refused:
        read(write(content), mapping, NOW)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("columns", "metrics", "reason"),
    [
        (["node"], [], '--map is "node", expected KEY=COLUMN'),
        (["node=a", "node=b"], [], '--map has two columns for "node"'),
        (["nod=host"], [], 'unknown key "nod"; did you mean "node"?'),
        ([], ["step"], '--metric is "step", expected NAME=DIRECTION[,UNIT]'),
        ([], ["step=down"], "directions: higher, lower, either"),
    ],
)
def test_an_option_that_cannot_be_read_is_one_clear_error(columns, metrics, reason):
    with pytest.raises(UsageError) as refused:
        TableMapping.parse(columns, metrics)
    assert reason in str(refused.value)


def test_a_table_for_superbench_is_sent_to_csv(write, listener):
    with pytest.raises(UsageError, match="anubis history import csv reads tables"):
        import_superbench(SuperbenchImport(write(LONG), sku="v100"), listener)


# --- in the history ------------------------------------------------------------------------


def test_a_table_imported_twice_is_kept_once(write, listener):
    first = take(write(fleet()), listener)
    packed = write(gzip.compress(fleet().encode()), "another-name.gz")
    again = take(packed, listener)
    assert again.campaign.id == first.campaign.id
    assert len(campaigns(caller=listener)) == 1
    assert first.campaign.id in listener.remarks[-1]
    take(write(fleet("n3/1")), listener)
    assert len(campaigns(caller=listener)) == 2


def test_a_table_of_tomorrow_is_judged_beside_the_scatter_of_todays(write, listener):
    today = take(write(fleet(nodes=8)), listener)
    tomorrow = Caller(history_url=listener.history_url, clock=lambda: NOW + 86_400)
    later = take(write(fleet("n3/1", nodes=8)), tomorrow)
    again = judge(JudgeRequest(today.campaign.id), tomorrow)  # what came later is no precedent

    def rest_on(sets):
        return {criterion.earlier for of_sku in sets for criterion in of_sku.criteria}

    assert (rest_on(today.campaign.criteria), rest_on(again.criteria)) == ({0}, {0})
    assert rest_on(later.campaign.criteria) == {1}


def test_an_imported_campaign_is_taken_back_whole_and_can_be_imported_again(write, listener):
    def rows() -> dict[str, int]:
        with closing(sqlite3.connect(listener.history_url.removeprefix("sqlite:///"))) as history:
            tables = [name for (name,) in history.execute("SELECT name FROM sqlite_master")]
            of_campaigns = (
                "campaigns",
                "executions",
                "demands",
                "imports",
                "verdicts",
                "batch_verdicts",
            )
            counted = [name for name in tables if name in (*of_campaigns, "node_verdicts")]
            assert len(counted) == 7
            count = "SELECT count(*) FROM {}"
            return {name: history.execute(count.format(name)).fetchone()[0] for name in counted}

    other = take(write(LONG), listener, suite="other")
    before = rows()
    wrong = take(write(LONG), listener, suite="s")
    assert rows()["executions"] > before["executions"]
    gone = forget_import(wrong.kept.key, listener)
    assert gone.campaign == wrong.campaign.id
    assert rows() == before
    assert [row.id for row in campaigns(caller=listener)] == [other.campaign.id]
    assert take(write(LONG), listener, suite="s").kept.what == "measurements"


def test_two_tables_judged_as_one_are_judged_as_the_table_of_both_is(write, listener):
    """A slow start that is too short to be seen in the whole."""
    heading, *rows = fleet("n3/1").splitlines()
    halves = ("\n".join([heading, *rows[:20]]), "\n".join([heading, *rows[20:]]))
    for i, half in enumerate(halves):
        take(write(half, f"{i}.csv"), listener)
    began = min(row.created_at for row in campaigns(caller=listener))
    joined = judge(JudgeRequest(since=_day(began)), listener)
    take(write(fleet("n3/1")), listener, suite="whole")
    whole = judge(JudgeRequest(), listener)
    assert joined.assessment.named(Judgement.DEFECTIVE) == ("n3",)
    for one, other in zip(joined.assessment.nodes, whole.assessment.nodes, strict=True):
        assert (one.node, one.judgement, one.code.partition(".")[2]) == (
            other.node,
            other.judgement,
            other.code.partition(".")[2],
        )
    assert "judging 2 campaigns of suite tool as one" in listener.remarks


def _day(at: float):
    from datetime import UTC, datetime

    return datetime.fromtimestamp(math.floor(at), UTC)


# --- published measurements ----------------------------------------------------------------


def take(file: Path, caller: Listener, **asked) -> ImportedResults:
    return import_csv(CsvImport(file, **{"suite": "tool", "sku": "v100", **asked}), caller)


def every_gpu_of(*nodes: str) -> set[str]:
    return {f"{node}/gpu:{gpu}" for node in nodes for gpu in range(4)}


def slow_gpus(listener: Listener, file: Path) -> set[str]:
    columns = ["node={cabinet}-{node}", "device=gpu:{device}"]
    asked = CsvImport(file, suite="published", columns=columns, metrics=["perf=lower"], sku="gpu")
    import_csv(asked, listener)
    return {
        f"{verdict.participants[0]}/{verdict.device}"
        for verdict in recall(caller=listener).assessment.verdicts()
        if verdict.judgement is Judgement.DEFECTIVE
    }


def test_a_table_made_as_published_ones_are_names_its_slow_gpus(listener, write):
    rows = [
        f"bert,{rep},c1,{node},{gpu},{180 * (1.1 if node == 7 else 1) + (node + rep) % 3 / 10},GPU"
        for node in range(20)
        for gpu in range(4)
        for rep in range(3)
    ]
    table = "\n".join(["exp,reps,cabinet,node,device,perf,uuid", *rows])
    assert slow_gpus(listener, write(table)) == every_gpu_of("c1-7")


@pytest.mark.twin("test_a_table_made_as_published_ones_are_names_its_slow_gpus")
@pytest.mark.parametrize(
    ("name", "slow"),
    [
        (
            "frontera-resnet",
            every_gpu_of("c196-112", "c196-91", "c197-91", "c198-32", "c198-52")
            | {"c198-62/gpu:3"},
        ),
        ("frontera-bert", every_gpu_of("c198-21", "c198-62")),
        ("bert-longhorn", every_gpu_of("c002-5")),
    ],
)
def test_a_published_table_names_its_slow_gpus(real, listener, name, slow):
    """The sets are those of tests/core/test_real_fleets.py, found by the naive method."""
    assert slow_gpus(listener, real(f"benchmarks/{name}-agg.csv.gz")) == slow
