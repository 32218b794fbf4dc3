"""Train the demo's model: `python -m harness_llm.prepare.demo.train --tokenizer FILE --output DIR`.

Optimizers are PyTorch's: Muon for matrices inside the layers (AdamW alone needs several times the steps), AdamW for
embeddings and norms. Writes progress to standard output, one JSON object per line.
"""

import argparse
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from harness_llm.config.checkpoint import TRAINING, write_record
from harness_llm.fileio import replacing
from harness_llm.prepare.demo.corpus import Sample, Split, samples
from harness_llm.prepare.demo.tokenized import BOS, EOS, PAD, SEEDS, VOCABULARY, encode_prompts

STEPS = 1200
BATCH = 32
CHUNK = 8  # batches
MUON_RATE = 0.007
ADAM_RATE = 3e-3
WEIGHT_DECAY = 0.05
WARM_UP = 0.05  # share of all steps
# The matrices are small: more threads wait for each other. Muon takes 28 ms per step with one thread, 47 ms with two.
THREADS = 2
MUON_THREADS = 1
IGNORED = -100  # label that the loss ignores

Pair = tuple[list[int], list[int]]  # prompt ids, answer ids


def configuration(tokenizer: Tokenizer) -> LlamaConfig:
    """Return the model's configuration: one million parameters, head size 32 (supported by vLLM's CPU attention)."""
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.06,
        pad_token_id=tokenizer.token_to_id(PAD),
        bos_token_id=tokenizer.token_to_id(BOS),
        eos_token_id=tokenizer.token_to_id(EOS),
    )


def pairs(chosen: list[Sample], tokenizer: Tokenizer) -> list[Pair]:
    """Return prompt ids and answer ids of each sample; answers end with EOS."""
    ending = tokenizer.encode(EOS, add_special_tokens=False).ids
    answers = tokenizer.encode_batch([sample.answer for sample in chosen], add_special_tokens=False)
    return [
        (prompt, [*answer.ids, *ending])
        for prompt, answer in zip(encode_prompts(chosen, tokenizer), answers, strict=True)
    ]


def batches(corpus: list[Pair]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield ids and labels; sequences of a batch have similar lengths, CHUNK batches contain all kinds."""
    for first in range(0, len(corpus), CHUNK * BATCH):
        chunk = sorted(corpus[first : first + CHUNK * BATCH], key=lambda pair: len(pair[0]) + len(pair[1]))
        groups = [chunk[start : start + BATCH] for start in range(0, len(chunk), BATCH)]
        for index in torch.randperm(len(groups)).tolist():
            yield _padded(groups[index])


def _padded(group: list[Pair]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(len(prompt) + len(answer) for prompt, answer in group)
    ids = torch.zeros(len(group), longest, dtype=torch.long)
    labels = torch.full_like(ids, IGNORED)
    for row, (prompt, answer) in enumerate(group):
        end = len(prompt) + len(answer)
        ids[row, :end] = torch.tensor(prompt + answer)
        labels[row, len(prompt) : end] = torch.tensor(answer)
    return ids, labels


def train(model: LlamaForCausalLM, corpus: list[Pair], steps: int) -> None:
    """Train for one pass over `corpus` in `steps` updates, with the loss on the answers only."""
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]  # noqa: PLR2004
    others = [*model.model.embed_tokens.parameters(), *(p for p in model.parameters() if p.ndim == 1)]
    optimizers = (
        torch.optim.Muon(matrices, lr=MUON_RATE, weight_decay=WEIGHT_DECAY),
        torch.optim.AdamW(others, lr=ADAM_RATE, betas=(0.9, 0.98), weight_decay=0.0),
    )
    schedules = [torch.optim.lr_scheduler.LambdaLR(o, lambda done: _rate((done + 1) / steps)) for o in optimizers]
    model.train()
    for step, (ids, labels) in enumerate(batches(corpus), 1):
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            with _threads(MUON_THREADS if isinstance(optimizer, torch.optim.Muon) else THREADS):
                optimizer.step()
            schedule.step()
        model.zero_grad()
        status(step / steps, f"step {step}/{steps}, loss {loss.item():.2f}")
    model.eval()


@contextmanager
def _threads(most: int) -> Iterator[None]:
    """Compute with at most `most` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(min(most, before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _rate(done: float) -> float:
    """Return the learning rate's factor after the share `done` of all steps: warm-up, constant, linear decay."""
    return max(0.02, min(1.0, done / WARM_UP, (1 - done) / 0.5))


def save(model: LlamaForCausalLM, tokenizer_file: Path, output: Path) -> None:
    """Write the checkpoint: weights, configuration and tokenizer."""
    model.generation_config = GenerationConfig.from_model_config(model.config)
    model.save_pretrained(output)
    tokens = {"pad_token": PAD, "unk_token": PAD, "bos_token": BOS, "eos_token": EOS}
    PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_file), **tokens).save_pretrained(output)
    shutil.copy(tokenizer_file, output)  # save_pretrained rewrites the file; keep the data set's bytes


def status(done: float, text: str) -> None:
    """Report progress, 0 to 1, to the parent process."""
    print(json.dumps({"stage": "train", "done": round(done, 3), "text": text}), flush=True)  # noqa: T201


def main() -> None:
    """Train and save the model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    started = time.monotonic()
    torch.manual_seed(SEEDS[Split.TRAINING])
    tokenizer = Tokenizer.from_file(str(arguments.tokenizer))
    chosen = samples(Split.TRAINING, arguments.steps * BATCH, SEEDS[Split.TRAINING])
    model = LlamaForCausalLM(configuration(tokenizer))
    with _threads(THREADS):
        train(model, pairs(chosen, tokenizer), arguments.steps)
    with replacing(arguments.output) as folder:
        save(model, arguments.tokenizer, folder)
        write_record(folder, TRAINING, steps=arguments.steps, seconds=round(time.monotonic() - started, 1))


if __name__ == "__main__":
    main()
