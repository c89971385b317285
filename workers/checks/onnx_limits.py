"""What the supported ONNX Runtime can load. tests/workers/checks compares the table with the installed one."""

from __future__ import annotations

from collections.abc import Iterator

import onnx.defs
from django.utils.translation import gettext as _

from workers.checks.onnx_file import OnnxSummary

RUNTIME = "ONNX Runtime 1.31"
MAX_IR_VERSION = 13
# The newest operator set of each domain that the runtime accepts; "" is ai.onnx.
MAX_OPSETS = {
    "": 26,
    "ai.onnx.ml": 5,
    "ai.onnx.training": 1,
    "ai.onnx.preview.training": 1,
    "com.microsoft": 1,
}
# Domains of ONNX Runtime itself whose operators the onnx package does not know.
_RUNTIME_DOMAINS = frozenset({"com.microsoft", "com.microsoft.experimental", "com.microsoft.nchwc"})


def domain_name(domain: str) -> str:
    """Return the domain as people write it: the empty one is ai.onnx."""
    return domain or "ai.onnx"


def limit_problems(summary: OnnxSummary) -> Iterator[str]:
    """Yield one sentence for everything that keeps the runtime from loading the file."""
    if summary.ir_version > MAX_IR_VERSION:
        yield _("The file has ONNX IR version %(found)d; %(runtime)s loads up to %(most)d.") % {
            "found": summary.ir_version,
            "runtime": RUNTIME,
            "most": MAX_IR_VERSION,
        }
    for domain, version in sorted(summary.opsets.items()):
        most = MAX_OPSETS.get(domain)
        if most is not None and version > most:
            yield _("The file uses opset %(found)d of %(domain)s; %(runtime)s loads up to opset %(most)d.") % {
                "found": version,
                "domain": domain_name(domain),
                "runtime": RUNTIME,
                "most": most,
            }
        if version < 1:
            yield _("The file names opset %(found)d of %(domain)s, which does not exist.") % {
                "found": version,
                "domain": domain_name(domain),
            }
    for domain, operators in sorted(_foreign_operators(summary).items()):
        yield _("The file uses operators of the domain %(domain)s (%(names)s), which need a custom library.") % {
            "domain": domain,
            "names": ", ".join(sorted(operators)[:5]),
        }


def operator_warnings(summary: OnnxSummary) -> Iterator[str]:
    """Yield a sentence for operators that the standard does not have at the file's opset."""
    unknown = sorted(
        name
        for domain, name in summary.operators
        if domain in MAX_OPSETS and domain not in _RUNTIME_DOMAINS and (domain, name) not in summary.functions
        if not _exists(name, domain, summary.opsets.get(domain, 0))
    )
    if unknown:
        yield _("The standard has no such operators at this opset: %(names)s. The node may refuse the file.") % {
            "names": ", ".join(unknown[:5])
        }


def _foreign_operators(summary: OnnxSummary) -> dict[str, set[str]]:
    foreign: dict[str, set[str]] = {}
    for domain, name in summary.operators - summary.functions:
        if domain not in MAX_OPSETS and domain not in _RUNTIME_DOMAINS:
            foreign.setdefault(domain, set()).add(name)
    return foreign


def _exists(name: str, domain: str, opset: int) -> bool:
    try:
        onnx.defs.get_schema(name, opset, domain)
    except onnx.defs.SchemaError:
        return False
    return True
