"""The tables of an ``.ort`` file, as far as they hold a model and what onnxruntime needs to run it.

Field order is onnxruntime's schema's (onnxruntime/core/flatbuffers/schema/ort.fbs); it only ever
grows at the end. A union takes two slots, its type first.
"""

from __future__ import annotations

from tenonnx_ort_format.flat import Schema

TYPE_KINDS = ("TensorTypeAndShape", "SequenceType", "MapType")

SCHEMA: Schema = {
    "InferenceSession": [
        ("ort_version", "string"),
        ("model", "Model"),
        ("session_state", "Table"),
        ("kernel_type_str_resolver", "KernelTypeStrResolver"),
    ],
    "KernelTypeStrResolver": [("op_kernel_type_str_args", ("OpIdKernelTypeStrArgsEntry",))],
    "OpIdKernelTypeStrArgsEntry": [
        ("op_id", "string"),
        ("kernel_type_str_args", ("KernelTypeStrArgsEntry",)),
    ],
    "KernelTypeStrArgsEntry": [("kernel_type_str", "string"), ("args", ("ArgTypeAndIndex",))],
    "ArgTypeAndIndex": [("arg_type", "int8"), ("index", "uint32")],
    "Model": [
        ("ir_version", "int64"),
        ("opset_import", ("OperatorSetId",)),
        ("producer_name", "string"),
        ("producer_version", "string"),
        ("domain", "string"),
        ("model_version", "int64"),
        ("doc_string", "string"),
        ("graph", "Graph"),
        ("graph_doc_string", "string"),
        ("metadata_props", ("StringStringEntry",)),
    ],
    "OperatorSetId": [("domain", "string"), ("version", "int64")],
    "StringStringEntry": [("key", "string"), ("value", "string")],
    "Graph": [
        ("initializers", ("Tensor",)),
        ("node_args", ("ValueInfo",)),
        ("nodes", ("Node",)),
        ("max_node_index", "uint32"),
        ("node_edges", ("NodeEdge",)),
        ("inputs", ("string",)),
        ("outputs", ("string",)),
        ("sparse_initializers", ("SparseTensor",)),
    ],
    "NodeEdge": [
        ("node_index", "uint32"),
        ("input_edges", ("EdgeEnd",)),
        ("output_edges", ("EdgeEnd",)),
    ],
    "Table": [],
    "Node": [
        ("name", "string"),
        ("doc_string", "string"),
        ("domain", "string"),
        ("since_version", "int32"),
        ("index", "uint32"),
        ("op_type", "string"),
        ("type", "int32"),
        ("execution_provider_type", "string"),
        ("inputs", ("string",)),
        ("outputs", ("string",)),
        ("attributes", ("Attribute",)),
        ("input_arg_counts", ("int32",)),
        ("implicit_inputs", ("string",)),
    ],
    "Attribute": [
        ("name", "string"),
        ("doc_string", "string"),
        ("type", "int32"),
        ("f", "float32"),
        ("i", "int64"),
        ("s", "string"),
        ("t", "Tensor"),
        ("g", "Graph"),
        ("floats", ("float32",)),
        ("ints", ("int64",)),
        ("strings", ("string",)),
        ("tensors", ("Tensor",)),
        ("graphs", ("Graph",)),
    ],
    "Tensor": [
        ("name", "string"),
        ("doc_string", "string"),
        ("dims", ("int64",)),
        ("data_type", "int32"),
        ("raw_data", ("uint8",)),
        ("string_data", ("string",)),
        ("external_data_offset", "int64"),
    ],
    "SparseTensor": [("values", "Tensor"), ("indices", "Tensor"), ("dims", ("int64",))],
    "ValueInfo": [("name", "string"), ("doc_string", "string"), ("type", "TypeInfo")],
    "TypeInfo": [("denotation", "string"), ("value_type", "int8"), ("value", "Table")],
    "TensorTypeAndShape": [("elem_type", "int32"), ("shape", "Shape")],
    "SequenceType": [("elem_type", "TypeInfo")],
    "MapType": [("key_type", "int32"), ("value_type", "TypeInfo")],
    "Shape": [("dim", ("Dimension",))],
    "Dimension": [("value", "DimensionValue"), ("denotation", "string")],
    "DimensionValue": [("dim_type", "int8"), ("dim_value", "int64"), ("dim_param", "string")],
}
