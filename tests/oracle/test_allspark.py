"""DashInfer's surface with torch's own tensors: state dict, config's __dict__, DLPack both ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashinfer_lab import allspark

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.oracle


def test_a_state_dict_answers_as_transformers_does(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=300,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.tensor([[1, 7, 9]])
    expected = model.generate(ids, do_sample=False, max_length=20, eos_token_id=None)[0, 3:]
    with allspark.Engine() as engine:
        engine.serialize_model_from_torch(
            model_name="tiny",
            model_type="LLaMA_v2",
            torch_model=model.state_dict(),
            model_config=model.config.__dict__,
            save_dir=str(tmp_path),
        )
        engine.install_model(
            allspark.AsModelConfig(
                model_name="tiny",
                model_path=str(tmp_path / "tiny.asgraph"),
                weights_path=str(tmp_path / "tiny.asparam"),
                num_threads=1,
            )
        )
        engine.start_model("tiny")
        greedy = {"do_sample": False, "early_stopping": False, "max_length": 20}
        for given in (ids, ids[0], torch.utils.dlpack.to_dlpack(ids)):
            _, handle, queue = engine.start_request("tiny", {"input_ids": given}, greedy)
            engine.sync_request("tiny", handle)

            assert torch.equal(torch.from_dlpack(queue.Get()), expected)
