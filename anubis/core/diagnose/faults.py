"""Maps the cause of a diagnosis to a kind of fault, in the words of the published table that
suspicions use. The kind then chooses a test that has found such faults before."""

from __future__ import annotations

import re

from anubis.core.diagnose.facts import FactKind, JobFact

BY_CODE = (  # the first that matches the whole code
    (r"xid-(48|63|64|92|94|95|171|172)", "ecc"),
    (r"xid-79|.*fallen-off.*|.*gpu-lost.*", "gpu-drop"),
    (r"xid-(74|14[4-9]|150)(-.*)?|sxid.*|.*nvlink.*", "nvlink"),
    (r"xid-(13|31|43|45|68|69)|.*cuda.*", "cuda-error"),
    (r"xid-\d+|gsp-.*|gpu-.*", "gpu-error"),
    (r".*pcie.*|aer.*", "pcie-downgrade"),
    (r"mlx5.*|.*nic.*|.*link-down.*|.*ib-.*", "nic-dropout"),
    (r"nvme.*|.*read-only.*|.*storage.*|.*disk.*", "storage"),
)
BY_KIND = {
    FactKind.UNREACHABLE: "unreachable",
    FactKind.SILENT: "unreachable",
    FactKind.COMMON_PART: "optical-cable",
    FactKind.LIKELY_PART: "optical-cable",
    FactKind.DISTRIBUTED_ERROR: "optical-cable",
    FactKind.UNFINISHED: "optical-cable",
    FactKind.SLOW_NETWORK: "optical-cable",
    FactKind.NETWORK_FAULT: "optical-cable",
    FactKind.SLOW_COMPUTE: "gpu-error",
}
ELSE = "cuda-error"  # the process failed, hangs or is absent


def fault_of(cause: JobFact | None) -> str:
    if cause is None:
        return ELSE
    by_code = (fault for pattern, fault in BY_CODE if re.fullmatch(pattern, cause.code))
    return next(by_code, BY_KIND.get(cause.kind, ELSE))
