"""Columns of a DataFrame from the records that `pickles` made of it. Pure: bytes become numbers and texts, no more."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

_PLAIN = re.compile(r"[biuf][1248]|U\d{1,4}")
_OBJECTS = "O8"


class Record:
    """What a pickle says of one object: the arguments that it is made with, and the state that it is given.

    A pickle cannot give state to the class itself: it would call `__setstate__` without an object, which fails.
    """

    __slots__ = ("args", "state")
    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: Any) -> Self:
        """Keep the arguments."""
        record = super().__new__(cls)
        record.args, record.state = args, None
        return record

    def __setstate__(self, state: Any) -> None:
        """Keep the state."""
        self.state = state


class Arguments(Record):
    """Anything that is but a name or its arguments."""

    __slots__ = ()


class Frame(Record):
    """A DataFrame; the state holds its manager."""

    __slots__ = ()


class Manager(Record):
    """Blocks and axes: the arguments since pandas 1.3, part of the state before."""

    __slots__ = ()


class Block(Record):
    """Columns of one type: values, and where they stand."""

    __slots__ = ()


class Partial(Record):
    """A call that pandas 1.3 completes later."""

    __slots__ = ()

    def __call__(self, *args: Any) -> Any:
        """The record of the completed call."""
        if self.args[0] is not Block:
            message = "a partial call of something other than new_block"
            raise TypeError(message)
        return Block(*args)


class Index(Record):
    """Labels: the class of the index, and its data or its range."""

    __slots__ = ()


class Dtype(Record):
    """A numpy dtype: its code; the state begins with a version and the order of its bytes."""

    __slots__ = ()


class Array(Record):
    """A numpy array: version, shape, dtype, whether in Fortran's order, and bytes or objects are its state."""

    __slots__ = ()


class FromBuffer(Record):
    """A numpy array: bytes, dtype, shape and order."""

    __slots__ = ()


class Scalar(Record):
    """A numpy number: dtype and bytes."""

    __slots__ = ()


class Texts(Record):
    """A column of texts in Arrow's memory."""

    __slots__ = ()


class Chunks(Record):
    """Arrow arrays, end to end."""

    __slots__ = ()


class ArrowArray(Record):
    """An Arrow array: type, length, nulls, offset, buffers, …"""

    __slots__ = ()


class Alias(Record):
    """The name of an Arrow type."""

    __slots__ = ()


class Bytes(Record):
    """Bytes, or what wraps them."""

    __slots__ = ()


def columns(frame: Any) -> dict[str, list[Any]]:
    """The columns of `frame` by name.

    Raises:
        ValueError, TypeError, LookupError, AttributeError: it is no DataFrame that pandas would write.
    """
    if not isinstance(frame, Frame):
        message = f"it holds a {type(frame).__name__}"
        raise TypeError(message)
    state = frame.state
    names, blocks = _manager(state["_mgr"] if "_mgr" in state else state["_data"])  # pandas 1.0: _data
    found: dict[int, list[Any]] = {}
    for values, places in blocks:
        found.update(zip(_places(places), _block(values), strict=True))
    if len({len(column) for column in found.values()}) > 1 or sorted(found) != list(range(len(names))):
        message = "columns are missing or not equally long"
        raise ValueError(message)
    return {name: found[place] for place, name in enumerate(names)}


def _manager(manager: Manager) -> tuple[list[str], list[tuple[Any, Any]]]:
    """Names of the columns, and blocks with their places."""
    if manager.args:
        blocks, axes = manager.args
        pairs = [(block.args[0], block.args[1]) for block in blocks]
    else:
        state = manager.state[3]["0.14.1"]  # the format of this name, which pandas wrote until 1.2
        axes = state["axes"]
        pairs = [(block["values"], block["mgr_locs"]) for block in state["blocks"]]
    return _labels(axes[0]), pairs


def _labels(index: Index) -> list[str]:
    facts = index.args[1]
    if "data" in facts:
        [labels] = _block(facts["data"])
        return [str(label) for label in labels]
    return [str(label) for label in range(facts["start"], facts["stop"], facts["step"])]


def _places(places: Any) -> Iterable[int]:
    if isinstance(places, Arguments):
        return range(*places.args)
    [found] = _block(places)
    return found


def _block(values: Any) -> list[list[Any]]:
    """The rows of an array of at most two dimensions, as lists: the columns of a block."""
    if isinstance(values, Texts):
        return [_texts(values)]
    shape, dtype, order, content = _array(values)
    if dtype.args[0] != _OBJECTS:
        array = _numbers(content, dtype).reshape(shape, order=order)
        return list(np.atleast_2d(array).tolist())
    *rows, length = shape
    count = rows[0] if rows else 1
    if not isinstance(content, list) or len(content) != count * length:
        message = "an array is not as long as it says"
        raise ValueError(message)
    run_keys = [_run_key(run_key) for run_key in content]  # row by row, whatever the order in memory was
    return [run_keys[row * length : (row + 1) * length] for row in range(count)]


def _array(values: Any) -> tuple[Sequence[int], Dtype, Any, Any]:
    """Shape, dtype, order and content."""
    if isinstance(values, FromBuffer):
        content, dtype, shape, order = values.args
    else:
        _, shape, dtype, fortran, content = values.state
        order = "F" if fortran else "C"
    return shape, dtype, order, content


def _run_key(run_key: Any) -> Any:
    """A run without records."""
    if isinstance(run_key, Scalar):
        return _numbers(run_key.args[1], run_key.args[0]).item()
    if isinstance(run_key, Array | FromBuffer):
        shape, dtype, order, content = _array(run_key)
        if dtype.args[0] == _OBJECTS:
            [run_keys] = _block(run_key)
            return run_keys
        return _numbers(content, dtype).reshape(shape, order=order)
    if isinstance(run_key, list) and any(issubclass(kind, Record) for kind in set(map(type, run_key))):
        return [_number(item) for item in run_key]
    return run_key


def _number(item: Any) -> Any:
    return _numbers(item.args[1], item.args[0]).item() if isinstance(item, Scalar) else item


def _numbers(content: Any, dtype: Dtype) -> npt.NDArray[Any]:
    code, order = dtype.args[0], dtype.state[1] if dtype.state else "|"
    if not _PLAIN.fullmatch(code) or order not in {"<", ">", "|"}:
        message = f"an array of type {order}{code}"
        raise TypeError(message)
    return np.frombuffer(_bytes(content), dtype=np.dtype(order + code))


def _bytes(content: Any) -> bytes:
    """What is in a buffer, however often it is wrapped; none at all where it is left out."""
    while isinstance(content, Bytes):
        [content] = content.args or (b"",)
    if isinstance(content, bytes | bytearray):
        return bytes(content)
    if content is None:
        return b""
    message = f"a buffer that is a {type(content).__name__}"
    raise TypeError(message)


def _texts(texts: Texts) -> list[str | None]:
    array = texts.state["_pa_array"]
    chunks = array.args[0] if isinstance(array, Chunks) else [array]
    return [text for chunk in chunks for text in _chunk(chunk)]


def _chunk(chunk: ArrowArray) -> list[str | None]:
    """The texts of an Arrow array: one bit each for whether it is there, n + 1 offsets, and UTF-8."""
    kind, length, _, offset, buffers = chunk.args[0][:5]
    there, offsets, letters = map(_bytes, buffers)
    width = {"string": "<i4", "large_string": "<i8"}[kind.args[0]]
    ends = np.frombuffer(offsets, dtype=width)[offset : offset + length + 1].tolist()
    found: list[str | None] = [letters[begin:end].decode() for begin, end in pairwise(ends)]
    if there:
        bits = np.unpackbits(np.frombuffer(there, dtype=np.uint8), bitorder="little")[offset : offset + length]
        found = [text if bit else None for text, bit in zip(found, bits, strict=True)]
    if len(found) != length:
        message = "an Arrow array is not as long as it says"
        raise ValueError(message)
    return found
