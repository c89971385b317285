from __future__ import annotations

from dataclasses import replace

import pytest

from serving_node.contract.model_config import parse_pbtxt
from workers.checks.answers import answer_problems, answer_warnings
from workers.checks.samples import made_up_requests, profile_rounds
from workers.scratch import Answer, Difference, OutputFacts, ScratchFailed, Stream
from workers.scratch.report import read_report

CONFIG = parse_pbtxt(
    """
    max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: [ 3, -1 ] }
    output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }
    """
)
FACTS = OutputFacts("y", "FP32", (2, 5), 0, 0, 0.0, 1.0)
GOOD = Answer("", 1.0, (FACTS,))


def test_an_answer_as_promised() -> None:
    assert answer_problems(CONFIG, GOOD, 2) == []
    assert answer_problems(CONFIG, GOOD, None) == []
    assert answer_warnings(GOOD) == []


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Answer("no", 1.0, ()), "The model refused a request: no"),
        (Answer("", 1.0, ()), "The answer has no output “y”."),
        (replace(GOOD, outputs=(replace(FACTS, datatype="FP64"),)), "has the type FP64, the config says FP32"),
        (replace(GOOD, outputs=(replace(FACTS, shape=(1, 5)),)), "has the shape [1, 5], the config says [2, -1]"),
        (replace(GOOD, outputs=(replace(FACTS, shape=(2,)),)), "has the shape [2], the config says [2, -1]"),
    ],
)
def test_an_answer_that_is_not(answer: Answer, problem: str) -> None:
    assert problem in answer_problems(CONFIG, answer, 2)[0]


def test_infinities_are_suspicious() -> None:
    assert answer_warnings(replace(GOOD, outputs=(replace(FACTS, inf=1),)))


def test_requests_are_made_up_for_one_row_and_two() -> None:
    assert [asked.rows for asked in made_up_requests(CONFIG)] == [1, 2]
    assert b'"shape":[2,3,1]' in made_up_requests(CONFIG)[1].request.body
    assert [request.batch for request in profile_rounds(CONFIG)] == [1, 4]


def test_sizes_of_the_warm_up_are_taken() -> None:
    config = parse_pbtxt(
        """
        input { name: "x" data_type: TYPE_FP32 dims: [ -1, -1 ] }
        output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }
        model_warmup { name: "w" inputs { key: "x" value { data_type: TYPE_FP32 dims: [ 7, 9 ] zero_data: true } } }
        """
    )
    asked = made_up_requests(config)
    assert [one.rows for one in asked] == [None]
    assert b'"shape":[7,9]' in asked[0].request.body


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b"null", b'{"reason": ""}', b'{"reason": "", "load_seconds": "x"}', b"[" * 100_000,
        b'{"reason": "", "load_seconds": 1e999}', b'{"reason": "", "load_seconds": -1}', b"\xff",
        b'{"reason": "", "load_seconds": 1, "config": []}', b'{"reason": "", "load_seconds": 1, "answers": [1]}',
        b'{"reason": "", "load_seconds": 1, "answers": 7}', b'{"reason": "", "load_seconds": 1, "profile": [{}]}',
    ],
)  # fmt: skip
def test_a_report_is_read_with_care(text: bytes) -> None:
    with pytest.raises(ScratchFailed):
        read_report(text, log="", peak_bytes=0)


def test_answers_of_a_stream() -> None:
    stream = Stream(2, True, 1.0, (2.0,), ((replace(FACTS, shape=(2,)),),))
    assert answer_problems(CONFIG, replace(GOOD, stream=replace(stream, other_outputs=())), 2) == []
    assert "has the shape [2], the config says" in answer_problems(CONFIG, replace(GOOD, stream=stream), 2)[0]
    unended = replace(stream, is_final=False, other_outputs=())
    assert answer_warnings(replace(GOOD, stream=unended))[0].startswith("After 2 answers a request was not ended")
    silent = Answer("", 1.0, (), Stream(0, False, None, ()))
    assert answer_problems(CONFIG, silent, 2) == ["No answer came, and the request was not ended either."]
    assert answer_problems(CONFIG, replace(silent, stream=Stream(0, True, None, ())), 2) == []


def test_an_answer_that_differs_from_its_sample() -> None:
    apart = Difference(10, 1, 0.5, 3, "1.5", "1.0")
    assert answer_problems(CONFIG, replace(GOOD, outputs=(replace(FACTS, difference=apart),)), 2) == [
        "Output “y” differs from the sample in 1 of 10 elements: element 3 is 1.5, expected 1.0."
    ]
    other = Difference(1, 1, None, None, "FP32 [1]", "FP32 [2]")
    assert answer_problems(CONFIG, replace(GOOD, outputs=(replace(FACTS, difference=other),)), 2) == [
        "Output “y” is FP32 [1], the sample expects FP32 [2]."
    ]
    assert not answer_problems(CONFIG, replace(GOOD, outputs=(replace(FACTS, difference=replace(apart, wrong=0)),)), 2)
