"""The serving node: v2 inference protocol, batching and engines, without Django.

Other planes import only ``serving_node.contract``.
"""
