import pytest

from harness_llm.errors import ConfigError
from harness_llm.familiar import MAPPED, REFUSED, translate


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("--scenario Offline", "--scenarios Offline"),
        ("--scenario=Server", "--scenarios Server"),
        ("--device mi300x", "--gpu mi300x"),
        ("--tensor-parallel-size 8", "--set llm_config.tensor_parallel_size=8"),
        ("--batch-size=64", "--set llm_config.max_num_seqs=64"),
        ("--dtype float16", "--set llm_config.dtype=float16"),
        ("--num-workers 2", "--set harness_config.replicas=2"),
    ],
)
def test_each_becomes_one_of_ours(theirs: str, ours: str) -> None:
    assert translate(["run", *theirs.split(), "--model", "demo"]) == ["run", *ours.split(), "--model", "demo"]


def test_every_mapping_is_tested() -> None:
    assert len(MAPPED) == 6


def test_what_is_ours_stays_as_it_is() -> None:
    words = ["-v", "submit", "--scenarios", "Offline", "--set=llm_config.dtype=float32", "--set", "a.b=c d", ""]
    assert translate(words) == words


@pytest.mark.parametrize("option", sorted(REFUSED))
@pytest.mark.parametrize("form", ["{} /models/x", "{}=/models/x"])
def test_what_has_no_counterpart_is_refused_with_what_takes_its_place(option: str, form: str) -> None:
    with pytest.raises(ConfigError) as caught:
        translate(["run", *form.format(option).split()])
    assert caught.value.what == f"there is no option {option}"
    assert caught.value.hint == REFUSED[option]
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("words", [["--scenario"], ["--scenario="]])
def test_a_value_is_wanted(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="--scenario wants a value"):
        translate(words)
