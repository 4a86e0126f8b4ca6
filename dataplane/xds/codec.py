"""Between plain values and the protobuf messages of Envoy's discovery service.

Resources travel as ``envoy.service.discovery.v3.Resource`` with their name, so that a type needs no field for
it; mistakes in a refusal as ``google.rpc.BadRequest``. What another implementation sends is read as well:
resources without the wrapper (their name is then empty), refusals with a message alone.
"""

from __future__ import annotations

from typing import Any, Final

from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import any_pb2, json_format, wrappers_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2

from dataplane.errors import ConfigError
from dataplane.xds.messages import (
    MAX_PROBLEM_CHARACTERS,
    MAX_PROBLEMS,
    Node,
    Problem,
    Refusal,
    Request,
    Resource,
    Response,
)

INVALID_ARGUMENT: Final = 3
USER_AGENT: Final = "pointsman"
_WRAPPER: Final = "type.googleapis.com/envoy.service.discovery.v3.Resource"


def wrapped(payload: bytes) -> bytes:
    """A message of ours around bytes."""
    return wrappers_pb2.BytesValue(value=payload).SerializeToString()


def unwrapped(message: bytes) -> bytes:
    """The bytes in a message of ours. ``ConfigError`` when it is none."""
    try:
        return wrappers_pb2.BytesValue.FromString(message).value
    except DecodeError:
        raise ConfigError("is no message of its type") from None


def encode_request(request: Request) -> bytes:
    """As it goes over the wire."""
    message = discovery_pb2.DiscoveryRequest(
        type_url=request.type_url,
        version_info=request.version,
        response_nonce=request.nonce,
        resource_names=request.names,
    )
    if request.node is not None:
        message.node.id, message.node.cluster = request.node.id, request.node.cluster
        message.node.user_agent_name = USER_AGENT
        if request.node.metadata:
            message.node.metadata.update(request.node.metadata)
    if request.refusal is not None:
        message.error_detail.code = INVALID_ARGUMENT
        message.error_detail.message = request.refusal.message
        detail = error_details_pb2.BadRequest()
        for problem in request.refusal.problems:
            detail.field_violations.add(field=problem.path, description=problem.message)
        if request.refusal.problems:
            message.error_detail.details.add().Pack(detail)
    data: bytes = message.SerializeToString()
    return data


def decode_request(data: bytes) -> Request:
    """The request in bytes from the wire. ``DecodeError`` when they are none."""
    message = discovery_pb2.DiscoveryRequest.FromString(data)
    return Request(
        message.type_url,
        message.version_info,
        message.response_nonce,
        tuple(message.resource_names),
        _node(message.node) if message.HasField("node") else None,
        _refusal(message.error_detail) if message.HasField("error_detail") else None,
    )


def _node(message: Any) -> Node:
    return Node(message.id, message.cluster, json_format.MessageToDict(message.metadata))


def _refusal(status: Any) -> Refusal:
    problems: list[Problem] = []
    for detail in status.details:
        found = error_details_pb2.BadRequest()
        if detail.Is(found.DESCRIPTOR):
            detail.Unpack(found)
            problems += [
                Problem(each.field[:MAX_PROBLEM_CHARACTERS], each.description[:MAX_PROBLEM_CHARACTERS])
                for each in found.field_violations[:MAX_PROBLEMS]
            ]
    message = status.message[:MAX_PROBLEM_CHARACTERS] or f"refused with code {status.code}"
    return Refusal(message, tuple(problems[:MAX_PROBLEMS]))


def encode_response(response: Response) -> bytes:
    """As it goes over the wire."""
    message = discovery_pb2.DiscoveryResponse(
        type_url=response.type_url, version_info=response.version, nonce=response.nonce
    )
    for resource in response.resources:
        inner = discovery_pb2.Resource(
            name=resource.name, resource=any_pb2.Any(type_url=response.type_url, value=resource.value)
        )
        message.resources.add(type_url=_WRAPPER, value=inner.SerializeToString())
    data: bytes = message.SerializeToString()
    return data


def decode_response(data: bytes) -> Response:
    """The response in bytes from the wire. ``DecodeError`` when they are none."""
    message = discovery_pb2.DiscoveryResponse.FromString(data)
    return Response(
        message.type_url, message.version_info, message.nonce, tuple(map(_resource, message.resources))
    )


def _resource(message: any_pb2.Any) -> Resource:
    if message.type_url != _WRAPPER:
        return Resource("", message.value)
    inner = discovery_pb2.Resource.FromString(message.value)
    return Resource(inner.name, inner.resource.value)
