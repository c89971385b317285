"""What models may do in initialize, execute and finalize, and what their callers get."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

from .conftest import Models

DOUBLE = """
def execute(self, requests):
    return [
        pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy() * 2)])
        for request in requests
    ]
"""


@pytest.mark.parametrize("count", [0, 1, 16, 5_000, 300_000])
async def test_tensors_of_any_size_go_there_and_back(models: Models, count: int) -> None:
    model = await models.load(DOUBLE)
    values = np.arange(count, dtype=np.float32)
    for _ in range(3):
        assert np.array_equal(await models.ask(model, values).array(), values * 2)


async def test_strings_go_there_and_back(models: Models) -> None:
    body = """
    def execute(self, requests):
        words = requests[0].inputs()[0].as_numpy()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([w + b"!" for w in words], dtype=object))])]
    """
    model = await models.load(body, datatype="TYPE_STRING")
    words = [b"a", b"", "\N{SNOWMAN}".encode(), b"x" * 100_000]
    assert list(await models.ask(model, words, dtype="BYTES").array()) == [word + b"!" for word in words]


async def test_arrays_that_are_not_contiguous_and_outputs_nobody_wants(models: Models) -> None:
    body = """
    def execute(self, requests):
        square = np.arange(6, dtype=np.float32).reshape(2, 3).T
        big = np.zeros((200, 300), np.float32)[:, ::3]
        return [pb_utils.InferenceResponse([
            pb_utils.Tensor("OTHER", big), pb_utils.Tensor("OUT", square), pb_utils.Tensor("BIG", big + 1),
        ])]
    """
    extra = 'output [ { name: "BIG" data_type: TYPE_FP32 dims: [ -1, -1 ] } ]'
    model = await models.load(body, extra)
    answer = await models.ask(model, [1]).answer()
    assert [(tensor.name, tensor.shape) for tensor in answer.outputs] == [("OUT", (3, 2)), ("BIG", (200, 100))]
    assert answer.outputs[0].as_numpy().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert (answer.outputs[1].as_numpy() == 1).all()
    answer = await models.ask(model, [1], outputs=("OUT",)).answer()
    assert [tensor.name for tensor in answer.outputs] == ["OUT"]


async def test_models_may_write_into_their_inputs_and_keep_them(models: Models) -> None:
    body = """
    def initialize(self, args):
        self.kept = []

    def execute(self, requests):
        array = requests[0].inputs()[0].as_numpy()
        array += 1
        self.kept.append(array)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", sum(kept[:1] for kept in self.kept))])]
    """
    model = await models.load(body)
    total = 0.0
    for value in range(5):  # large ones: their memory must not be used again while the model looks at it
        total += value + 1
        assert (await models.ask(model, np.full(50_000, value)).array()).tolist() == [total]


async def test_what_a_request_says_of_itself(models: Models) -> None:
    body = """
    def initialize(self, args):
        self.args = args

    def execute(self, requests):
        import json
        request = requests[0]
        said = {
            "args": self.args, "id": request.request_id(), "correlation": request.correlation_id(),
            "flags": request.flags(), "timeout": request.timeout(), "parameters": request.parameters(),
            "outputs": sorted(request.requested_output_names()), "module": __name__,
            "path": [entry for entry in sys.path if entry], "cancelled": request.is_cancelled(),
        }
        text = np.array([json.dumps(said)], dtype=object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)], parameters={"n": 1, "t": "x", "b": True})]
    """
    model = await models.load(body, datatype="TYPE_STRING")
    asked = models.ask(model, [b""], dtype="BYTES", identity="seven")
    request = asked.request
    assert (await asked.answer()).parameters == {"n": 1, "t": "x", "b": True}
    said: dict[str, Any] = json.loads((await asked.array())[0])
    assert said["id"] == "seven" and said["correlation"] == 0 and said["parameters"] == "{}" and not said["cancelled"]
    assert said["outputs"] == ["OUT"] and said["module"] == "1.model"
    folder = Path(said["args"].pop("model_repository"))
    assert folder.name == "m" and said["path"][-3:-1] == [str(folder / "1"), str(folder)]
    assert json.loads(said["args"].pop("model_config"))["default_model_filename"] == "model.py"
    assert said["args"] == {
        "model_instance_kind": "CPU",
        "model_instance_device_id": "0",
        "model_instance_name": "m_0",
        "model_version": "1",
        "model_name": "m",
    }
    assert request.on_cancel is None


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("def execute(self, requests): raise ValueError('boom')", "ValueError: boom\n\nAt:\n  {file}(7): execute\n"),
        ("def execute(self, requests): return 5", "Expected a list in the execute return, found type '<class 'int'>'."),
        (
            "def execute(self, requests): return []",
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects."
            " InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0\n",
        ),
        (
            "def execute(self, requests): return [5]",
            "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'int'>'.",
        ),
        ("def finalize(self): pass", "Python model {file} does not implement `execute` method."),
    ],
)
async def test_what_goes_wrong_in_execute_fails_the_batch(models: Models, body: str, text: str) -> None:
    model = await models.load(body)
    file = models.folder / "m" / "1" / "model.py"
    expected = "Failed to process the request(s) for model 'm_0', message: " + text.replace("{file}", str(file))
    asked = models.ask(model, [1])
    assert await asked.error() == expected
    assert asked.responses[0].error is not None and asked.responses[0].error.code is ErrorCode.INTERNAL


async def test_errors_of_one_request_leave_the_others_alone(models: Models) -> None:
    body = """
    def execute(self, requests):
        answers = []
        for request in requests:
            array = request.inputs()[0].as_numpy()
            if array.flat[0] < 0:
                error = pb_utils.TritonError("negative", pb_utils.TritonError.INVALID_ARG)
                answers.append(pb_utils.InferenceResponse(error=error))
            else:
                answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]))
        return answers
    """
    model = await models.load(body, "max_batch_size: 8 dynamic_batching { }")
    good, bad = models.ask(model, [[1]]), models.ask(model, [[-1]])
    assert (await good.array()).tolist() == [[1]]
    assert await bad.error() == "negative"
    assert bad.responses[0].error is not None and bad.responses[0].error.code is ErrorCode.INVALID_ARG
    assert model.statistics.execution_count == 1


async def test_an_async_execute_is_awaited(models: Models) -> None:
    body = """
    async def execute(self, requests):
        import asyncio
        await asyncio.sleep(0)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
    """
    model = await models.load(body)
    assert (await models.ask(model, [3]).array()).tolist() == [3]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("def x(:", "SyntaxError: invalid syntax (model.py, line 1)"),
        ("x = 1", "AttributeError: module '1.model' has no attribute 'TritonPythonModel'"),
        ("import nosuchmodule", "ModuleNotFoundError: No module named 'nosuchmodule'\n\nAt:\n"),
    ],
)
async def test_a_file_that_cannot_be_imported_is_a_load_error(models: Models, source: str, text: str) -> None:
    version = models.write("pass")
    (version / "model.py").write_text(source)
    models.write = lambda *_: version  # type: ignore[method-assign]
    with pytest.raises(InferenceError) as caught:
        await models.load("")
    assert caught.value.message.startswith(text) and caught.value.code is ErrorCode.INTERNAL


async def test_a_failing_initialize_is_a_load_error_and_its_process_ends(
    models: Models, until: Callable[..., Any]
) -> None:
    body = """
    def initialize(self, args):
        open(args["model_repository"] + "/pid", "w").write(str(os.getpid()))
        raise RuntimeError("no good")
    """
    with pytest.raises(InferenceError, match=r"^RuntimeError: no good\n\nAt:\n  .*model.py.9.: initialize\n$"):
        await models.load(body)
    pid = (models.folder / "m" / "pid").read_text()
    await until(lambda: not Path(f"/proc/{pid}").exists())


async def test_a_process_that_ends_in_initialize_is_a_load_error(models: Models) -> None:
    with pytest.raises(InferenceError, match="Stub process 'm_0' is not healthy"):
        await models.load("def initialize(self, args): os._exit(3)")


async def test_finalize_runs_at_the_end(models: Models) -> None:
    body = """
    def initialize(self, args):
        self.file = args["model_repository"] + "/over"

    def finalize(self):
        open(self.file, "w").write("yes")
    """
    model = await models.load(body)
    await model.close(10)
    assert (models.folder / "m" / "over").read_text() == "yes"


async def test_the_models_own_code_completes_the_config(models: Models) -> None:
    body = """
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]})
        config.set_max_batch_size(4)
        config.set_dynamic_batching()
        return config

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
    """
    model = await models.load(body, config='backend: "python"')
    assert model.max_batch_size == 4 and model.config.HasField("dynamic_batching")
    assert (await models.ask(model, [[1, 2]]).array()).tolist() == [[1, 2]]
    with pytest.raises(InferenceError, match="must return a valid"):
        await models.load("@staticmethod\ndef auto_complete_config(config): return 5", name="other")


async def test_warm_up_runs_what_the_config_says_and_nothing_else(models: Models) -> None:
    body = """
    def initialize(self, args):
        self.count = 0

    def execute(self, requests):
        self.count += len(requests)
        answer = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([self.count], np.float32))])
        return [answer for _ in requests]
    """
    model = await models.load(body)
    assert (await models.ask(model, [0]).array()).tolist() == [1]
    sample = 'inputs: { key: "IN" value: { data_type: TYPE_FP32 dims: [ 2 ] zero_data: true } }'
    model = await models.load(body, f'model_warmup [ {{ name: "w" batch_size: 1 count: 3 {sample} }} ]', name="warm")
    assert (await models.ask(model, [0]).array()).tolist() == [4]


async def test_the_worker_sees_no_secrets_and_no_files_of_the_node(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    body = """
    def execute(self, requests):
        files = ["/proc/self/fd/" + fd for fd in os.listdir("/proc/self/fd")]
        links = [os.readlink(file) for file in files if os.path.exists(file) or os.path.islink(file)]
        said = [repr(dict(os.environ)), repr(sorted(links)), str(os.getsid(0) == os.getpid())]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(said, dtype=object))])]
    """
    marker = models.folder / "secret"
    with marker.open("w"):
        model = await models.load(body, datatype="TYPE_STRING")
        environment, links, leads = (text.decode() for text in await models.ask(model, [b""], dtype="BYTES").array())
    assert "hunter2" not in environment and "OMP_NUM_THREADS" in environment and "flotilla-worker-" in environment
    assert "secret" not in links and links.count("socket:") == 2
    assert leads == "True"
