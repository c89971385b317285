"""The Python SDK: what the command line does, as calls.

``Flotilla(url, token, project)`` is the client; a failure of the server is an ``ApiError`` with code and sentence.
"""

from flotilla.sdk.client import ApiError, Flotilla, FollowFailed, OperationFailed, Step
from flotilla.sdk.folder import FolderRefused, files_in
from flotilla.sdk.push_record import PushRecord

__all__ = ["ApiError", "Flotilla", "FolderRefused", "FollowFailed", "OperationFailed", "PushRecord", "Step", "files_in"]
