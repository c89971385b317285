"""The report of a conversion on the page of the version that it made."""

from __future__ import annotations

import hashlib

from registry.services.conversions import conversion_attach
from serving_node.contract.conversion import (
    ConversionReport,
    ConvertedFile,
    OutputComparison,
    SampleInputs,
    Tolerance,
)
from tests.console.web.conftest import Browse, Served


def test_the_page_shows_each_output_and_the_version_that_was_converted(served: Served, browse: Browse) -> None:
    digest = hashlib.sha256(b"weights").hexdigest()  # the file of finch v1
    outputs = (
        OutputComparison("probs<b>", "FP32", elements=80, differing=2, max_absolute=0.00123, worst=3.5),
        OutputComparison("label", "INT64", elements=8, is_exact=True),
    )
    report = ConversionReport(
        ConvertedFile("first.onnx", digest, 2048, "onnx"),
        ConvertedFile("half.onnx", "b" * 64, 1024, "onnx"),
        ("simplified", "fp16"),
        Tolerance(0.01, 0.001),
        SampleInputs((1, 7), None),
        outputs,
    )
    version = served.cast.version("finch")
    conversion_attach(version=version, report=report, actor=served.cast.actor("bob"))
    page = browse("vera").get(f"/p/wren/models/finch/versions/{version.pk}/").text
    table = page.split('data-testid="conversion-table"')[1].split("</table>")[0]
    assert "probs&lt;b&gt;" in table
    assert "0.0012" in table
    assert "3.5" in table
    assert 'data-status="warn"' in table
    assert 'data-status="pass"' in table
    assert "simplified + fp16" in page
    origin = page.split('data-testid="converted-from"')[1].split("</dd>")[0]
    assert 'href="/p/wren/models/finch/versions/1/"' in origin
    assert "finch v1" in origin
