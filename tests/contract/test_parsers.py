"""What the tools of others print, against what it must mean: recorded excerpts and their traps."""

# ruff: noqa: E501  recorded lines are as long as they are

from __future__ import annotations

import contract
import dcgm_diag
import nccl_tests
import nvbandwidth
import pytest
from kit.collectives import busbw_gbps
from kit.parsers import dcgm, nccl_out_of_bounds, perftest, ucx_perftest
from kit.parsers import nccl_tests as parse_nccl
from kit.parsers import nvbandwidth as parse_nvbandwidth

from anubis.readers.superbench.summary import alias


@pytest.fixture(scope="session")
def recorded(real):
    return lambda name: real(f"superbench/logs/{name}").read_text()


# --- perftest: cut from two ends that share a terminal ---------------------------------------

LOOPBACK = """\
                    RDMA_Write BW Test
Dual-port       : OFF          Device         : ib0
 local address: LID 0xd06 QPN 0x092f PSN 0x3ff1bc RKey 0x080329 VAddr 0x007fc97ff50000
#bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
#bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
64         2000             173.55             171.66             2.812504
4096       2000             10034.02            9948.41                   2.546793
8388608    2000             23240.68            23240.68\t\t   0.002905
---------------------------------------------------------------------------------------
8388608    2000             23240.68            23240.68                  0.002905
8388608    2000
"""


def test_perftest_rows_are_read_once_though_both_ends_print_them():
    rows = perftest(LOOPBACK)
    assert [(row.size_bytes, row.iterations) for row in rows] == [
        (64, 2000),
        (4096, 2000),
        (8388608, 2000),
    ]


def assert_rates_fit_bandwidths(rows):
    for row in rows:
        from_rate = row.size_bytes * row.values["mpps"] * 1e6 / 1e9
        assert row.values["gbps"] == pytest.approx(from_rate, rel=5e-4)
        assert row.values["peak_gbps"] >= row.values["gbps"] * 0.999


def test_perftest_megabytes_are_those_that_its_message_rate_proves():
    assert_rates_fit_bandwidths(perftest(LOOPBACK))


@pytest.mark.twin("test_perftest_megabytes_are_those_that_its_message_rate_proves")
@pytest.mark.parametrize("name", ["ib_loopback_all_sizes.log", "ib_loopback_8M_size.log"])
def test_every_row_of_the_recorded_loopbacks_fits_its_message_rate(recorded, name):
    rows = perftest(recorded(name))
    assert len(rows) == (23 if "all" in name else 1)
    assert_rates_fit_bandwidths(rows)


def test_perftest_in_gigabits_means_the_same():
    bits = """ #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             196.60             195.26               0.372429
"""
    assert_rates_fit_bandwidths(perftest(bits))


def test_a_loopback_has_the_value_of_superbench_for_the_same_line():
    """It asks for gigabits since 0.6, and divides by 8."""
    (row,) = perftest(
        "#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n"
        "8388608 20000 201.81 201.79 0.003007\n"
    )
    name, factor = alias("ib_loopback", f"bandwidth_gbps:{row.size_bytes}")
    assert name == "ib-loopback/ib_write_bw_8388608"
    assert row.values["gbps"] * factor == pytest.approx(201.79 / 8)


def test_perftest_latency_is_its_mean():
    # headings and layout as perftest 4.5 prints them for one size
    text = """\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    \
t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 64      1000          1.71           6.31         1.77              1.80             \
0.12            2.05                    6.31
"""
    (row,) = perftest(text)
    assert (row.size_bytes, row.values["us"]) == (64, 1.80)


# --- UCX: recorded with ucx_perftest 1.13 over TCP -------------------------------------------

UCX = """\
[1795182737.679724] [vm:23484:0]     ucp_context.c:1014 UCX  WARN  something or other
iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
20000,7.074,28.631,87.230,34.11,11.20,34927,11464
"""


def test_ucx_bandwidth_agrees_with_its_message_rate():
    values = ucx_perftest(UCX)  # of messages of 1024 bytes
    assert values["gbps"] == pytest.approx(11464 * 1024 / 1e9, rel=1e-3)
    assert values["us"] == 87.230  # over the whole test, not over its last second


def test_ucx_without_a_result_has_no_numbers():
    assert ucx_perftest(UCX.rpartition("20000")[0]) == {}


def test_ucx_figures_of_the_whole_test_are_used_if_its_last_moment_had_no_message():
    """Recorded on a machine with other work."""
    headings = next(line for line in UCX.splitlines() if line.startswith("iterations"))
    text = f"{headings}\n4,5144.907,inf,159941.256,0.00,0.01,0,6\n"
    assert ucx_perftest(text)["us"] == 159941.256


# --- nccl-tests ------------------------------------------------------------------------------

# cut from four recordings: other columns, foreign lines in between, an empty redop, no message
ALL_REDUCE = """\
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
hostname:3442:3442 [0] NCCL INFO Launch mode Parallel
           0             0   float     sum    35.20    0.00    0.00    N/A    34.05    0.00    0.00    N/A
           8             2   float     sum    34.66    0.00    0.00    N/A    34.84    0.00    0.00    N/A
  8589934592    2147483648   float     sum    63896  134.44  235.26    N/A    63959  134.30  235.03    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 68.4048
"""
ALL_TO_ALL = """\
          32             1   float            89.00    0.00    0.00    N/A    85.13    0.00    0.00    N/A
  8589934592     268435456   float            33508  256.36  224.31    N/A    33234  258.47  226.16    N/A
"""
REDUCE = """\
  8589934592    2147483648   float     sum       0    37613  228.38  228.38    N/A    37539  228.83  228.83    N/A
"""
# the layout since 2.13, with -c 1: a count of wrong elements, and a root of -1
CHECKED = """\
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1    74.78   14.02   24.54      0    76.17   13.77   24.09      3
# Out of bounds values : 3 FAILED
"""


def test_nccl_rows_have_two_halves_and_a_message():
    rows = parse_nccl(ALL_REDUCE)
    assert [(row.size_bytes, row.place, row.us) for row in rows] == [
        (8, "out_of_place", 34.66),
        (8, "in_place", 34.84),
        (8589934592, "out_of_place", 63896),
        (8589934592, "in_place", 63959),
    ]
    assert {row.wrong for row in rows} == {None}
    assert nccl_out_of_bounds(ALL_REDUCE) == 0


def test_nccl_rows_are_read_after_any_columns():
    for text, busbw in ((ALL_TO_ALL, 224.31), (REDUCE, 228.38)):
        last = [row for row in parse_nccl(text) if row.place == "out_of_place"][-1]
        assert last.busbw_gbps == busbw


def test_nccl_counts_of_wrong_elements_are_kept():
    assert [row.wrong for row in parse_nccl(CHECKED)] == [0, 3]
    assert nccl_out_of_bounds(CHECKED) == 3


RECORDED = {
    "nccl_allreduce.log": "all_reduce",
    "nccl_allgather.log": "all_gather",
    "nccl_reducescatter.log": "reduce_scatter",
    "nccl_alltoall.log": "all_to_all",
    "nccl_broadcast.log": "broadcast",
    "nccl_reduce.log": "reduce",
}


def assert_bus_bandwidths_are_ours(rows, operation):
    for row in rows:
        ours = busbw_gbps(operation, row.size_bytes, 8, row.us / 1e6)
        assert ours == pytest.approx(row.busbw_gbps, rel=0.01)


@pytest.mark.parametrize(
    ("text", "operation"),
    [(ALL_REDUCE, "all_reduce"), (ALL_TO_ALL, "all_to_all"), (REDUCE, "reduce")],
)
def test_our_bus_bandwidth_agrees_with_a_published_excerpt(text, operation):
    largest = [row for row in parse_nccl(text) if row.busbw_gbps > 1]
    assert len(largest) == 2
    assert_bus_bandwidths_are_ours(largest, operation)


@pytest.mark.twin("test_our_bus_bandwidth_agrees_with_a_published_excerpt")
@pytest.mark.parametrize(("name", "operation"), RECORDED.items())
def test_our_bus_bandwidth_is_the_one_that_nccl_tests_printed(recorded, name, operation):
    rows = [row for row in parse_nccl(recorded(name)) if row.busbw_gbps > 1]
    assert len(rows) > 20
    assert_bus_bandwidths_are_ours(rows, operation)


def test_nccl_numbers_go_into_the_document_by_size_and_place():
    report = contract.Report(frozenset(metric.name for metric in nccl_tests.BENCHMARK.metrics))
    nccl_tests.add(report, "all_reduce", 8, [CHECKED, CHECKED.replace("76.17", "79.00")])
    samples = {series["metric"]: series["samples"] for series in report.series}
    assert samples["busbw_gbps:all_reduce/1048576/out_of_place"] == pytest.approx([24.54] * 2, 1e-3)
    assert len(samples["algbw_gbps:all_reduce/1048576/in_place"]) == 2
    assert samples["agreement:all_reduce/1048576"] == [1 / 7]  # 3 wrong elements in each of two


def test_nccl_without_a_row_could_not_be_measured():
    report = contract.Report(frozenset())
    with pytest.raises(contract.Unmeasured, match="no result"):
        nccl_tests.add(report, "all_reduce", 8, ["hostname: Test NCCL failure common.cu:958"])


# --- nvbandwidth -----------------------------------------------------------------------------

# the first table is cut from a recording; the second follows the README of the tool
NVBANDWIDTH = """\
nvbandwidth Version: v0.6
Device 0: NVIDIA GH200 480GB (00000009:01:00)

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1         2
 0    369.36    269.33    412.11
 1    323.36    299.33    312.11

SUM host_to_device_memcpy_ce 1985.60

Waived:
Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    276.07
 1    276.36       N/A

SUM device_to_device_memcpy_read_ce 552.43

Running host_device_latency_sm.
memory latency SM CPU(row) <-> GPU(column) (ns)
           0
 0    772.58

SUM host_device_latency_sm 772.58
NOTE: The reported results may not reflect the full capabilities of the platform.
"""
NVBANDWIDTH_JSON = """\
some warning of a driver
{
  "nvbandwidth": {
    "CUDA Runtime Version": 12040, "Driver Version": "550.54.15", "version": "v0.6",
    "testcases": [
      {"name": "device_to_device_memcpy_read_ce", "status": "Passed", "sum": 552.43,
       "bandwidth_description": "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
       "bandwidth_matrix": [["N/A", "276.07"], ["276.36", "N/A"]]},
      {"name": "multinode_bisect_write_device_to_device_ce", "status": "Waived"}
    ]
  }
}
"""


def by_device(result, test):
    return {cell.device: cell.value for cell in result.cells if cell.test == test}


def test_nvbandwidth_tables_name_both_ends_and_have_no_diagonal():
    result = parse_nvbandwidth(NVBANDWIDTH)
    host = by_device(result, "host_to_device_memcpy_ce")
    assert host["cpu:1-cuda:2"] == 312.11
    assert sum(host.values()) == pytest.approx(1985.60)  # the tool's own SUM
    peers = by_device(result, "device_to_device_memcpy_read_ce")
    assert peers == {"cuda:0-cuda:1": 276.07, "cuda:1-cuda:0": 276.36}


def test_nvbandwidth_json_agrees_with_its_text_and_lists_waived_tests():
    text, document = parse_nvbandwidth(NVBANDWIDTH), parse_nvbandwidth(NVBANDWIDTH_JSON)
    test = "device_to_device_memcpy_read_ce"
    assert by_device(document, test) == by_device(text, test)
    assert document.waived == ["multinode_bisect_write_device_to_device_ce"]


# laid out as json_output.cpp of the tool does it: three matrices below each other in one
BOTH_WAYS_JSON = """\
{"nvbandwidth": {"testcases": [
  {"name": "device_to_device_bidirectional_memcpy_read_ce", "status": "Passed", "sum": 1456.0,
   "bandwidth_description": "memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)",
   "bandwidth_matrix": [["N/A", "180.5"], ["182.5", "N/A"],
                        ["N/A", "181.5"], ["183.5", "N/A"],
                        ["N/A", "362"], ["366", "N/A"]]},
  {"name": "all_to_one_read_ce", "status": "Passed", "sum": 500,
   "bandwidth_description": "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
   "bandwidth_matrix": [["240", "260"]]}]}}
"""
BOTH_WAYS_TEXT = """\
Running device_to_device_bidirectional_memcpy_read_ce.
memcpy CE GPU(row) <-> GPU(column) Read1 bandwidth (GB/s)
           0         1
 0       N/A    180.50
 1    182.50       N/A

SUM device_to_device_bidirectional_memcpy_read_ce_read1 363.00

memcpy CE GPU(row) <-> GPU(column) Read2 bandwidth (GB/s)
           0         1
 0       N/A    181.50
 1    183.50       N/A

SUM device_to_device_bidirectional_memcpy_read_ce_read2 365.00

memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)
           0         1
 0       N/A    362.00
 1    366.00       N/A

SUM device_to_device_bidirectional_memcpy_read_ce_total 728.00

Running all_to_one_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0    240.00    260.00

SUM all_to_one_read_ce 500.00
"""


def test_nvbandwidth_both_ways_at_once_are_three_tables_and_no_gpus_that_are_not_there():
    text, document = parse_nvbandwidth(BOTH_WAYS_TEXT), parse_nvbandwidth(BOTH_WAYS_JSON)
    assert text == document
    test = "device_to_device_bidirectional_memcpy_read_ce"
    assert by_device(document, f"{test}_read2") == {"cuda:0-cuda:1": 181.5, "cuda:1-cuda:0": 183.5}
    assert sum(by_device(document, f"{test}_total").values()) == 728
    assert by_device(document, "all_to_one_read_ce") == {"cuda:0": 240, "cuda:1": 260}


@pytest.mark.parametrize("status", ["ERROR", "Error", "Running"])
def test_an_nvbandwidth_test_that_neither_passed_nor_was_waived_is_an_error(status):
    text = NVBANDWIDTH_JSON.replace('"Passed"', f'"{status}"')
    assert parse_nvbandwidth(text).errors == [f"device_to_device_memcpy_read_ce: {status}"]


def test_nvbandwidth_nanoseconds_are_reported_as_microseconds():
    numbers = nvbandwidth.series([parse_nvbandwidth(NVBANDWIDTH)] * 2)
    latency = numbers["latency_us:host_device_latency_sm", "cuda:0"]
    assert latency == pytest.approx([0.77258] * 2)


@pytest.mark.twin("test_nvbandwidth_tables_name_both_ends_and_have_no_diagonal")
def test_every_table_of_the_recorded_nvbandwidth_adds_up_to_its_sum(recorded):
    text = recorded("nvbandwidth_results.log")
    result = parse_nvbandwidth(text)
    sums = dict(line.split()[1:] for line in text.splitlines() if line.startswith("SUM"))
    assert len(sums) == 15
    for test, total in sums.items():
        assert sum(by_device(result, test).values()) == pytest.approx(float(total), abs=0.02)


@pytest.mark.parametrize(
    "text",
    [
        '{"nvbandwidth": {"error": "CUDA_ERROR_NO_DEVICE: no CUDA-capable device"}}',
        "[CUDA_ERROR_NO_DEVICE] no CUDA-capable device is detected in expression cuInit(0)",
        "",
    ],
)
def test_nvbandwidth_that_measured_nothing_is_no_result(text):
    with pytest.raises(contract.Unmeasured, match="nvbandwidth"):
        nvbandwidth.result_of(nvbandwidth.Output(1, text, ""))


# --- dcgmi diag: shaped like version 3 (gpu_ids, null between tests) and version 4 (entities) --

DCGM_3 = """\
WARNING: a line of the log
{
  "DCGM GPU Diagnostic": {
    "test_categories": [
      {"category": "Deployment", "tests": [
        {"name": "Denylist", "results": [{"gpu_ids": "0,1", "status": "PASS"}]},
        null,
        {"name": "Page Retirement/Row Remap", "results": [
          {"gpu_ids": "0,1", "status": "Fail", "warnings": ["row remap pending", "too many"]}]}]},
      {"category": "Stress", "tests": [
        {"name": "SM Stress", "results": [
          {"gpu_ids": "0", "status": "Pass"},
          {"gpu_id": 1, "status": "Skip", "warnings": "not on this GPU"}]}]}
    ],
    "version": "3.1.0"
  }
}
"""
DCGM_4 = """\
{
  "DCGM Diagnostic": {
    "test_categories": [
      {"category": "Deployment", "tests": [
        {"name": "software",
         "results": [
           {"entity_group": "GPU", "entity_group_id": 1, "entity_id": 0, "status": "Fail",
            "warnings": [{"error_category": 8, "error_id": 29, "error_severity": 5,
                          "warning": "Persistence Mode: disabled for GPU 0"}]},
           {"entity_group": "GPU", "entity_group_id": 1, "entity_id": 1, "status": "Pass"},
           {"entity_group": "CPU", "entity_group_id": 7, "entity_id": 0, "status": "Skip"}],
         "test_summary": {"status": "Fail"}}]}
    ]
  },
  "entity_groups": [{"entity_group": "GPU", "entity_group_id": 1,
                     "entities": [{"entity_id": 0, "device_id": "2335"}]}],
  "metadata": {"Driver Version Detected": "580.82.09", "version": "4.2.3"}
}
"""


def dcgm_4(status="Fail", severity=5, text="ECC Mode: disabled for GPU 0"):
    changed = DCGM_4.replace('"error_severity": 5', f'"error_severity": {severity}')
    changed = changed.replace("Persistence Mode: disabled for GPU 0", text)
    return dcgm(
        changed.replace('"entity_id": 0, "status": "Fail"', f'"entity_id": 0, "status": "{status}"')
    )


@pytest.mark.parametrize("status", ["Fail", "Warn"])
def test_the_action_that_dcgm_advises_decides_the_kind_of_a_finding(status):
    """A setting is no defect of the GPU, and a device to be isolated has one, for any status."""
    for severity, wrong, kind in (
        (5, 0, "config"),
        (1, 0, "monitor"),
        (2, 1, ""),
        (6, 1, ""),
        (9, 1, ""),
    ):
        result = dcgm_4(status, severity)
        assert dcgm_diag.answers(result)["software", "gpu:0"] == [1 / (1 + wrong)]
        light = {
            name
            for (name, gpu), count in dcgm_diag.light_findings(result).items()
            if count and gpu == "gpu:0"
        }
        assert light == ({kind} if kind else set())


def test_a_driver_that_may_unload_is_a_remark_under_any_name_of_dcgm():
    assert dcgm_diag.answers(dcgm(DCGM_4))["software", "gpu:0"] == [1.0]
    assert dcgm_diag.light_findings(dcgm(DCGM_4))["monitor", "gpu:0"] == 1
    assert dcgm_diag.light_findings(dcgm(DCGM_4)).get(("config", "gpu:0"), 0) == 0


def test_dcgm_that_says_nothing_of_gravity_fails_by_a_failure_and_not_by_a_warning():
    row_remap = "page_retirement_row_remap"
    assert dcgm_diag.answers(dcgm(DCGM_3))[row_remap, "gpu:0"] == [1 / 3]
    warned = dcgm(DCGM_3.replace('"Fail"', '"Warn"'))
    assert dcgm_diag.answers(warned)[row_remap, "gpu:0"] == [1.0]
    assert dcgm_diag.light_findings(warned)["monitor", "gpu:0"] == 2


def test_a_test_that_dcgm_skipped_is_no_pass_and_lowers_completeness():
    assert dcgm_diag.completeness(dcgm(DCGM_3)) == {"gpu:0": [1.0], "gpu:1": [1 / 2]}
    for word in ("Skip", "Not Run", "whatever"):
        result = dcgm(DCGM_4.replace('"Skip"', f'"{word}"'))
        assert dcgm_diag.completeness(result)["cpu:0"] == [1 / 2]
    assert not any(gpu == "cpu:0" for _, gpu in dcgm_diag.light_findings(dcgm(DCGM_4)))


def test_dcgm_3_and_4_become_one_answer_per_test_and_gpu():
    assert dcgm_diag.answers(dcgm(DCGM_3)) == {
        ("denylist", "gpu:0"): [1.0],
        ("denylist", "gpu:1"): [1.0],
        ("page_retirement_row_remap", "gpu:0"): [1 / 3],  # two findings
        ("page_retirement_row_remap", "gpu:1"): [1 / 3],
        ("sm_stress", "gpu:0"): [1.0],  # and none for gpu:1, which was skipped
    }
    assert dcgm_diag.answers(dcgm(DCGM_4)) == {
        ("software", "gpu:0"): [1.0],  # a setting: it stands under findings
        ("software", "gpu:1"): [1.0],
    }
    assert (dcgm(DCGM_3).version, dcgm(DCGM_4).version) == ("3.1.0", "4.2.3")


def test_dcgm_findings_are_reported_in_its_own_words():
    words = dcgm_diag.findings(dcgm(DCGM_4))
    assert words.startswith("gpu:0 software fail: Persistence Mode: disabled for GPU 0 (monitor)")
    assert "cpu:0 software skip: no reason" in words
    assert "gpu:1 sm_stress skip: not on this GPU" in dcgm_diag.findings(dcgm(DCGM_3))


def test_dcgm_without_its_daemon_is_unmeasured_for_any_exit_code():
    output = dcgm_diag.Output(226, "", "Error: unable to establish a connection to the host engine")
    with pytest.raises(contract.Unmeasured, match=r"ended with 226 .* connection to the host"):
        dcgm_diag.result_of(output)


def test_dcgm_that_skipped_everything_or_broke_off_is_no_result():
    skipped = DCGM_4.replace('"Fail"', '"Skip"').replace('"Pass"', '"Skip"')
    broken = DCGM_4.replace('"test_categories"', '"runtime_error": "out of memory", "was"')
    for text, words in ((skipped, "tested nothing"), (broken, "out of memory")):
        with pytest.raises(contract.Unmeasured, match=words):
            dcgm_diag.result_of(dcgm_diag.Output(0, text, ""))
