# ruff: noqa: C901 - a list of ways
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Completes its configuration by itself, in the way that the parameter ``how`` says."""

    @staticmethod
    def auto_complete_config(config):
        told = config.as_dict()
        how = told["parameters"].get("how", {}).get("string_value", "")
        one = {"name": "IN", "data_type": "TYPE_FP32", "dims": [4]}
        other = {"name": "OUT", "data_type": "TYPE_FP32", "dims": [4]}
        if how == "nothing":
            return config
        if how == "none returned":
            return None
        if how == "raises":
            raise ValueError("cannot complete")
        if how == "no data_type":
            del one["data_type"]
        elif how == "no name":
            del one["name"]
        elif how == "no dims":
            del one["dims"]
        elif how == "more":
            one["format"] = "FORMAT_NCHW"
        elif how == "optional":
            one["optional"] = True
        elif how == "output optional":
            other["optional"] = True
        config.set_max_batch_size(0 if how == "no batch" else 4)
        config.add_input(one)
        config.add_output(other)
        if how == "twice":
            config.add_input({"name": "IN", "data_type": "TYPE_INT32", "dims": [4]})
        if how == "two inputs":
            config.add_input({"name": "IN2", "data_type": "TYPE_INT32", "dims": [-1], "optional": True})
        if how == "dynamic":
            config.set_dynamic_batching()
        if how == "decoupled":
            config.set_model_transaction_policy({"decoupled": True})
        if how == "policy unknown":
            config.set_model_transaction_policy({"coupled": True})
        return config

    def execute(self, requests):
        responses = []
        for request in requests:
            array = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array * np.float32(2))]))
        return responses
