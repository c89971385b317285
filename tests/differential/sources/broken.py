import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Fails when it starts, in the way that the parameter ``how`` says."""

    def initialize(self, args):
        import json

        how = json.loads(args["model_config"])["parameters"]["how"]["string_value"]
        if how == "raises":
            raise RuntimeError("no luck today")
        if how == "triton":
            raise pb_utils.TritonModelException("no luck in Triton's words")
        if how == "missing":
            raise FileNotFoundError(2, "No such file or directory", "weights.bin")

    def execute(self, requests):
        raise NotImplementedError
