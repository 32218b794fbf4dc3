"""Read pickled pandas DataFrames without calling what the pickle names.

Each name that a DataFrame's pickle may contain maps to a Record of `frames`; any other name is an error.

An allow-list on the unpickler of pandas is not enough: numpy restores a forged dtype state, `dtype('O8')` without its
object flag, and then reads any address as a Python object (segmentation fault with numpy 2.3).
"""

import gzip
import pickle
import zlib
from pathlib import Path
from typing import IO, Any

from harness_llm.errors import ConfigError
from harness_llm.prepare.datasets.frames import (
    Alias,
    Arguments,
    Array,
    ArrowArray,
    Block,
    Bytes,
    Chunks,
    Dtype,
    Frame,
    FromBuffer,
    Index,
    Manager,
    Partial,
    Record,
    Scalar,
    Texts,
    columns,
)

_GZIP = b"\x1f\x8b"

ALLOWED: dict[str, type[Record]] = {
    # pandas 3 names its classes by their public place.
    "pandas DataFrame": Frame,
    "pandas.core.frame DataFrame": Frame,
    "pandas.core.internals.managers BlockManager": Manager,
    "pandas._libs.internals _unpickle_block": Block,
    "pandas.core.internals.blocks new_block": Block,  # pandas 1.3
    "functools partial": Partial,  # pandas 1.3, of new_block
    "pandas.core.indexes.base _new_Index": Index,
    "pandas Index": Arguments,
    "pandas RangeIndex": Arguments,
    "pandas.core.indexes.base Index": Arguments,
    "pandas.core.indexes.range RangeIndex": Arguments,
    "pandas.core.indexes.numeric Int64Index": Arguments,  # until pandas 1.5
    "pandas StringDtype": Arguments,
    "pandas.core.arrays.string_ StringDtype": Arguments,
    "pandas.arrays ArrowStringArray": Texts,
    "pandas.core.arrays.string_arrow ArrowStringArray": Texts,
    "numpy dtype": Dtype,
    "numpy ndarray": Arguments,
    "numpy.core.multiarray _reconstruct": Array,
    "numpy._core.multiarray _reconstruct": Array,  # numpy 2
    "numpy.core.multiarray scalar": Scalar,
    "numpy._core.multiarray scalar": Scalar,
    "numpy.core.numeric _frombuffer": FromBuffer,
    "numpy._core.numeric _frombuffer": FromBuffer,
    "pyarrow.lib _restore_array": ArrowArray,
    "pyarrow.lib chunked_array": Chunks,
    "pyarrow.lib type_for_alias": Alias,
    "pyarrow.lib py_buffer": Bytes,
    "builtins bytearray": Bytes,  # protocol 4
    "builtins slice": Arguments,
}
"""Records by the names, `module name`, that a pickle may contain."""


class _Unpickler(pickle.Unpickler):
    def __init__(self, content: IO[bytes] | gzip.GzipFile, file: Path) -> None:
        super().__init__(content)
        self._file = file

    def find_class(self, module: str, name: str) -> type[Record]:
        record = ALLOWED.get(f"{module} {name}")
        if record is None:
            raise ConfigError(
                f"pickle refers to {module}.{name}, which is not allowed",
                where=str(self._file),
                expected="a pandas DataFrame of strings, numbers and lists of them",
                hint="the file may be malicious: do not open it with other programs; download the data set again",
            )
        return record


def read_pickle(file: Path) -> dict[str, list[Any]]:
    """Return the columns of the pickled DataFrame in `file`, gzipped or not, without the row index.

    Cells are Python values; an array in a cell is a numpy array.

    Raises:
        ConfigError: the pickle contains a name that is not allowed, or is not a DataFrame.
    """
    try:
        return columns(_load(file))
    except (
        pickle.UnpicklingError,
        zlib.error,
        AttributeError,
        EOFError,
        LookupError,
        MemoryError,
        OSError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise ConfigError(
            "invalid pickled DataFrame",
            where=str(file),
            found=f"{type(error).__name__}: {error}",
        ) from error


def _load(file: Path) -> Any:
    with file.open("rb") as raw:
        zipped = raw.read(len(_GZIP)) == _GZIP
        raw.seek(0)
        if not zipped:
            return _Unpickler(raw, file).load()
        with gzip.open(raw) as content:
            return _Unpickler(content, file).load()
