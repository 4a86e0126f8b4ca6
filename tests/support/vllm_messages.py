"""The messages of vLLM's gRPC service, of protobuf's own making: what a client of it would send."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

GENERATE = "/vllm.grpc.engine.VllmEngine/Generate"
EMBED = "/vllm.grpc.engine.VllmEngine/Embed"

Field = descriptor_pb2.FieldDescriptorProto
UINT32, STRING, BOOL, BLOB, FLOAT = (
    Field.TYPE_UINT32,
    Field.TYPE_STRING,
    Field.TYPE_BOOL,
    Field.TYPE_BYTES,
    Field.TYPE_FLOAT,
)
MANY = Field.LABEL_REPEATED
SCHEMA: dict[str, list[tuple[Any, ...]]] = {
    "TokenizedInput": [("original_text", 1, STRING), ("input_ids", 2, UINT32, MANY)],
    "SamplingParams": [("temperature", 1, FLOAT), ("max_tokens", 8, UINT32), ("stop", 10, STRING, MANY)],
    "MultimodalInputs": [("image_data", 1, BLOB, MANY)],
    "GenerateRequest": [
        ("request_id", 1, STRING),
        ("tokenized", 2, "TokenizedInput"),
        ("text", 3, STRING),
        ("sampling_params", 4, "SamplingParams"),
        ("stream", 5, BOOL),
        ("mm_inputs", 7, "MultimodalInputs"),
    ],
    "Chunk": [
        ("token_ids", 1, UINT32, MANY),
        ("prompt_tokens", 2, UINT32),
        ("completion_tokens", 3, UINT32),
        ("cached_tokens", 4, UINT32),
        ("index", 7, UINT32),
    ],
    "Complete": [
        ("output_ids", 1, UINT32, MANY),
        ("finish_reason", 2, STRING),
        ("prompt_tokens", 3, UINT32),
        ("completion_tokens", 4, UINT32),
        ("cached_tokens", 5, UINT32),
        ("index", 8, UINT32),
    ],
    "GenerateResponse": [("chunk", 1, "Chunk"), ("complete", 2, "Complete")],
    "EmbedResponse": [("embedding", 1, FLOAT, MANY), ("prompt_tokens", 2, UINT32), ("dim", 3, UINT32)],
}


def messages_of(schema: dict[str, list[tuple[Any, ...]]]) -> dict[str, type[Any]]:
    """Message classes of protobuf's own making."""
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")
    for name, members in schema.items():
        message = file.message_type.add(name=name)
        for member, number, kind, *label in members:
            field = message.field.add(name=member, number=number, label=label[0] if label else 1)
            if isinstance(kind, str):
                field.type, field.type_name = Field.TYPE_MESSAGE, f".t.{kind}"
            else:
                field.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"t.{n}")) for n in schema}


MESSAGES = messages_of(SCHEMA)


def frame(message: bytes, flag: int = 0) -> bytes:
    """One message in its gRPC frame."""
    return bytes([flag]) + len(message).to_bytes(4, "big") + message


def encoded(name: str, **values: Any) -> bytes:
    """A message in its frame."""
    return frame(MESSAGES[name](**values).SerializeToString())
