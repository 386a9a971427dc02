"""The seeded hub: the sample model in two commits, and a repository for each fault."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import EntryNotFoundError, GatedRepoError

from tests.support.model_hub import FAULTY, SAMPLE, HubStore, ModelHub, seed_store
from tests.support.model_hub.seed import Seeded

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> HubStore:
    return HubStore(tmp_path_factory.mktemp("hub"))


@pytest.fixture(scope="module")
def seeded(store: HubStore) -> Seeded:
    return seed_store(store)


@pytest.fixture(scope="module")
def hub(store: HubStore, seeded: Seeded) -> Iterator[ModelHub]:
    with ModelHub(store) as hub:
        yield hub


def test_seeding_again_changes_nothing(store: HubStore, seeded: Seeded) -> None:
    assert seed_store(store) == seeded


def test_sample_has_a_tag_on_its_first_commit_and_main_on_its_second(hub: ModelHub, seeded: Seeded) -> None:
    api = HfApi(endpoint=hub.endpoint, token=False)

    assert api.model_info(SAMPLE, revision="v1").sha == seeded.first
    assert api.model_info(SAMPLE).sha == seeded.second
    assert seeded.first != seeded.second


def test_the_two_commits_render_different_prompts_with_the_same_weights(
    hub: ModelHub, store: HubStore, seeded: Seeded, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    prompts = []
    for commit in (seeded.first, seeded.second):
        folder = snapshot_download(
            SAMPLE,
            revision=commit,
            allow_patterns="*token*",
            local_dir=tmp_path / commit,
            endpoint=hub.endpoint,
            token=False,
        )
        template = AutoTokenizer.from_pretrained(folder).apply_chat_template
        messages = [{"role": "user", "content": "Hi"}]
        prompts.append(template(messages, tokenize=False, add_generation_prompt=True))

    assert prompts[0] == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert prompts[1].startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    weights = [
        store.resolve(SAMPLE, commit).file("model.safetensors") for commit in (seeded.first, seeded.second)
    ]
    assert weights[0] == weights[1]


def test_each_faulty_repository_serves_its_config_and_fails_as_named(hub: ModelHub, tmp_path: Path) -> None:
    def get(repo: str, path: str) -> bytes:
        return Path(
            hf_hub_download(repo, path, endpoint=hub.endpoint, cache_dir=tmp_path, token=False)
        ).read_bytes()

    with pytest.raises(EntryNotFoundError):
        get(FAULTY.missing_file, "model.safetensors")
    with pytest.raises(GatedRepoError):
        get(FAULTY.gated, "config.json")
    served = get(FAULTY.digest_mismatch, "model.safetensors")
    listed = HfApi(endpoint=hub.endpoint, token=False).get_paths_info(
        FAULTY.digest_mismatch, "model.safetensors"
    )
    assert hashlib.sha256(served).hexdigest() != listed[0].lfs.sha256
    assert get(FAULTY.missing_file, "config.json") == get(FAULTY.digest_mismatch, "config.json")


@pytest.mark.slow
def test_tiny_weights_load_into_a_model_of_their_config(
    store: HubStore, seeded: Seeded, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    for file in store.resolve(FAULTY.missing_file, "main").files:
        (tmp_path / file.path).write_bytes(store.content(file).read_bytes())

    model, loading = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)

    assert model.num_parameters() > 0
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
