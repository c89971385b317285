"""The JSON of the HTTP protocol as OpenAPI schemas. Source: the open inference protocol and Triton's extensions."""

from __future__ import annotations

from typing import Any

from serving_node.contract.states import ModelState
from serving_node.core.tensor import NUMPY_DTYPES

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_INTEGER: Schema = {"type": "integer", "format": "int64"}
_UNSIGNED: Schema = {"type": "integer", "minimum": 0}
_BOOLEAN: Schema = {"type": "boolean"}
_DATATYPE: Schema = {"type": "string", "enum": list(NUMPY_DTYPES)}
_PARAMETERS: Schema = {
    "type": "object",
    "additionalProperties": {"anyOf": [_TEXT, {"type": "number"}, _BOOLEAN]},
}


def ref(name: str) -> Schema:
    """Return a reference to one of the schemas."""
    return {"$ref": f"#/components/schemas/{name}"}


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _object(required: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    schema: Schema = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


def _said(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


_REGION = {
    "shared_memory_region": _said(_TEXT, "Registered region that holds the data."),
    "shared_memory_offset": _UNSIGNED,
    "shared_memory_byte_size": _UNSIGNED,
}
_DURATION = _object(("count", "ns"), count=_UNSIGNED, ns=_UNSIGNED)
_DURATIONS: Schema = {"type": "object", "additionalProperties": ref("Duration")}

SCHEMAS: dict[str, Schema] = {
    "Error": _object(("error",), error=_TEXT),
    "ServerMetadata": _object(("name", "version", "extensions"), name=_TEXT, version=_TEXT, extensions=_array(_TEXT)),
    "TensorMetadata": _object(
        ("name", "datatype", "shape"),
        name=_TEXT,
        datatype=_DATATYPE,
        shape=_said(_array(_INTEGER), "-1 stands for a variable dimension; the batch dimension is included."),
    ),
    "ModelMetadata": _object(
        ("name", "versions", "platform", "inputs", "outputs"),
        name=_TEXT,
        versions=_array(_TEXT),
        platform=_TEXT,
        inputs=_array(ref("TensorMetadata")),
        outputs=_array(ref("TensorMetadata")),
    ),
    "InferInput": _object(
        ("name", "datatype", "shape"),
        name=_TEXT,
        datatype=_DATATYPE,
        shape=_array(_UNSIGNED),
        data=_said(_array({}), "Elements in row-major order, flat or nested. Not for FP16 and BF16."),
        parameters=_object(
            binary_data_size=_said(_UNSIGNED, "Bytes of this input behind the JSON, instead of `data`."), **_REGION
        ),
    ),
    "InferRequestedOutput": _object(
        ("name",),
        name=_TEXT,
        parameters=_object(
            binary_data=_said(_BOOLEAN, "Send the data behind the JSON."),
            classification=_said(_UNSIGNED, "Send the so many largest values as `value:index[:label]`."),
            **_REGION,
        ),
    ),
    "InferRequest": _object(
        ("inputs",),
        id=_said(_TEXT, "Comes back in the response."),
        inputs=_array(ref("InferInput")),
        outputs=_said(_array(ref("InferRequestedOutput")), "Without it, all outputs."),
        parameters=_said(
            {
                **_PARAMETERS,
                "properties": {
                    "sequence_id": {"anyOf": [_UNSIGNED, _TEXT]},
                    "sequence_start": _BOOLEAN,
                    "sequence_end": _BOOLEAN,
                    "priority": _UNSIGNED,
                    "timeout": _said(_UNSIGNED, "Microseconds that the request may wait."),
                    "binary_data_output": _said(_BOOLEAN, "Send outputs that `outputs` does not list as bytes."),
                },
            },
            "All others are handed to the model; names that begin with `triton_` are refused.",
        ),
    ),
    "InferOutput": _object(
        ("name", "datatype", "shape"),
        name=_TEXT,
        datatype=_DATATYPE,
        shape=_array(_UNSIGNED),
        data=_said(_array({}), "Elements in row-major order, always flat."),
        parameters=_object(binary_data_size=_UNSIGNED, shared_memory_region=_TEXT),
    ),
    "InferResponse": _object(
        ("model_name", "model_version", "outputs"),
        id=_TEXT,
        model_name=_TEXT,
        model_version=_TEXT,
        parameters=_PARAMETERS,
        outputs=_array(ref("InferOutput")),
    ),
    "GenerateRequest": {
        "type": "object",
        "description": "A key with the name of an input is its tensor (a value or a flat array); every other key is a"
        " parameter for the model.",
        "properties": {"id": _TEXT, "parameters": _said({"type": "object"}, "Its members are taken the same way.")},
        "additionalProperties": True,
    },
    "GenerateResponse": {
        "type": "object",
        "description": "Outputs by name; an array of one element is that element.",
        "properties": {"id": _TEXT, "model_name": _TEXT, "model_version": _TEXT},
        "required": ["model_name", "model_version"],
        "additionalProperties": True,
    },
    "ModelConfig": _said({"type": "object"}, "The completed ModelConfig; field names are those of config.pbtxt."),
    "Duration": _DURATION,
    "ModelStatistics": _object(
        ("name", "version"),
        name=_TEXT,
        version=_TEXT,
        last_inference=_said(_UNSIGNED, "Milliseconds since 1970."),
        inference_count=_UNSIGNED,
        execution_count=_UNSIGNED,
        inference_stats=_DURATIONS,
        response_stats={"type": "object", "additionalProperties": _DURATIONS},
        batch_stats=_array({"type": "object", "properties": {"batch_size": _UNSIGNED}}),
        memory_usage=_array(_object(("type", "id", "byte_size"), type=_TEXT, id=_INTEGER, byte_size=_UNSIGNED)),
    ),
    "Statistics": _object(("model_stats",), model_stats=_array(ref("ModelStatistics"))),
    "TraceSettings": _object(
        trace_level={"anyOf": [_array(_TEXT), {"type": "null"}]},
        trace_rate={"type": ["string", "null"]},
        trace_count={"type": ["string", "null"]},
        log_frequency={"type": ["string", "null"]},
        trace_file=_said(_TEXT, "Cannot be changed here."),
        trace_mode=_TEXT,
    ),
    "LogSettings": _object(
        log_file=_said(_TEXT, "Cannot be changed here."),
        log_info=_BOOLEAN,
        log_warning=_BOOLEAN,
        log_error=_BOOLEAN,
        log_verbose_level=_UNSIGNED,
        log_format=_TEXT,
    ),
    "IndexRequest": _object(ready=_said(_BOOLEAN, "List only versions that are ready.")),
    "Index": _array(
        _object(
            ("name",),
            name=_TEXT,
            version=_TEXT,
            state={"type": "string", "enum": [state.value for state in ModelState]},
            reason=_TEXT,
        )
    ),
    "LoadRequest": _object(
        parameters=_said(
            {"type": "object", "properties": {"config": _TEXT}, "additionalProperties": _TEXT},
            "`config`: a ModelConfig as JSON text; `file:<version>/<path>`: the content of a file, base64.",
        )
    ),
    "UnloadRequest": _object(parameters=_object(unload_dependents=_BOOLEAN)),
    "SystemRegion": _object(("key", "byte_size"), key=_TEXT, offset=_UNSIGNED, byte_size=_UNSIGNED),
    "CudaRegion": _object(
        ("raw_handle", "device_id", "byte_size"),
        raw_handle=_object(("b64",), b64=_TEXT),
        device_id=_UNSIGNED,
        byte_size=_UNSIGNED,
    ),
    "Regions": _array(_object(("name", "byte_size"), name=_TEXT, byte_size=_UNSIGNED)),
}
