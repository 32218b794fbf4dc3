"""Train the demo's model: `python -m harness_llm.demo.train --tokenizer FILE --output DIR`.

Standard output is the status channel to the parent process: one JSON object a line.
"""

import argparse
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from harness_llm.demo.corpus import Sample, Split, samples
from harness_llm.demo.dataset import BOS, EOS, PAD, SEEDS, VOCABULARY, encode_prompts

STEPS = 600
BATCH = 128
PEAK_RATE = 3e-3
WARM_UP = 50
IGNORED = -100  # the label that the loss leaves out


def configuration(tokenizer: Tokenizer) -> LlamaConfig:
    """About one million parameters; heads of 32, which vLLM's CPU attention has."""
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        initializer_range=0.04,
        pad_token_id=tokenizer.token_to_id(PAD),
        bos_token_id=tokenizer.token_to_id(BOS),
        eos_token_id=tokenizer.token_to_id(EOS),
    )


def pairs(chosen: list[Sample], tokenizer: Tokenizer) -> list[tuple[list[int], list[int]]]:
    """Prompt ids and answer ids, the answer ended by EOS."""
    answers = tokenizer.encode_batch([sample.answer for sample in chosen], add_special_tokens=False)
    end = tokenizer.token_to_id(EOS)
    return [
        (prompt, [*answer.ids, end]) for prompt, answer in zip(encode_prompts(chosen, tokenizer), answers, strict=True)
    ]


def batches(corpus: list[tuple[list[int], list[int]]], size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Ids and labels of like lengths, padded on the right, in random order."""
    by_length = sorted(corpus, key=lambda pair: len(pair[0]) + len(pair[1]))
    groups = [by_length[start : start + size] for start in range(0, len(by_length), size)]
    for index in torch.randperm(len(groups)).tolist():
        yield _padded(groups[index])


def _padded(group: list[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(len(prompt) + len(answer) for prompt, answer in group)
    ids = torch.zeros(len(group), longest, dtype=torch.long)
    labels = torch.full_like(ids, IGNORED)
    for row, (prompt, answer) in enumerate(group):
        end = len(prompt) + len(answer)
        ids[row, :end] = torch.tensor(prompt + answer)
        labels[row, len(prompt) : end] = torch.tensor(answer)
    return ids, labels


def train(model: LlamaForCausalLM, corpus: list[tuple[list[int], list[int]]], steps: int) -> None:
    """`steps` updates with AdamW, the loss on the answers alone; a batch that is padded needs no mask for it."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    model.train()
    for step, (ids, labels) in enumerate(batches(corpus, BATCH), 1):
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        status(step / steps, f"step {step}/{steps}, loss {loss.item():.3f}")
    model.eval()


def _rate(step: int, steps: int) -> float:
    """Linear warm-up, then half a cosine down to a fiftieth."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    return max(0.02, 0.5 * (1 + math.cos(math.pi * (step - WARM_UP) / (steps - WARM_UP))))


def save(model: LlamaForCausalLM, tokenizer_file: Path, output: Path) -> None:
    """Write what an engine loads: weights, configuration, tokenizer."""
    model.generation_config = GenerationConfig.from_model_config(model.config)
    model.save_pretrained(output)
    tokens = {"pad_token": PAD, "unk_token": PAD, "bos_token": BOS, "eos_token": EOS}
    PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_file), **tokens).save_pretrained(output)
    shutil.copy(tokenizer_file, output)


def status(done: float, text: str) -> None:
    """Tell the parent process how far the work is, 0 to 1."""
    print(json.dumps({"stage": "train", "done": round(done, 3), "text": text}), flush=True)  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    torch.manual_seed(SEEDS[Split.TRAINING])
    tokenizer = Tokenizer.from_file(str(arguments.tokenizer))
    chosen = samples(Split.TRAINING, arguments.steps * BATCH, SEEDS[Split.TRAINING])
    model = LlamaForCausalLM(configuration(tokenizer))
    train(model, pairs(chosen, tokenizer), arguments.steps)
    save(model, arguments.tokenizer, arguments.output)


if __name__ == "__main__":
    main()
