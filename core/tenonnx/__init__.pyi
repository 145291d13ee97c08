# The public names and the modules that define them: ``__init__.py`` imports from here on demand.

from tenonnx.by_name import cacheable as cacheable
from tenonnx.custom_ops import operator as operator
from tenonnx.errors import (
    DeviceReset as DeviceReset,
    EngineError as EngineError,
    EPFail as EPFail,
    Fail as Fail,
    InvalidArgument as InvalidArgument,
    InvalidGraph as InvalidGraph,
    InvalidProtobuf as InvalidProtobuf,
    ModelLoadCanceled as ModelLoadCanceled,
    ModelLoaded as ModelLoaded,
    ModelRequiresCompilation as ModelRequiresCompilation,
    NoModel as NoModel,
    NoSuchFile as NoSuchFile,
    NotFound as NotFound,
    NotImplemented as NotImplemented,  # noqa: A004 - onnxruntime's name
    NotSupported as NotSupported,
    PluginError as PluginError,
    RuntimeException as RuntimeException,
    TenonnxError as TenonnxError,
)
from tenonnx.formats import Format as Format
from tenonnx.hookspecs import hookimpl as hookimpl
from tenonnx.interface.adapter import (
    AdapterFormat as AdapterFormat,
    LoraAdapter as LoraAdapter,
)
from tenonnx.interface.assigned import (
    OrtEpAssignedNode as OrtEpAssignedNode,
    OrtEpAssignedSubgraph as OrtEpAssignedSubgraph,
)
from tenonnx.interface.device_enums import (
    ModelPackageWriteMode as ModelPackageWriteMode,
    OrtAllocatorType as OrtAllocatorType,
    OrtCompileApiFlags as OrtCompileApiFlags,
    OrtDeviceMemoryType as OrtDeviceMemoryType,
    OrtDeviceVendorId as OrtDeviceVendorId,
    OrtExecutionProviderDevicePolicy as OrtExecutionProviderDevicePolicy,
    OrtHardwareDeviceType as OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType as OrtMemoryInfoDeviceType,
    OrtMemType as OrtMemType,
    OrtSparseFormat as OrtSparseFormat,
)
from tenonnx.interface.devices import (
    OrtArenaCfg as OrtArenaCfg,
    OrtDevice as OrtDevice,
    OrtEpDevice as OrtEpDevice,
    OrtHardwareDevice as OrtHardwareDevice,
    OrtMemoryInfo as OrtMemoryInfo,
)
from tenonnx.interface.enums import (
    ExecutionMode as ExecutionMode,
    ExecutionOrder as ExecutionOrder,
    GraphOptimizationLevel as GraphOptimizationLevel,
)
from tenonnx.interface.io_binding import (
    IOBinding as IOBinding,
    SessionIOBinding as SessionIOBinding,
)
from tenonnx.interface.metadata import ModelMetadata as ModelMetadata
from tenonnx.interface.ort_value import (
    OrtValue as OrtValue,
    OrtValueVector as OrtValueVector,
    copy_tensors as copy_tensors,
)
from tenonnx.interface.refused import (
    ModelCompiler as ModelCompiler,
    ModelPackage as ModelPackage,
    ModelPackageComponentContext as ModelPackageComponentContext,
    ModelPackageContext as ModelPackageContext,
    ModelPackageOptions as ModelPackageOptions,
    OrtEpContextData as OrtEpContextData,
    OrtEpContextDataBuffer as OrtEpContextDataBuffer,
    OrtExternalInitializerInfo as OrtExternalInitializerInfo,
    OrtSyncStream as OrtSyncStream,
)
from tenonnx.interface.run_options import RunOptions as RunOptions
from tenonnx.interface.runtime_info import (
    create_and_register_allocator as create_and_register_allocator,
    create_and_register_allocator_v2 as create_and_register_allocator_v2,
    disable_telemetry_events as disable_telemetry_events,
    enable_telemetry_events as enable_telemetry_events,
    get_all_providers as get_all_providers,
    get_available_providers as get_available_providers,
    get_build_info as get_build_info,
    get_device as get_device,
    get_ep_devices as get_ep_devices,
    get_version_string as get_version_string,
    has_collective_ops as has_collective_ops,
    preload_dlls as preload_dlls,
    print_debug_info as print_debug_info,
    register_execution_provider_library as register_execution_provider_library,
    set_default_logger_callback as set_default_logger_callback,
    set_default_logger_severity as set_default_logger_severity,
    set_default_logger_verbosity as set_default_logger_verbosity,
    set_global_thread_pool_sizes as set_global_thread_pool_sizes,
    unregister_execution_provider_library as unregister_execution_provider_library,
)
from tenonnx.interface.signature import NodeArg as NodeArg
from tenonnx.interface.sparse_tensor import SparseTensor as SparseTensor
from tenonnx.operators import (
    Array as Array,
    Kernel as Kernel,
    Namespace as Namespace,
    OperatorTable as OperatorTable,
)
from tenonnx.options import SessionOptions as SessionOptions
from tenonnx.planning.plan import (
    Observer as Observer,
    Plan as Plan,
)
from tenonnx.graph.values import (
    NodeInfo as NodeInfo,
    ValueInfo as ValueInfo,
)
from tenonnx.plugins.manager import (
    PluginSet as PluginSet,
    default_plugins as default_plugins,
)
from tenonnx.provider import (
    HOST as HOST,
    Body as Body,
    Device as Device,
    Provider as Provider,
    Segment as Segment,
    Step as Step,
)
from tenonnx.process.seeds import set_seed as set_seed
from tenonnx.session import InferenceSession as InferenceSession
from tenonnx.transforms import (
    Transform as Transform,
    TransformContext as TransformContext,
)
from tenonnx.weights.registry import (
    Weight as Weight,
    WeightRegistry as WeightRegistry,
    default_registry as default_registry,
)
from tenonnx.weights.tensors import WeightTensor as WeightTensor

__version__: str
