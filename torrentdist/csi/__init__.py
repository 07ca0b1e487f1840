"""The CSI driver of a node: mounts bundles into pods, read-only, beside the node's supervisor.

`csi_pb2.py` is generated; scripts/csi_stubs.py makes it.
"""
