"""The protocol's service over gRPC, in REST's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError  # type: ignore[import-untyped] # no stubs
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped] # no stubs
from tritonclient.grpc import service_pb2 as messages

from tenonnx_serve import facts, grpc_infer, grpc_server_methods, logs
from tenonnx_serve.access import credentials
from tenonnx_serve.core import Core, client_error
from tenonnx_serve.errors import BadRequest, Missing, Unavailable
from tenonnx_serve.grpc_interceptor import HANDLERS, GrpcInterceptor
from tenonnx_serve.repository import READY, refuse_parameters
from tenonnx_serve.rest import is_local
from tenonnx_serve.settings import Settings

# Requests of one stream that run at once.
IN_FLIGHT: Final = 32

SERVICE: Final = messages.DESCRIPTOR.services_by_name["GRPCInferenceService"]

Method = Callable[[Core, Any], Awaitable[Any]]


async def server_live(core: Core, _: Any) -> Any:
    """Return whether the server is live."""
    return messages.ServerLiveResponse(live=core is not None)


async def server_ready(core: Core, _: Any) -> Any:
    """Return whether the server is ready."""
    return messages.ServerReadyResponse(ready=core.ready)


async def server_metadata(_: Core, __: Any) -> Any:
    """Return the server's metadata."""
    return messages.ServerMetadataResponse(**facts.server())


async def model_ready(core: Core, request: Any) -> Any:
    """Return whether a model is ready."""
    try:
        name = core.repository.version(request.name, request.version).model.name
    except (Missing, Unavailable):
        return messages.ModelReadyResponse(ready=False)
    return messages.ModelReadyResponse(ready=core.repository.entries[name].state == READY)


async def model_metadata(core: Core, request: Any) -> Any:
    """Return a model's metadata."""
    model = core.repository.find(request.name, request.version).model
    return messages.ModelMetadataResponse(**facts.model(core.repository, model))


async def model_config(core: Core, request: Any) -> Any:
    """Return a model's configuration."""
    model = core.repository.find(request.name, request.version).model
    return messages.ModelConfigResponse(config=model.config)


async def model_statistics(core: Core, request: Any) -> Any:
    """Return the statistics of one model or of all."""
    found = await facts.statistics(core, request.name, request.version)
    return messages.ModelStatisticsResponse(**found)


async def model_infer(core: Core, message: Any) -> Any:
    """Run a model."""
    queue = core.repository.find(message.model_name, message.model_version)
    model, limits = queue.model, core.settings.limits
    return await core.infer(
        queue,
        sum(map(len, message.raw_input_contents)),
        lambda: grpc_infer.decode(model, message, limits, core.regions),
        lambda request, arrays: grpc_infer.encode(model, request, arrays, core.regions),
    )


async def repository_index(core: Core, request: Any) -> Any:
    """List the models of the repository."""
    await core.repository.refresh()
    found = core.repository.index(ready_only=request.ready)
    return messages.RepositoryIndexResponse(models=found)


async def repository_load(core: Core, request: Any) -> Any:
    """Load a model."""
    refuse_parameters(request.parameters)
    await core.control.load(request.model_name)
    return messages.RepositoryModelLoadResponse()


async def repository_unload(core: Core, request: Any) -> Any:
    """Unload a model."""
    await core.control.unload(request.model_name)
    return messages.RepositoryModelUnloadResponse()


# Handlers by the protocol's name.
METHODS: Final[dict[str, Method]] = {
    **grpc_server_methods.METHODS,
    "ServerLive": server_live,
    "ServerReady": server_ready,
    "ServerMetadata": server_metadata,
    "ModelReady": model_ready,
    "ModelMetadata": model_metadata,
    "ModelConfig": model_config,
    "ModelStatistics": model_statistics,
    "ModelInfer": model_infer,
    "RepositoryIndex": repository_index,
    "RepositoryModelLoad": repository_load,
    "RepositoryModelUnload": repository_unload,
}


# Methods that change the server.
CONTROL: Final = frozenset(
    {"LogSettings", "RepositoryModelLoad", "RepositoryModelUnload", "TraceSetting"}
)

# Those of them that change nothing without settings.
READS: Final = frozenset({"LogSettings", "TraceSetting"})


def _authorization(context: Any) -> bytes:
    given = dict(context.invocation_metadata()).get("authorization", "")
    return given if isinstance(given, bytes) else given.encode()


def answering(name: str, core: Core) -> Callable[[Any, Any], Awaitable[Any]]:
    """Return a handler as grpc calls it; its errors become statuses."""
    method, local = METHODS[name], name in grpc_server_methods.LOCAL

    async def call(request: Any, context: Any) -> Any:
        try:
            _check(request)
            if local and not is_local(_address(context.peer())):
                raise BadRequest(f"{name} is refused: only clients on this machine may call it")
            if name in CONTROL and (name not in READS or request.settings):
                core.controls.check(_authorization(context))
            return await method(core, request)
        except Exception as error:  # the client gets an answer to any error
            given = dict(context.invocation_metadata()).get("x-request-id", "")
            named = logs.identify(given.encode())
            failure = client_error(error)
        again = failure.retry_after
        more = () if again is None else (("retry-after", str(again)),)
        more = (*more, ("x-request-id", named))
        return await context.abort(getattr(grpc.StatusCode, failure.code), str(failure), more)

    return call


def streaming(core: Core) -> Callable[[AsyncIterator[Any], Any], AsyncIterator[Any]]:
    """Return grpc's handler of a stream: it runs models as long as requests come."""

    async def stream(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        tasks: asyncio.Queue[asyncio.Task[Any] | None] = asyncio.Queue(IN_FLIGHT)
        all_of_them: set[asyncio.Task[Any]] = set()
        unread: list[Exception] = []

        async def read() -> None:
            try:
                async for message in requests:
                    _check(message)
                    task = asyncio.create_task(_streamed(core, message))
                    all_of_them.add(task)
                    task.add_done_callback(all_of_them.discard)
                    await tasks.put(task)
            except Exception as error:  # the message is malformed
                unread.append(error)
            await tasks.put(None)

        reader = asyncio.create_task(read())
        try:
            while (task := await tasks.get()) is not None:  # answers keep the requests' order
                yield await task
            if unread:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(unread[0]))
        finally:
            for left in (reader, *all_of_them):
                left.cancel()

    return stream


def handlers(core: Core) -> dict[str, Any]:
    """Return grpc's handlers of the service's methods, by name."""
    found = {}
    for method in SERVICE.methods:
        read, write = map(GetMessageClass, (method.input_type, method.output_type))
        how = {
            "request_deserializer": partial(_parsed, read.FromString),
            "response_serializer": write.SerializeToString,
        }
        streams = method.name == "ModelStreamInfer"
        behavior = streaming(core) if streams else answering(method.name, core)
        found[method.name] = HANDLERS[streams, streams](behavior, **how)
    return found


class Malformed(NamedTuple):
    """A message that is none of its type: grpc would answer it with ``INTERNAL``."""

    reason: str


def _parsed(parse: Callable[[bytes], Any], content: bytes) -> Any:
    try:
        return parse(content)
    except DecodeError as error:
        return Malformed(str(error))


def _check(message: Any) -> None:
    if isinstance(message, Malformed):
        raise BadRequest(f"the message is malformed: {message.reason}")


async def _streamed(core: Core, message: Any) -> Any:
    try:
        found = await model_infer(core, message)
    except Exception as error:  # of one request; the stream goes on
        failed = messages.ModelStreamInferResponse(error_message=str(client_error(error)))
        failed.infer_response.id = message.id
        return failed
    return messages.ModelStreamInferResponse(infer_response=found)


def _address(peer: str) -> str:
    """Return a peer's address, from ``ipv4:127.0.0.1:50``, ``ipv6:%5B::1%5D:50`` or ``unix:``."""
    kind, _, rest = unquote(peer).partition(":")
    return rest.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else ""


def make_server(
    core: Core, settings: Settings, address: str, *, shared: bool, interceptor: GrpcInterceptor
) -> tuple[Any, int]:
    """Return a gRPC server for an address, and its port.

    Args:
        core: The server's core.
        settings: The limits.
        address: Host and port.
        shared: Whether other processes listen on the same port.
        interceptor: Intercepts calls.

    Raises:
        OSError: The address cannot be used.
    """
    options = (
        ("grpc.max_receive_message_length", settings.limits.body),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", int(shared)),
        # Pings find clients that vanished; slow ones are disconnected.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.server_handshake_timeout_ms", 20_000),
    )
    server = grpc.aio.server(
        options=options, interceptors=[interceptor] if interceptor.needed else None
    )
    served = grpc.method_handlers_generic_handler(SERVICE.full_name, handlers(core))
    server.add_generic_rpc_handlers((served,))
    try:
        if (secret := credentials(settings.access)) is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, secret)
    except RuntimeError as error:
        raise OSError(f"gRPC cannot listen on {address}: {error}") from None
    return server, port
