"""Fixtures were written by DataFrame.to_pickle of the pandas that their names say; numpy 1.18 to 2.0 with them."""

import gzip
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness_llm.errors import ConfigError
from harness_llm.prepare.datasets import frames
from harness_llm.prepare.datasets.pickles import ALLOWED, read_pickle

FRAMES = Path(__file__).parent / "data" / "frames"
WRITTEN = {
    "id": ["cot.3", "flan.1", "t0.2"],
    "tok_input": [[3], [1, 500, 29871], [1, 7]],
    "tok_output": [[], [1, 2, 3], [4]],
    "output": ["é", "a\u2019b", "c"],
    "tok_input_length": [1, 3, 2],
    "score": [1.0, 0.5, 0.25],
    "english": [True, True, False],
    "mixed": ["s", 5, None],
}


def _plain(table: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {n: [c.tolist() if isinstance(c, np.ndarray) else c for c in column] for n, column in table.items()}


@pytest.mark.parametrize("file", sorted(FRAMES.iterdir()), ids=lambda file: file.name)
def test_what_earlier_pandas_wrote_is_read(file: Path) -> None:
    assert _plain(read_pickle(file)) == WRITTEN


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_what_the_installed_pandas_writes_is_read(tmp_path: Path, protocol: int, compression: Any) -> None:
    frame = pd.DataFrame(WRITTEN)
    frame["tok_output"] = [np.array(ids, dtype=np.int32) for ids in WRITTEN["tok_output"]]
    frame["nested"] = [[np.int64(1), 2], [], [3]]
    frame["objects"] = [np.array([None, "x"], dtype=object)] * 3
    frame.to_pickle(tmp_path / "file", protocol=protocol, compression=compression)
    nested = {"nested": [[1, 2], [], [3]], "objects": [[None, "x"]] * 3}
    assert _plain(read_pickle(tmp_path / "file")) == WRITTEN | nested


@pytest.mark.parametrize("protocol", [4, 5])
@pytest.mark.parametrize(
    "make",
    [
        lambda: pd.DataFrame({"a": ["x", None, "zz"]}),
        lambda: pd.concat([pd.DataFrame({"a": ["x", None]}), pd.DataFrame({"a": ["y"], "b": [1.5]})]),
        lambda: pd.DataFrame({"a": ["x", "y", "z", "é"]}).iloc[1:3],
        lambda: pd.DataFrame(np.arange(12).reshape(3, 4)),
        lambda: pd.DataFrame(np.arange(12, dtype=">i4").reshape(3, 4), columns=list("abcd")),
        lambda: pd.DataFrame(np.asfortranarray([["a", "b"], ["c", "d"], ["e", "f"]], dtype=object), dtype=object),
        lambda: pd.DataFrame(np.array([["a", "b"], ["c", "d"], ["e", "f"]], dtype=object), dtype=object),
        lambda: pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "z"], "c": [4, 5, 6]})[["c", "b", "a"]],
    ],
)
def test_columns_come_out_as_pandas_has_them(tmp_path: Path, make: Callable[[], pd.DataFrame], protocol: int) -> None:
    frame = make()
    frame.to_pickle(tmp_path / "file", protocol=protocol)
    found = read_pickle(tmp_path / "file")
    assert list(found) == [str(column) for column in frame.columns]
    for column, run_keys in zip(frame.columns, found.values(), strict=True):
        assert [None if pd.isna(c) else c for c in run_keys] == [None if pd.isna(c) else c for c in frame[column]]


class _Asks:
    """Pickled, it asks for a call."""

    def __init__(self, call: Any, *args: Any) -> None:
        self.call, self.args = call, args

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call, self.args


def _global(module: str, name: str) -> bytes:
    return b"c" + f"{module}\n{name}\n".encode()


def _call(module: str, name: str, *args: str) -> bytes:
    """A stream that calls `module.name` with texts."""
    texts = b"".join(b"X" + struct.pack("<I", len(arg)) + arg.encode() for arg in args)
    return b"\x80\x04" + _global(module, name) + b"(" + texts + b"tR."


HARMFUL = {
    "posix.system": _call("posix", "system", "touch %s"),
    "os.system": _call("os", "system", "touch %s"),
    "subprocess.Popen": _call("subprocess", "Popen", "touch %s"),
    "builtins.eval": _call("builtins", "eval", "open('%s', 'w')"),
    "builtins.exec": _call("builtins", "exec", "open('%s', 'w')"),
    "builtins.getattr": _call("builtins", "getattr", "a", "b"),
    "__builtin__.eval": b"c__builtin__\neval\n(S'1'\ntR.",
    "operator.attrgetter": _call("operator", "attrgetter", "a"),
    "importlib.import_module": _call("importlib", "import_module", "os"),
    "pandas.read_pickle": _call("pandas", "read_pickle", "%s"),
    "pandas.eval": _call("pandas", "eval", "1"),
    "pandas.core.computation.eval.eval": _call("pandas.core.computation.eval", "eval", "1"),
    "pandas.read_csv": _call("pandas", "read_csv", "%s"),
    "pandas.io.pickle.read_pickle": _call("pandas.io.pickle", "read_pickle", "%s"),
    "numpy.load": _call("numpy", "load", "%s"),
    "numpy.memmap": _call("numpy", "memmap", "%s"),
    "numpy.fromfile": _call("numpy", "fromfile", "%s"),
    "numpy.testing._private.utils.runstring": _call("numpy.testing._private.utils", "runstring", "1", "%s"),
    "pyarrow.lib.memory_map": _call("pyarrow.lib", "memory_map", "%s"),
    "copyreg._reconstructor": _call("copyreg", "_reconstructor"),
    # Dots must not lead from something allowed to something else.
    "pandas.DataFrame.to_csv": _call("pandas", "DataFrame.to_csv", "%s"),
    "pandas.io.common.os.system": _call("pandas", "io.common.os.system", "touch %s"),
    "numpy.ndarray.tofile": _call("numpy", "ndarray.tofile", "%s"),
    "harness_llm.prepare.datasets.frames.Record": _call("harness_llm.prepare.datasets.frames", "Record"),
}


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("asked", HARMFUL)
def test_what_no_table_needs_is_refused_by_name_and_not_done(tmp_path: Path, asked: str, zipped: bool) -> None:
    mark = tmp_path / "done"
    content = _filled(HARMFUL[asked], str(mark))
    (tmp_path / "file.pkl").write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(ConfigError, match=f"refers to {asked}, which is not allowed") as caught:
        read_pickle(tmp_path / "file.pkl")
    assert caught.value.where == str(tmp_path / "file.pkl")
    assert not mark.exists()


def _filled(stream: bytes, path: str) -> bytes:
    """`stream` with `path` for %s in its one text."""
    if b"%s" not in stream:
        return stream
    head = stream.rindex(b"X", 0, stream.index(b"%s"))
    length = struct.unpack("<I", stream[head + 1 : head + 5])[0]
    text = stream[head + 5 : head + 5 + length].replace(b"%s", path.encode())
    return stream[: head + 1] + struct.pack("<I", len(text)) + text + stream[head + 5 + length :]


def test_the_streams_of_this_test_do_harm_elsewhere(tmp_path: Path) -> None:
    pickle.loads(_filled(HARMFUL["os.system"], str(tmp_path / "done")))  # noqa: S301
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize("place", [0, 500])
def test_a_harmful_cell_is_found_in_an_honest_frame(tmp_path: Path, place: int) -> None:
    mark = tmp_path / "done"
    run_keys: list[Any] = [[1, 2, 3]] * 1000
    run_keys[place] = [1, {"deep": (_Asks(eval, f"open({str(mark)!r}, 'w')"),)}]
    pd.DataFrame({"tok_input": run_keys}).to_pickle(tmp_path / "file.pkl")
    with pytest.raises(ConfigError, match=r"builtins\.eval"):
        read_pickle(tmp_path / "file.pkl")
    assert not mark.exists()


def test_nothing_that_is_allowed_is_the_real_thing() -> None:
    assert all(issubclass(record, frames.Record) for record in ALLOWED.values())
    assert all(record.__module__ == frames.__name__ for record in ALLOWED.values())


DTYPE = _global("numpy", "dtype")
FRAME = _global("pandas", "DataFrame") + b")\x81}S'_mgr'\n"
END = b"sb."
MANAGER = _global("pandas.core.internals.managers", "BlockManager")


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"no pickle", id="text"),
        pytest.param(b"\x1f\x8bno gzip", id="half a gzip"),
        pytest.param((FRAMES / "pandas-2.2.3.pkl").read_bytes()[:-40], id="cut"),
        pytest.param(gzip.compress((FRAMES / "pandas-2.2.3.pkl").read_bytes())[:-40], id="gzip cut"),
        pytest.param(pickle.dumps([1, 2]), id="a list"),
        pytest.param(pickle.dumps(pd.Series([1]).to_dict()), id="a dict"),
        pytest.param(_global("pandas", "DataFrame") + b".", id="a class"),
        pytest.param(_global("pandas", "DataFrame") + b")\x81.", id="no state"),
        pytest.param(FRAME + b"N" + END, id="no manager"),
        pytest.param(FRAME + MANAGER + b")\x81" + END, id="an empty manager"),
        # State on a class would change what reads the next file.
        pytest.param(_global("pandas", "DataFrame") + b"(N}S'state'\nNstb.", id="state on a class"),
        pytest.param(_global("pandas", "DataFrame") + b"(N}S'__setstate__'\nNstb.", id="slots on a class"),
        pytest.param(_global("functools", "partial") + DTYPE + b"\x85R)R.", id="partial of a dtype"),
        pytest.param(b"\x80\x04Psomething\n.", id="persistent id"),
        pytest.param(b"\x82\x01.", id="extension"),
    ],
)
def test_what_is_no_frame_is_told(tmp_path: Path, stream: bytes) -> None:
    (tmp_path / "file.pkl").write_bytes(stream)
    with pytest.raises(ConfigError, match="invalid pickled DataFrame") as caught:
        read_pickle(tmp_path / "file.pkl")
    assert caught.value.where == str(tmp_path / "file.pkl")
    assert _plain(read_pickle(FRAMES / "pandas-2.2.3.pkl")) == WRITTEN


def _frame(values: frames.Record, columns: int = 1) -> frames.Frame:
    """A frame of one block."""
    places = frames.Arguments(0, columns, 1)
    index = frames.Index(None, {"start": 0, "stop": columns, "step": 1})
    frame = frames.Frame()
    frame.state = {"_mgr": frames.Manager([frames.Block(values, places, 2)], [index])}
    return frame


def _dtype(code: str, order: str = "<", state: tuple[Any, ...] = ()) -> frames.Dtype:
    dtype = frames.Dtype(code, False, True)
    dtype.state = (3, order, *state)
    return dtype


def _arrow(length: int, offset: int, offsets: list[int], text: bytes, there: bytes | None = None) -> frames.Texts:
    buffers = [there, frames.Bytes(np.array(offsets).tobytes()), frames.Bytes(frames.Bytes(text))]
    texts = frames.Texts()
    texts.state = {"_pa_array": frames.ArrowArray((frames.Alias("large_string"), length, 0, offset, buffers, [], None))}
    return texts


def test_made_up_records_are_a_frame() -> None:
    made = frames.FromBuffer(b"\1\0\0\0\2\0\0\0", _dtype("i4"), (1, 2), "C")
    assert frames.columns(_frame(made)) == {"0": [1, 2]}
    fortran = frames.Array()
    fortran.state = (1, (2, 2), _dtype("i1"), True, b"\1\2\3\4")
    assert frames.columns(_frame(fortran, 2)) == {"0": [1, 3], "1": [2, 4]}
    assert frames.columns(_frame(_arrow(2, 1, [0, 1, 2, 4], b"abcd"))) == {"0": ["b", "cd"]}


@pytest.mark.parametrize(
    "values",
    [
        # What numpy would believe about memory.
        pytest.param(frames.FromBuffer(b"\1" * 8, _dtype("O8", "|"), (1, 1), "C"), id="objects from bytes"),
        pytest.param(frames.FromBuffer(b"\1" * 8, _dtype("V8", "|", (None, ("a",), {})), (1, 1), "C"), id="fields"),
        pytest.param(frames.FromBuffer(b"\1" * 8, _dtype("i4,O8"), (1, 1), "C"), id="a dtype with a comma"),
        pytest.param(frames.FromBuffer(b"\1" * 8, _dtype("i8", "i4,"), (1, 1), "C"), id="an order with a type"),
        pytest.param(frames.FromBuffer(b"\1" * 8, _dtype("i8"), (1, 2), "C"), id="longer than its bytes"),
        pytest.param(frames.FromBuffer("text", _dtype("i8"), (1, 1), "C"), id="no bytes"),
        pytest.param(_arrow(3, 0, [0, 1, 2], b"ab"), id="too few offsets"),
        pytest.param(_arrow(9, 0, list(range(10)), b"abcdefghi", there=b"\1"), id="fewer bits than texts"),
        pytest.param(frames.Arguments(), id="something else"),
    ],
)
def test_records_that_lie_are_refused(values: frames.Record) -> None:
    with pytest.raises((ValueError, TypeError, LookupError, AttributeError)):
        frames.columns(_frame(values))
