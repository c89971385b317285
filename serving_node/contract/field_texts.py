"""Labels and help for every field of ModelConfig, in plain language, by message and field.

``_`` marks a text for translation; whoever shows it translates it.
"""

from __future__ import annotations


def _(text: str) -> str:
    return text


FIELD_TEXTS: dict[str, tuple[str, str]] = {
    # The model
    "ModelConfig.name": (
        _("Name"),
        _("Name under which clients call the model; left empty, the folder's name counts."),
    ),
    "ModelConfig.platform": (
        _("Platform"),
        _("Format of the model file, such as onnxruntime_onnx; usually follows from the backend."),
    ),
    "ModelConfig.backend": (_("Backend"), _("Engine that runs the model, such as onnxruntime, python or pytorch.")),
    "ModelConfig.runtime": (_("Runtime"), _("Another implementation of the backend; leave empty for the usual one.")),
    "ModelConfig.version_policy": (_("Versions to serve"), _("Which of the version folders are served.")),
    "ModelConfig.max_batch_size": (
        _("Largest batch"),
        _("Most rows that one execution may take; 0 means the model has no batch dimension."),
    ),
    "ModelConfig.input": (_("Inputs"), _("Tensors that a request sends.")),
    "ModelConfig.output": (_("Outputs"), _("Tensors that a response carries.")),
    "ModelConfig.batch_input": (
        _("Batch inputs"),
        _("Tensors that the server computes from a batch and hands to the model with it."),
    ),
    "ModelConfig.batch_output": (
        _("Batch outputs"),
        _("Outputs that the server cuts into the parts of each request."),
    ),
    "ModelConfig.optimization": (_("Optimisation"), _("Hints that let the backend run the model faster.")),
    "ModelConfig.dynamic_batching": (
        _("Dynamic batching"),
        _("Join requests that wait at the same time into one execution."),
    ),
    "ModelConfig.sequence_batching": (
        _("Sequence batching"),
        _("Keep the requests of one sequence together, for models that remember what came before."),
    ),
    "ModelConfig.ensemble_scheduling": (
        _("Ensemble"),
        _("Answer with a chain of other models instead of a file of its own."),
    ),
    "ModelConfig.instance_group": (_("Instance groups"), _("How many copies of the model run at once, and where.")),
    "ModelConfig.default_model_filename": (
        _("Model file"),
        _("File in the version folder to load; left empty, the backend's usual name, such as model.onnx."),
    ),
    "ModelConfig.cc_model_filenames": (
        _("Model file per GPU type"),
        _("Another file for GPUs of a certain compute capability, such as 8.0."),
    ),
    "ModelConfig.metric_tags": (_("Metric labels"), _("Extra labels on every metric of this model.")),
    "ModelConfig.parameters": (_("Backend parameters"), _("Settings that only the backend understands.")),
    "ModelConfig.model_warmup": (
        _("Warm-up requests"),
        _("Requests that run before the model counts as ready, so that the first user does not wait."),
    ),
    "ModelConfig.model_operations": (_("Custom operators"), _("Libraries with operators that the model needs.")),
    "ModelConfig.model_transaction_policy": (_("Responses"), _("How many responses one request may have.")),
    "ModelConfig.model_repository_agents": (
        _("Repository agents"),
        _("Programs that check or change the model's files before it is loaded."),
    ),
    "ModelConfig.response_cache": (_("Response cache"), _("Answer equal requests from memory.")),
    "ModelConfig.model_metrics": (_("Metrics"), _("Settings of this model's metrics.")),
    "ModelParameter.string_value": (_("Value"), _("Value of the setting, as text.")),
    # Versions
    "ModelVersionPolicy.latest": (_("Newest"), _("Serve the versions with the highest numbers.")),
    "ModelVersionPolicy.all": (_("All"), _("Serve every version in the folder.")),
    "ModelVersionPolicy.specific": (_("Chosen ones"), _("Serve exactly the versions listed.")),
    "ModelVersionPolicy.Latest.num_versions": (_("How many"), _("Number of versions to serve, newest first.")),
    "ModelVersionPolicy.Specific.versions": (_("Versions"), _("Numbers of the versions to serve.")),
    # Inputs and outputs
    "ModelInput.name": (_("Name"), _("Name of the tensor in the model file.")),
    "ModelInput.data_type": (_("Data type"), _("Type of one element.")),
    "ModelInput.format": (_("Image layout"), _("Order of an image's dimensions; only a note for clients.")),
    "ModelInput.dims": (
        _("Shape"),
        _("Size of each dimension without the batch dimension; -1 stands for any size."),
    ),
    "ModelInput.reshape": (_("Reshape"), _("Give the model the same values in another shape.")),
    "ModelInput.is_shape_tensor": (
        _("Shape tensor"),
        _("The values of this tensor are themselves a shape; only for TensorRT."),
    ),
    "ModelInput.allow_ragged_batch": (
        _("Unequal shapes in one batch"),
        _("Requests of unequal shapes may share a batch; the model then gets all values in one row."),
    ),
    "ModelInput.optional": (_("Optional"), _("A request may leave this tensor out.")),
    "ModelInput.is_non_linear_format_io": (
        _("Non-linear layout"),
        _("The values are stored in a layout of the GPU's own; only for TensorRT."),
    ),
    "ModelOutput.name": (_("Name"), _("Name of the tensor in the model file.")),
    "ModelOutput.data_type": (_("Data type"), _("Type of one element.")),
    "ModelOutput.dims": (
        _("Shape"),
        _("Size of each dimension without the batch dimension; -1 stands for any size."),
    ),
    "ModelOutput.reshape": (_("Reshape"), _("Give clients the same values in another shape than the model makes.")),
    "ModelOutput.label_filename": (
        _("Label file"),
        _("File with one label per line; clients that ask for classes get these labels."),
    ),
    "ModelOutput.is_shape_tensor": (
        _("Shape tensor"),
        _("The values of this tensor are themselves a shape; only for TensorRT."),
    ),
    "ModelOutput.is_non_linear_format_io": (
        _("Non-linear layout"),
        _("The values are stored in a layout of the GPU's own; only for TensorRT."),
    ),
    "ModelTensorReshape.shape": (
        _("Shape for the model"),
        _("Sizes of the dimensions that the model sees; empty for a single value."),
    ),
    "BatchInput.kind": (_("Content"), _("What the server computes from the batch.")),
    "BatchInput.target_name": (_("Model inputs"), _("Inputs of the model that get the computed tensor.")),
    "BatchInput.data_type": (_("Data type"), _("Type of the computed tensor: INT32 or FP32.")),
    "BatchInput.source_input": (_("Source"), _("The one input that the tensor is computed from.")),
    "BatchOutput.target_name": (_("Outputs"), _("Outputs that are cut into parts.")),
    "BatchOutput.kind": (_("Rule"), _("How the parts are found.")),
    "BatchOutput.source_input": (_("Source"), _("The one input whose shapes tell the size of each part.")),
    # Batching
    "ModelDynamicBatching.preferred_batch_size": (
        _("Preferred batch sizes"),
        _("Sizes at which a batch runs at once; left empty, the largest batch."),
    ),
    "ModelDynamicBatching.max_queue_delay_microseconds": (
        _("Longest wait for a fuller batch"),
        _("Time a request may wait for others to join its batch; 0 runs whatever is there."),
    ),
    "ModelDynamicBatching.preserve_ordering": (
        _("Keep the order"),
        _("Answer requests in the order in which they came."),
    ),
    "ModelDynamicBatching.priority_levels": (
        _("Priority levels"),
        _("Number of priorities that requests may have; 1 is the most urgent, 0 switches priorities off."),
    ),
    "ModelDynamicBatching.default_priority_level": (
        _("Default priority"),
        _("Priority of a request that names none."),
    ),
    "ModelDynamicBatching.default_queue_policy": (
        _("Queue limits"),
        _("Limits of the waiting line, where a priority has none of its own."),
    ),
    "ModelDynamicBatching.priority_queue_policy": (
        _("Queue limits per priority"),
        _("Limits of the waiting line of one priority."),
    ),
    "ModelQueuePolicy.timeout_action": (
        _("When the time is over"),
        _("Refuse a request that has waited too long, or run it after all others."),
    ),
    "ModelQueuePolicy.default_timeout_microseconds": (
        _("Longest wait in the queue"),
        _("Time a request may wait before it is refused or put last; 0 for no limit."),
    ),
    "ModelQueuePolicy.allow_timeout_override": (
        _("Requests may shorten the wait"),
        _("A request may bring a shorter limit of its own."),
    ),
    "ModelQueuePolicy.max_queue_size": (
        _("Longest queue"),
        _("Requests that may wait; more are refused at once. 0 for no limit."),
    ),
    # Instances
    "ModelInstanceGroup.name": (_("Name"), _("Name of the group in logs; left empty, model name and number.")),
    "ModelInstanceGroup.kind": (_("Where"), _("Kind of device that the copies run on.")),
    "ModelInstanceGroup.count": (
        _("Copies"),
        _("Copies of the model on each device; left empty, 1, or 2 with onnxruntime on a CPU."),
    ),
    "ModelInstanceGroup.rate_limiter": (
        _("Rate limiter"),
        _("What a copy needs before it may run, when models share a device."),
    ),
    "ModelInstanceGroup.gpus": (_("GPUs"), _("Numbers of the GPUs to use; left empty, all of them.")),
    "ModelInstanceGroup.secondary_devices": (_("Second devices"), _("Devices that take over a part of the model.")),
    "ModelInstanceGroup.profile": (_("Profiles"), _("Numbers of the optimisation profiles; only for TensorRT.")),
    "ModelInstanceGroup.passive": (_("Passive"), _("Load the copies but never give them requests.")),
    "ModelInstanceGroup.host_policy": (_("Host policy"), _("Name of a rule of the server for memory and threads.")),
    "ModelInstanceGroup.SecondaryDevice.kind": (_("Device"), _("Kind of the second device.")),
    "ModelInstanceGroup.SecondaryDevice.device_id": (_("Number"), _("Number of the second device.")),
    "ModelRateLimiter.resources": (_("Resources"), _("Amounts that a copy takes while it runs.")),
    "ModelRateLimiter.priority": (
        _("Weight"),
        _("A model with weight 2 gets half as many turns as one with weight 1."),
    ),
    "ModelRateLimiter.Resource.name": (_("Name"), _("Name of the resource; any word that models share.")),
    "ModelRateLimiter.Resource.global": (_("Shared"), _("Count the resource once for all devices.")),
    "ModelRateLimiter.Resource.count": (_("Amount"), _("How much of the resource one copy takes.")),
    # Sequences
    "ModelSequenceBatching.direct": (_("Direct"), _("Each sequence keeps one place in the batch until it ends.")),
    "ModelSequenceBatching.oldest": (_("Oldest first"), _("Batches are made of the requests that wait longest.")),
    "ModelSequenceBatching.max_sequence_idle_microseconds": (
        _("Longest pause"),
        _("Time without a request after which a sequence is given up."),
    ),
    "ModelSequenceBatching.control_input": (
        _("Control inputs"),
        _("Inputs that tell the model about start, end, identity and readiness of a sequence."),
    ),
    "ModelSequenceBatching.state": (_("State"), _("Tensors that the server keeps between requests of a sequence.")),
    "ModelSequenceBatching.iterative_sequence": (
        _("Iterative"),
        _("The model may put a request back into the queue and go on with it later."),
    ),
    "ModelSequenceBatching.ControlInput.name": (_("Name"), _("Name of the input in the model file.")),
    "ModelSequenceBatching.ControlInput.control": (_("Signals"), _("Which signal the input carries, and how.")),
    "ModelSequenceBatching.Control.kind": (_("Signal"), _("What the model is told.")),
    "ModelSequenceBatching.Control.int32_false_true": (
        _("No and yes as integers"),
        _("Two values: the one for no and the one for yes."),
    ),
    "ModelSequenceBatching.Control.fp32_false_true": (
        _("No and yes as decimals"),
        _("Two values: the one for no and the one for yes."),
    ),
    "ModelSequenceBatching.Control.bool_false_true": (
        _("No and yes as booleans"),
        _("Two values: the one for no and the one for yes."),
    ),
    "ModelSequenceBatching.Control.data_type": (
        _("Data type"),
        _("Type of the sequence's identity; only for that signal."),
    ),
    "ModelSequenceBatching.State.input_name": (_("State input"), _("Input of the model that gets the state.")),
    "ModelSequenceBatching.State.output_name": (_("State output"), _("Output of the model with the new state.")),
    "ModelSequenceBatching.State.data_type": (_("Data type"), _("Type of one element of the state.")),
    "ModelSequenceBatching.State.dims": (_("Shape"), _("Size of each dimension of the state; -1 stands for any size.")),
    "ModelSequenceBatching.State.initial_state": (_("First state"), _("State at the start of a sequence.")),
    "ModelSequenceBatching.State.use_same_buffer_for_input_output": (
        _("One buffer"),
        _("Let the model change the state in place, which saves memory."),
    ),
    "ModelSequenceBatching.State.use_growable_memory": (
        _("Growing buffer"),
        _("Let the state grow without copying it; needs one buffer."),
    ),
    "ModelSequenceBatching.InitialState.data_type": (_("Data type"), _("Type of one element of the first state.")),
    "ModelSequenceBatching.InitialState.dims": (_("Shape"), _("Size of each dimension of the first state.")),
    "ModelSequenceBatching.InitialState.zero_data": (_("Zeros"), _("Start with zeros.")),
    "ModelSequenceBatching.InitialState.data_file": (_("File"), _("Start with the values in this file.")),
    "ModelSequenceBatching.InitialState.name": (_("Name"), _("Name of the first state.")),
    "ModelSequenceBatching.StrategyDirect.max_queue_delay_microseconds": (
        _("Longest wait for a fuller batch"),
        _("Time a request may wait for other sequences; 0 runs whatever is there."),
    ),
    "ModelSequenceBatching.StrategyDirect.minimum_slot_utilization": (
        _("Least share of busy places"),
        _("Share of the batch, from 0 to 1, that must be ready before the wait ends early."),
    ),
    "ModelSequenceBatching.StrategyOldest.max_candidate_sequences": (
        _("Sequences at once"),
        _("Sequences that may be under way; further ones wait."),
    ),
    "ModelSequenceBatching.StrategyOldest.preferred_batch_size": (
        _("Preferred batch sizes"),
        _("Sizes at which a batch runs at once; left empty, the largest batch."),
    ),
    "ModelSequenceBatching.StrategyOldest.max_queue_delay_microseconds": (
        _("Longest wait for a fuller batch"),
        _("Time a request may wait for others to join its batch; 0 runs whatever is there."),
    ),
    "ModelSequenceBatching.StrategyOldest.preserve_ordering": (
        _("Keep the order"),
        _("Answer requests in the order in which they came."),
    ),
    # Ensembles
    "ModelEnsembling.step": (_("Steps"), _("Models that the ensemble calls; the tensors decide the order.")),
    "ModelEnsembling.max_inflight_requests": (
        _("Requests under way"),
        _("Most requests that one step may have open; 0 for no limit."),
    ),
    "ModelEnsembling.Step.model_name": (_("Model"), _("Name of the model to call.")),
    "ModelEnsembling.Step.model_version": (_("Version"), _("Version to call; -1 for the newest.")),
    "ModelEnsembling.Step.input_map": (_("Inputs"), _("For each input of the model, the ensemble tensor it gets.")),
    "ModelEnsembling.Step.output_map": (_("Outputs"), _("For each output of the model, the ensemble tensor it fills.")),
    "ModelEnsembling.Step.model_namespace": (_("Namespace"), _("Namespace of the model, where the server uses them.")),
    # Warm-up
    "ModelWarmup.name": (_("Name"), _("Name of the request in logs.")),
    "ModelWarmup.batch_size": (_("Rows"), _("Number of rows in the request; 0 for a model without batches.")),
    "ModelWarmup.inputs": (_("Inputs"), _("For each input of the model, the values to send.")),
    "ModelWarmup.count": (_("Times"), _("How often the request runs; 0 means once.")),
    "ModelWarmup.Input.data_type": (_("Data type"), _("Type of one element.")),
    "ModelWarmup.Input.dims": (_("Shape"), _("Size of each dimension without the batch dimension.")),
    "ModelWarmup.Input.zero_data": (_("Zeros"), _("Send zeros.")),
    "ModelWarmup.Input.random_data": (_("Random"), _("Send random values.")),
    "ModelWarmup.Input.input_data_file": (_("File"), _("Send the values in this file of the warmup folder.")),
    # Cache and responses
    "ModelResponseCache.enable": (
        _("Use the cache"),
        _("Keep answers and give them again to equal requests; only for models that always answer the same."),
    ),
    "ModelTransactionPolicy.decoupled": (
        _("Any number of responses"),
        _("A request may have none, one or many responses; clients must use the streaming call."),
    ),
    # Optimisation
    "ModelOptimizationPolicy.graph": (_("Graph"), _("How hard the backend works on the graph while loading.")),
    "ModelOptimizationPolicy.priority": (_("Priority"), _("Priority of this model's threads and streams.")),
    "ModelOptimizationPolicy.cuda": (_("CUDA"), _("Settings for NVIDIA GPUs.")),
    "ModelOptimizationPolicy.execution_accelerators": (
        _("Accelerators"),
        _("Other engines that the backend may hand parts of the model to."),
    ),
    "ModelOptimizationPolicy.input_pinned_memory": (
        _("Pinned memory for inputs"),
        _("Faster copies to the GPU; used unless switched off."),
    ),
    "ModelOptimizationPolicy.output_pinned_memory": (
        _("Pinned memory for outputs"),
        _("Faster copies from the GPU; used unless switched off."),
    ),
    "ModelOptimizationPolicy.gather_kernel_buffer_threshold": (
        _("Gather on the GPU from"),
        _("Number of separate buffers from which the GPU itself joins a batch; 0 never."),
    ),
    "ModelOptimizationPolicy.eager_batching": (
        _("Prepare batches early"),
        _("Start to copy a batch before it is full."),
    ),
    "ModelOptimizationPolicy.Graph.level": (_("Level"), _("-1 switches it off, 0 is the usual, more is more.")),
    "ModelOptimizationPolicy.Cuda.graphs": (_("CUDA graphs"), _("Record executions and replay them.")),
    "ModelOptimizationPolicy.Cuda.busy_wait_events": (
        _("Busy waiting"),
        _("Wait for the GPU without sleeping: faster, at the cost of a CPU core."),
    ),
    "ModelOptimizationPolicy.Cuda.graph_spec": (_("Graphs to record"), _("Sizes for which a graph is recorded.")),
    "ModelOptimizationPolicy.Cuda.output_copy_stream": (
        _("Own stream for outputs"),
        _("Copy outputs while the next batch already runs."),
    ),
    "ModelOptimizationPolicy.Cuda.GraphSpec.batch_size": (_("Rows"), _("Number of rows of the recorded batch.")),
    "ModelOptimizationPolicy.Cuda.GraphSpec.input": (_("Inputs"), _("Shape of each input in the recorded batch.")),
    "ModelOptimizationPolicy.Cuda.GraphSpec.graph_lower_bound": (
        _("Smallest use"),
        _("Smallest batch for which the recorded one is used."),
    ),
    "ModelOptimizationPolicy.Cuda.GraphSpec.Shape.dim": (_("Shape"), _("Size of each dimension.")),
    "ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound.batch_size": (_("Rows"), _("Least number of rows.")),
    "ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound.input": (_("Inputs"), _("Smallest shape of each input.")),
    "ModelOptimizationPolicy.ExecutionAccelerators.gpu_execution_accelerator": (
        _("On the GPU"),
        _("Accelerators for copies on a GPU, first choice first."),
    ),
    "ModelOptimizationPolicy.ExecutionAccelerators.cpu_execution_accelerator": (
        _("On the CPU"),
        _("Accelerators for copies on the CPU, first choice first."),
    ),
    "ModelOptimizationPolicy.ExecutionAccelerators.Accelerator.name": (
        _("Name"),
        _("Name of the accelerator, such as tensorrt or openvino."),
    ),
    "ModelOptimizationPolicy.ExecutionAccelerators.Accelerator.parameters": (
        _("Parameters"),
        _("Settings that only the accelerator understands."),
    ),
    "ModelOptimizationPolicy.PinnedMemoryBuffer.enable": (
        _("Use pinned memory"),
        _("Copy through memory that the GPU can reach directly."),
    ),
    # The rest
    "ModelOperations.op_library_filename": (_("Libraries"), _("Files with operators, in the model folder.")),
    "ModelRepositoryAgents.agents": (_("Agents"), _("Agents to call, in this order.")),
    "ModelRepositoryAgents.Agent.name": (_("Name"), _("Name of the agent.")),
    "ModelRepositoryAgents.Agent.parameters": (_("Parameters"), _("Settings that only the agent understands.")),
    "ModelMetrics.metric_control": (_("Metrics to set"), _("One entry for each metric to change.")),
    "ModelMetrics.MetricControl.metric_identifier": (_("Metric"), _("Which metric is meant.")),
    "ModelMetrics.MetricControl.histogram_options": (_("Histogram"), _("Settings of a metric that is a histogram.")),
    "ModelMetrics.MetricControl.MetricIdentifier.family": (
        _("Name"),
        _("Name of the metric, such as nv_inference_first_response_histogram_ms."),
    ),
    "ModelMetrics.MetricControl.HistogramOptions.buckets": (
        _("Upper bounds"),
        _("Upper bound of each bucket, in the metric's unit, rising."),
    ),
}

CHOICE_TEXTS: dict[str, str] = {
    "FORMAT_NONE": _("Not an image"),
    "FORMAT_NHWC": _("Height, width, channels"),
    "FORMAT_NCHW": _("Channels, height, width"),
    "BATCH_ELEMENT_COUNT": _("Elements of each request"),
    "BATCH_ACCUMULATED_ELEMENT_COUNT": _("Running total of elements"),
    "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO": _("Running total of elements, from zero"),
    "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE": _("Most elements of any request, as a shape"),
    "BATCH_ITEM_SHAPE": _("Shape of each request, one row each"),
    "BATCH_ITEM_SHAPE_FLATTEN": _("Shape of each request, in one row"),
    "BATCH_SCATTER_WITH_INPUT_SHAPE": _("By the shape of the source"),
    "KIND_AUTO": _("GPU if there is one, else CPU"),
    "KIND_GPU": _("GPU"),
    "KIND_CPU": _("CPU"),
    "KIND_MODEL": _("The backend decides"),
    "KIND_NVDLA": _("Deep learning accelerator (NVDLA)"),
    "PRIORITY_DEFAULT": _("Normal"),
    "PRIORITY_MAX": _("High"),
    "PRIORITY_MIN": _("Low"),
    "REJECT": _("Refuse it"),
    "DELAY": _("Run it after all others"),
    "CONTROL_SEQUENCE_START": _("Start of a sequence"),
    "CONTROL_SEQUENCE_READY": _("Place in the batch is in use"),
    "CONTROL_SEQUENCE_END": _("End of a sequence"),
    "CONTROL_SEQUENCE_CORRID": _("Identity of the sequence"),
    "TYPE_INVALID": _("Not chosen"),
}
"""Labels of enum values; data types are shown by their wire names."""
