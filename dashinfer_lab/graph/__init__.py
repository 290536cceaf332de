"""Models as ONNX graphs; knows nothing of kernels, and of weights only names and shapes."""

from dashinfer_lab.graph.builder import GraphBuilder, Value
from dashinfer_lab.graph.model_graph import ModelGraph
from dashinfer_lab.graph.weights import StoredTensor, WeightDeclaration

__all__ = ["GraphBuilder", "ModelGraph", "StoredTensor", "Value", "WeightDeclaration"]
