"""Mutations of any protobuf message, by its descriptor alone."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable, Iterator
from typing import Any

import onnx

from fuzz.hostile import FLOATS, WORDS, integer

MAX_MESSAGES = 20_000
MAX_BYTES = 1 << 20  # of what is repeated many times
UNREAD = {"doc_string", "producer_name", "producer_version", "model_version", "denotation"}
"""Fields that nothing depends on: seldom chosen."""

UNSIGNED = {4, 6, 7, 13}
BITS_32 = {5, 7, 13, 15, 17}


def messages(root: Any) -> Iterator[Any]:
    """Yield a message and all that lie in it."""
    pending, seen = [root], 0
    while pending and seen < MAX_MESSAGES:
        message = pending.pop()
        seen += 1
        yield message
        for field, content in message.ListFields():
            if field.message_type is not None:
                pending.extend(content if field.is_repeated else [content])


def one_of(root: Any, kind: type, draw: random.Random) -> Any:
    """Return some message of a class, or ``None``."""
    found = [each for each in messages(root) if isinstance(each, kind)]
    return draw.choice(found) if found else None


def append(place: Any, copied: Iterable[Any]) -> None:
    """Append copies of messages to a repeated field, however deeply they nest.

    protobuf's ``append`` and ``extend`` go on after an error of such a copy, and whatever the
    process does next ends in a SystemError.
    """
    for message in copied:
        place.add().CopyFrom(message)


def mutate_field(root: Any, draw: random.Random) -> str:
    """Change one field of one message; return which and how."""
    message = draw.choice(list(messages(root)))
    fields = [field for field, _ in message.ListFields()]
    if not fields or draw.random() < 0.15:
        fields = list(message.DESCRIPTOR.fields)
    field = draw.choice(fields)
    if field.name in UNREAD:
        field = draw.choice(fields)
    where = f"{message.DESCRIPTOR.name}.{field.name}"
    how = _repeated(message, field, draw) if field.is_repeated else _single(message, field, draw)
    return f"{where}: {how}"


def _single(message: Any, field: Any, draw: random.Random) -> str:
    if field.message_type is not None:
        if draw.random() < 0.5:
            message.ClearField(field.name)
            return "cleared"
        getattr(message, field.name).SetInParent()
        return "present"
    if draw.random() < 0.15:
        message.ClearField(field.name)
        return "cleared"
    given = scalar(field, getattr(message, field.name), draw)
    setattr(message, field.name, given)
    return f"{given!r:.60}"


def _repeated(message: Any, field: Any, draw: random.Random) -> str:
    content = getattr(message, field.name)
    if not content:
        if field.message_type is not None:
            content.add()
        else:
            content.extend(scalar(field, None, draw) for _ in range(draw.choice([1, 2, 4])))
        return "filled"
    add = content.extend if field.message_type is None else functools.partial(append, content)
    at, way = draw.randrange(len(content)), draw.choice(WAYS)
    if way == "drop":
        del content[at]
    elif way == "empty":
        del content[:]
    elif way == "twice":
        add([content[at]])
    elif way == "many" and len(content) < 100:
        size = content[at].ByteSize() if field.message_type is not None else 8
        add([content[at]] * min(draw.choice([10, 100, 1000]), MAX_BYTES // (size + 1)))
    elif way == "cut":
        del content[at:]
    elif way == "order":
        order = list(content)
        draw.shuffle(order)
        del content[:]
        add(order)
    elif field.message_type is not None:
        content[at].CopyFrom(content[draw.randrange(len(content))])
    else:
        content[at] = scalar(field, content[at], draw)
        return f"{at}: {content[at]!r:.60}"
    return f"{way} {at}"


WAYS = ["drop", "empty", "twice", "many", "cut", "order", "other", "other", "other", "other"]


def scalar(field: Any, old: Any, draw: random.Random) -> Any:
    """Return a hostile value for a field, as what was there suggests."""
    if field.enum_type is not None:
        numbers = [value.number for value in field.enum_type.values]
        return draw.choice(numbers)  # of others only bytes can tell
    if field.cpp_type == field.CPPTYPE_STRING:
        if field.type == field.TYPE_BYTES:
            return _bytes(old or b"", draw)
        return _word(draw) if not old or draw.random() < 0.5 else _bent(old, draw)
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return draw.choice(FLOATS)
    if field.cpp_type == field.CPPTYPE_BOOL:
        return not old
    bits = 32 if field.type in BITS_32 else 64
    return integer(draw, int(old or 0), bits, field.type not in UNSIGNED)


def _word(draw: random.Random) -> str:
    return draw.choice(WORDS)


def _bent(word: str | bytes, draw: random.Random) -> str:
    if isinstance(word, bytes):  # no UTF-8: that is what protobuf gives then
        word = word.decode("utf-8", "replace")
    return draw.choice([word + "x", word[:-1], word.upper(), word.lower(), word * 2, f" {word}"])


def _bytes(content: bytes, draw: random.Random) -> bytes:
    way = draw.choice(["cut", "more", "none", "flip", "word", "one"])
    if way == "cut":
        return content[: draw.randrange(len(content) + 1)]
    if way == "more":
        return content + bytes(draw.choice([1, 2, 3, 4, 8, 64]))
    if way == "one":
        return content[:-1]
    if way == "flip" and content:
        return flipped(content, draw)
    return draw.choice(WORDS).encode() if way == "word" else b""


def flipped(content: bytes, draw: random.Random) -> bytes:
    """Return the bytes with a few of them changed."""
    made = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 4, 16])):
        at = draw.randrange(len(made))
        made[at] = draw.choice([0, 1, 127, 128, 255, made[at] ^ 1 << draw.randrange(8)])
    return bytes(made)


def attribute_value(attribute: onnx.AttributeProto, draw: random.Random) -> str:
    """Change what an attribute says, and leave what kind it says it is."""
    kinds = {1: "f", 2: "i", 3: "s", 6: "floats", 7: "ints", 8: "strings"}
    name = kinds.get(attribute.type)
    if name is None:
        return mutate_field(attribute, draw)
    field = attribute.DESCRIPTOR.fields_by_name[name]
    if field.is_repeated:
        return f"{attribute.name}: {_repeated(attribute, field, draw)}"
    given = scalar(field, getattr(attribute, name), draw)
    if name == "s" and draw.random() < 0.7:
        given = draw.choice(WORDS).encode()
    setattr(attribute, name, given)
    return f"{attribute.name}: {given!r:.60}"
