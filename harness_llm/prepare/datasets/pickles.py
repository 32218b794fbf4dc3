"""Pickled tables, read without running anything that the pickle names.

The published data sets are pickled pandas DataFrames. What pandas, numpy and pyarrow are asked for in such a file is on
a list; anything else is refused. And nothing of these libraries is called: each name on the list stands for a record
that keeps what the pickle says of the object. `frames` makes columns of the records afterwards. So the file decides
neither which code runs nor what numpy believes about memory, and the installed pandas may be any.
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
"""What a pickle may name, `module name`, and the record that stands for it."""


class _Unpickler(pickle.Unpickler):
    def __init__(self, content: IO[bytes] | gzip.GzipFile, file: Path) -> None:
        super().__init__(content)
        self._file = file

    def find_class(self, module: str, name: str) -> type[Record]:
        record = ALLOWED.get(f"{module} {name}")
        if record is None:
            raise ConfigError(
                f"a pickle asks for {module}.{name}, which no table needs",
                where=str(self._file),
                expected="a pandas DataFrame of texts, numbers and lists of them",
                hint="it may do harm: do not open it with other programs; download the data set again",
            )
        return record


def read_pickle(file: Path) -> dict[str, list[Any]]:
    """The columns of the pickled DataFrame in `file`, gzipped or not.

    RunKeys are what Python has for them; an array within a run is a numpy array. The index of the rows is dropped.

    Raises:
        ConfigError: the pickle names something that is not on the list, or is no DataFrame.
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
            "a data set is no pickled DataFrame that can be read",
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
