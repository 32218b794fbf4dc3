"""Make the OpenOrca data set of llama2-70b from 1M-GPT4-Augmented.parquet.

Filters, their order and seeds are those of language/llama2-70b/processorca.py of mlcommons/inference: the samples and
their order are equal. To save time and memory, filters without tokenizer run first, rows are tokenized in batches, and
only the ids of chosen rows are kept.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.fileio import write_atomically
from harness_llm.prepare.datasets.encoder import Encode

if TYPE_CHECKING:
    import pandas as pd

PROMPT = "<s>[INST] {question} [/INST]"
SYSTEM_PROMPT = "<s>[INST] <<SYS>>\n{system}\n<</SYS>>\n\n{question} [/INST]"
RESPONSE_INIT = 29871
"""First token of every Llama 2 answer; the reference appends it to the prompt."""

PUNCTUATION = "\u2019\u2013\u201c\u201d\u2014"
"""Allowed characters besides ASCII: quotation marks and dashes."""

SHORTEST_ANSWER = 3
BAD_SYSTEM_PROMPTS = (
    "",
    "You are an AI assistant that follows instruction extremely well. Help as much as you can.",
    "You are an AI assistant. Provide a detailed answer so user don’t need to search outside to understand the answer.",  # noqa: RUF001
    "You are an AI assistant. Provide a detailed answer so user don't need to search outside to understand the answer.",
    (
        "User will you give you a task with some instruction. Your job is follow the instructions as faithfully as you "
        "can. While answering think step-by-step and justify your answer."
    ),
    "Explain how you used the definition to come up with the answer.",
)
BAD_IN = ("niv", "t0")
SEED = 1337
CALIBRATION_SEED = 12345

COLUMNS = ("id", "system_prompt", "question", "response")
FILE = "open_orca_gpt4_tokenized_llama.{}.pkl.gz"  # MLCommons' file name
BATCH = 10_000


def read_parquet(file: Path) -> "pd.DataFrame":
    """Return the published OpenOrca rows."""
    import pandas as pd  # noqa: PLC0415

    try:
        frame = pd.read_parquet(file, columns=list(COLUMNS)).astype(object)
    except FileNotFoundError as error:
        raise EnvironmentMissing(
            "missing data set",
            where=str(file),
            expected="1M-GPT4-Augmented.parquet of Open-Orca/OpenOrca on Hugging Face",
        ) from error
    except (KeyError, OSError, ValueError) as error:
        raise ConfigError(
            "invalid OpenOrca parquet file",
            where=str(file),
            expected=f"the columns {', '.join(COLUMNS)}",
            found=str(error),
        ) from error
    for column in COLUMNS:
        if frame[column].isna().any():
            row = int(frame[column].isna().argmax())
            raise ConfigError(
                "empty cell in data set", where=f"{file}, column {column}, row {row}", expected="a string"
            )
    return frame


def build(
    orca: "pd.DataFrame", encode: Encode, limit: int, samples: int, calibration: int
) -> "tuple[pd.DataFrame, pd.DataFrame]":
    """Return the evaluation set and the calibration set.

    Args:
        orca: from `read_parquet`.
        encode: Llama 2's encoder, which adds BOS.
        limit: exclusive limit of token ids in prompts and answers.
        samples: size of the evaluation set, equal shares of each origin.
        calibration: size of the calibration set, a subset of the evaluation set.
    """
    import pandas as pd  # noqa: PLC0415

    pool = _within(_readable(orca), encode, limit)
    origins = [part.reset_index(drop=True) for _, part in pool.groupby("origin")]
    share, rest = divmod(samples, len(origins) or 1)
    if rest or not origins or any(len(part) < share for part in origins):
        raise ConfigError(
            "unequal numbers of samples by origin",
            expected=f"{samples} samples, equally many of each origin",
            found=", ".join(f"{part.origin[0]} has {len(part)}" for part in origins) or "no samples after filtering",
        )
    chosen = pd.concat([part.sample(n=share, random_state=SEED) for part in origins], ignore_index=True)
    chosen["tok_input"], chosen["tok_output"] = _prompt_ids(chosen, encode), encode(chosen.output.tolist())
    # dtype object: earlier pandas, which quantization environments use, cannot unpickle strings of pandas 3.
    chosen = chosen[[*_ORDER]].astype(dict.fromkeys(_TEXTS, object))
    chosen.columns = pd.Index(_ORDER, dtype=object)
    if calibration > samples:
        raise ConfigError(
            "the calibration set is larger than the evaluation set", expected=f"<= {samples}", found=str(calibration)
        )
    return chosen, chosen.sample(n=calibration, random_state=CALIBRATION_SEED).reset_index(drop=True)


def write(folder: Path, evaluation: "pd.DataFrame", calibration: "pd.DataFrame") -> list[Path]:
    """Write both sets with the reference's file names; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for kind, frame in (("sampled", evaluation), ("calibration", calibration)):
        file = folder / FILE.format(f"{kind}_{len(frame)}")
        with write_atomically(file) as temporary:
            frame.to_pickle(temporary, compression=None)
        files.append(file)
    return files


_TEXTS = ("id", "system_prompt", "question", "output", "input", "origin")
_ORDER = (*_TEXTS[:-1], "tok_input", "tok_output", _TEXTS[-1], "tok_input_length", "tok_output_length")


def _readable(orca: "pd.DataFrame") -> "pd.DataFrame":
    """Apply the filters that need no token ids."""
    frame = orca.rename(columns={"response": "output"})
    frame["input"] = [
        SYSTEM_PROMPT.format(system=system, question=question) if system else PROMPT.format(question=question)
        for system, question in zip(frame.system_prompt, frame.question, strict=True)
    ]
    frame["origin"] = frame.id.str.partition(".")[0]
    bad = frame.system_prompt.isin(BAD_SYSTEM_PROMPTS) & frame.origin.isin(BAD_IN)
    return frame[_plain(frame.input) & _plain(frame.output) & ~bad].reset_index(drop=True)


def _plain(texts: "pd.Series[Any]") -> "pd.Series[bool]":
    allowed = str.maketrans("", "", PUNCTUATION)
    return texts.map(lambda text: text.isascii() or text.translate(allowed).isascii()).astype(bool)


def _within(frame: "pd.DataFrame", encode: Encode, limit: int) -> "pd.DataFrame":
    """Add token lengths and keep the rows whose prompt and answer are within the limits."""
    frame = frame.assign(
        tok_input_length=[length + 1 for length in _lengths(frame.input, encode)],
        tok_output_length=list(_lengths(frame.output, encode)),
    )
    fitting = (frame.tok_input_length < limit) & (frame.tok_output_length < limit)
    return frame[fitting & (frame.tok_output_length >= SHORTEST_ANSWER)].reset_index(drop=True)


def _lengths(texts: "pd.Series[Any]", encode: Encode) -> Iterator[int]:
    for begin in range(0, len(texts), BATCH):
        yield from map(len, encode(texts[begin : begin + BATCH].tolist()))


def _prompt_ids(frame: "pd.DataFrame", encode: Encode) -> list[list[int]]:
    return [[*ids, RESPONSE_INIT] for ids in encode(frame.input.tolist())]
