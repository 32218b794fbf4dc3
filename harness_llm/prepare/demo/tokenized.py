"""The demo's tokenizer and token stores."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from harness_llm.errors import ConfigError
from harness_llm.prepare.demo.corpus import Sample, Split, samples
from harness_llm.protocol.token_store import write_store

SEEDS = {Split.EVALUATION: 1, Split.CALIBRATION: 2, Split.TRAINING: 3}
VOCABULARY = 512
PAD, BOS, EOS = "<pad>", "<s>", "</s>"  # ids 0, 1 and 2, by their order in the trainer's list
TEXTS_FOR_TOKENIZER = 20_000


def train_tokenizer(path: Path) -> None:
    """Train a BPE tokenizer on the training split and write it to `path`; it adds BOS to each text."""
    tokenizer = Tokenizer(models.BPE(unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=[PAD, BOS, EOS], show_progress=False)
    corpus = samples(Split.TRAINING, TEXTS_FOR_TOKENIZER, SEEDS[Split.TRAINING])
    tokenizer.train_from_iterator([text for s in corpus for text in (s.prompt, s.answer)], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    tokenizer.save(str(path))


def write_split(path: Path, split: Split, count: int, tokenizer: Tokenizer, longest: int) -> None:
    """Write `count` samples of `split` as a token store.

    Raises:
        ConfigError: a prompt has more than `longest` token ids.
    """
    chosen = samples(split, count, SEEDS[split])
    prompts = encode_prompts(chosen, tokenizer)
    found = max(map(len, prompts))
    if found > longest:
        raise ConfigError(
            "prompt of the demo is too long",
            where="dataset.longest_prompt",
            expected=f"at most {longest} token ids",
            found=str(found),
        )
    write_store(path, prompts, [sample.answer for sample in chosen])


def encode_prompts(chosen: Sequence[Sample], tokenizer: Tokenizer) -> list[list[int]]:
    """Return the token ids of the prompts, with BOS."""
    return [encoding.ids for encoding in tokenizer.encode_batch([sample.prompt for sample in chosen])]
