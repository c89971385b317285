"""The modules that every request passes, as machine code where somebody had them compiled (ADR 0015).

What is compiled is the very source that otherwise is interpreted, by mypyc; nothing else changes. A set lies in the
environment of the interpreter, in a folder named by the digest of all of the node's source, so that one which was
made from other source is never loaded.
"""

from serving_node.compiled.finder import compiled_modules, use, worker_folder
from serving_node.compiled.sets import MODULES, digest, folder

__all__ = ["MODULES", "compiled_modules", "digest", "folder", "use", "worker_folder"]
