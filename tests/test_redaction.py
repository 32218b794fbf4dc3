import json
import re

import pytest

from harness_llm.analysis.redaction import PATTERNS, Redactor

WORD = "s3cr3t-Va1ue"


@pytest.mark.parametrize(
    "text",
    [
        f"HF_TOKEN={WORD}",
        f"export HUGGINGFACE_ACCESS_TOKEN='{WORD}'",
        f'{{"api_key": "{WORD}", "port": 80}}',
        f"password: {WORD}",
        f'"password": "a, b {WORD}"',
        f'{{"token": "{WORD}"}}',
        f'"environment": "{{\\"api_key\\": \\"{WORD}\\"}}"',
        f"AWS_SECRET_ACCESS_KEY={WORD}",
        f"CF_ACCESS_CLIENT_SECRET={WORD}",
        f"client-secret = {WORD}",
        f"vllm serve --api-key {WORD} --port 8000",
        f"server --token={WORD}",
        f"Authorization: Bearer {WORD}",
        f"authorization: basic {WORD}==",
        f"https://me:{WORD}@proxy.example.net:3128/simple",
        f"WANDB_API_KEY={WORD}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{WORD}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{WORD}",
        f"someone.{WORD}@example.com",
        f"/home/{WORD}/checkout/build",
        f"File '/Users/{WORD}/x.py'",
        f"http://{WORD}:8000/v1",
        f"http://{WORD}.internal.example.net/v1",
    ],
)
def test_secrets_and_names_are_redacted(text: str) -> None:
    redact = Redactor()
    assert WORD not in redact(text)
    assert "REDACTED" in redact(text)
    assert redact.counts


@pytest.mark.parametrize(
    "token",
    [
        "hf_" + "aB3" * 11,
        "sk-" + "aB3" * 11,
        "ghp_" + "aB3" * 12,
        "github_pat_" + "aB3" * 12,
        "glpat-" + "aB3" * 7,
        "nvapi-" + "aB3" * 12,
        "AKIA" + "ABCD" * 4,
        "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeKKF2",
    ],
)
def test_tokens_are_recognized_by_their_form(token: str) -> None:
    assert token not in Redactor()(f"login failed ({token})")


@pytest.mark.parametrize("address", ["10.1.22.3", "192.168.0.1", "fe80::1ff:fe23:4567:890a", "52:54:00:12:34:56"])
def test_addresses_are_redacted(address: str) -> None:
    assert Redactor()(f"connected to {address}, port 80") == "connected to REDACTED-address-1, port 80"


@pytest.mark.parametrize(
    "text",
    [
        "max_num_batched_tokens: 8192",
        '{"key": "result_tokens_per_second", "value": 12.5}',
        '"stop_token_ids": [2], "token_latencies": 1, "TOKENS_PER_SAMPLE": 294.45',
        "llama2-70b.Server.target_qps = 80",
        "first_token: 5 ms, target_key: target_qps, eos_token='</s>', time per output token: 12 ms",
        "llmcompressor==0.14.0.1, vllm 0.30.0, driver 570.86.15, CUDA 12.8.1",
        "tcp://127.0.0.1:5555 http://localhost:8000/health 0.0.0.0",
        "https://docs.vllm.ai/en/latest https://huggingface.co/meta-llama/Llama-2-70b",
        "WARNING 11-22 15:51:04 [vllm.py:1547] Enforce eager set",
        "bus 0000:c1:00.0, 2026-11-22T15:51:07.341587Z",
        "EngineCore: KeyError: 'layers.0.self_attn.qkv_proj.weight_scale'",
        "Using None for EOS token id because tokenizer is not initialized",
        "sha256 1984664ea68ad45e4895480530d204cc861ad31cb4fee4cad7c57ff5b211b719",
    ],
)
def test_settings_results_and_messages_stay(text: str) -> None:
    assert Redactor()(text) == text


def test_equal_names_get_equal_numbers() -> None:
    redact = Redactor({"host": ["node7", "node7.lab"]})
    assert redact("node7 10.0.0.7 node8x node7.lab http://other:1 10.0.0.8 10.0.0.7") == (
        "REDACTED-host-2 REDACTED-address-1 node8x REDACTED-host-1 http://REDACTED-host-3:1 REDACTED-address-2 "
        "REDACTED-address-1"
    )
    assert redact.counts == {"host": 3, "address": 3}


def test_redacted_json_is_json_and_stays_the_same_when_redacted_again() -> None:
    document = {"server_config": {"api_key": 'a"b', "url": ["http://u:p@host:1"]}, "command": "x --token t --y 1"}
    redact = Redactor()
    once = redact(json.dumps(document))
    assert json.loads(once)["command"] == "x --token REDACTED-secret --y 1"
    assert redact(once) == once


def test_every_pattern_names_what_it_replaces() -> None:
    assert all("secret" in pattern.regex.groupindex for pattern in PATTERNS)
    assert all(isinstance(pattern.regex, re.Pattern) for pattern in PATTERNS)
