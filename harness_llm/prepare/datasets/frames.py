"""Columns of a DataFrame from the records that `pickles` reads. Converts bytes to numbers and strings; no I/O."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

_PLAIN = re.compile(r"[biuf][1248]|U\d{1,4}")
_OBJECTS = "O8"


class Record:
    """Placeholder for a pickled object: its constructor arguments and its state.

    A pickle cannot set the state of a class: `__setstate__` without an instance raises TypeError.
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
    """An object without state: a class name, a slice, a shape, …"""


class Frame(Record):
    """A DataFrame; its state contains the manager."""


class Manager(Record):
    """BlockManager: blocks and axes, in the arguments since pandas 1.3, in the state before."""


class Block(Record):
    """Columns of one dtype: values and column positions."""


class Partial(Record):
    """functools.partial of new_block, written by pandas 1.3."""

    def __call__(self, *args: Any) -> Any:
        """Return the block."""
        if self.args[0] is not Block:
            message = "a partial call of something other than new_block"
            raise TypeError(message)
        return Block(*args)


class Index(Record):
    """Index: its class, and its labels or its range."""


class Dtype(Record):
    """A numpy dtype: type code; the state starts with a version and the byte order."""


class Array(Record):
    """A numpy array; its state: version, shape, dtype, Fortran order, and bytes or objects."""


class FromBuffer(Record):
    """A numpy array: bytes, dtype, shape and order."""


class Scalar(Record):
    """A numpy scalar: dtype and bytes."""


class Texts(Record):
    """ArrowStringArray: a column of strings."""


class Chunks(Record):
    """A chunked Arrow array."""


class ArrowArray(Record):
    """An Arrow array: type, length, nulls, offset, buffers, …"""


class Alias(Record):
    """Name of an Arrow type."""


class Bytes(Record):
    """A buffer: bytes, or another buffer."""


def columns(frame: Any) -> dict[str, list[Any]]:
    """Return the columns of `frame` by name.

    Raises:
        ValueError, TypeError, LookupError, AttributeError: `frame` is not a DataFrame as pandas writes it.
    """
    if not isinstance(frame, Frame):
        message = f"the pickle contains a {type(frame).__name__}"
        raise TypeError(message)
    state = frame.state
    names, blocks = _manager(state["_mgr"] if "_mgr" in state else state["_data"])  # pandas 1.0: _data
    found: dict[int, list[Any]] = {}
    for values, places in blocks:
        found.update(zip(_places(places), _block(values), strict=True))
    if len({len(column) for column in found.values()}) > 1 or sorted(found) != list(range(len(names))):
        message = "columns are missing or differ in length"
        raise ValueError(message)
    return {name: found[place] for place, name in enumerate(names)}


def _manager(manager: Manager) -> tuple[list[str], list[tuple[Any, Any]]]:
    """Return column names, and pairs of block values and column positions."""
    if manager.args:
        blocks, axes = manager.args
        pairs = [(block.args[0], block.args[1]) for block in blocks]
    else:
        state = manager.state[3]["0.14.1"]  # format version that pandas wrote until 1.2
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
    """Return the rows of an array of at most two dimensions: the columns of a block."""
    if isinstance(values, Texts):
        return [_texts(values)]
    shape, dtype, order, content = _array(values)
    if dtype.args[0] != _OBJECTS:
        array = _numbers(content, dtype).reshape(shape, order=order)
        return list(np.atleast_2d(array).tolist())
    *rows, length = shape
    count = rows[0] if rows else 1
    if not isinstance(content, list) or len(content) != count * length:
        message = "the length of an array differs from its shape"
        raise ValueError(message)
    cells = [_cell(cell) for cell in content]  # in row order also for Fortran arrays
    return [cells[row * length : (row + 1) * length] for row in range(count)]


def _array(values: Any) -> tuple[Sequence[int], Dtype, Any, Any]:
    """Return shape, dtype, order and content."""
    if isinstance(values, FromBuffer):
        content, dtype, shape, order = values.args
    else:
        _, shape, dtype, fortran, content = values.state
        order = "F" if fortran else "C"
    return shape, dtype, order, content


def _cell(cell: Any) -> Any:
    """Return a cell with its records converted to Python and numpy values."""
    if isinstance(cell, Array | FromBuffer):
        shape, dtype, order, content = _array(cell)
        if dtype.args[0] == _OBJECTS:
            [cells] = _block(cell)
            return cells
        return _numbers(content, dtype).reshape(shape, order=order)
    if isinstance(cell, list) and any(issubclass(kind, Record) for kind in set(map(type, cell))):
        return [_number(item) for item in cell]
    return _number(cell)


def _number(item: Any) -> Any:
    return _numbers(item.args[1], item.args[0]).item() if isinstance(item, Scalar) else item


def _numbers(content: Any, dtype: Dtype) -> npt.NDArray[Any]:
    code, order = dtype.args[0], dtype.state[1] if dtype.state else "|"
    if not _PLAIN.fullmatch(code) or order not in {"<", ">", "|"}:
        message = f"array of dtype {order}{code}"
        raise TypeError(message)
    return np.frombuffer(_bytes(content), dtype=np.dtype(order + code))


def _bytes(content: Any) -> bytes:
    """Return the content of nested buffers; empty for a buffer that Arrow omits."""
    while isinstance(content, Bytes):
        [content] = content.args or (b"",)
    if isinstance(content, bytes | bytearray):
        return bytes(content)
    if content is None:
        return b""
    message = f"buffer of type {type(content).__name__}"
    raise TypeError(message)


def _texts(texts: Texts) -> list[str | None]:
    array = texts.state["_pa_array"]
    chunks = array.args[0] if isinstance(array, Chunks) else [array]
    return [text for chunk in chunks for text in _chunk(chunk)]


def _chunk(chunk: ArrowArray) -> list[str | None]:
    """Return the strings of an Arrow array; its buffers are a validity bitmap, n + 1 offsets, and UTF-8."""
    kind, length, _, offset, buffers = chunk.args[0][:5]
    validity, offsets, utf8 = map(_bytes, buffers)
    width = {"string": "<i4", "large_string": "<i8"}[kind.args[0]]
    ends = np.frombuffer(offsets, dtype=width)[offset : offset + length + 1].tolist()
    found: list[str | None] = [utf8[begin:end].decode() for begin, end in pairwise(ends)]
    if validity:
        bits = np.unpackbits(np.frombuffer(validity, dtype=np.uint8), bitorder="little")[offset : offset + length]
        found = [text if bit else None for text, bit in zip(found, bits, strict=True)]
    if len(found) != length:
        message = "the buffers of an Arrow array are shorter than its length"
        raise ValueError(message)
    return found
