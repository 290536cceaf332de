"""What config.json may say beside the tried cases, drawn at random, against transformers."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from dashinfer_lab import LLM
from tests.oracle.random_configs import FAMILIES, random_config, respelled
from tests.oracle.witness import relative_error, whole_logits

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
TOKENS = [3 + (7 * i * i + i) % 208 for i in range(149)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("model_type", FAMILIES)
def test_logits_agree_with_transformers(model_type: str, seed: int, tmp_path: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    draw = Random(f"{model_type} {seed}")
    config = AutoConfig.for_model(model_type, **random_config(model_type, draw))
    torch.manual_seed(seed)
    theirs = AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", experts_implementation="eager", dtype=torch.float32
    ).eval()
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            if weight.ndim > 1:  # queries and keys for peaked attention, where angles show
                peaked = any(part in name for part in ("q_proj", "k_proj", "qkv_proj"))
                weight.normal_(0, (2.0 if peaked else 1.0) / weight.shape[-1] ** 0.5)
            else:
                weight.normal_(float("norm" in name and "gemma" not in model_type), 0.2)
    theirs.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    saved = json.loads(path.read_text(encoding="utf-8"))
    stated = respelled(saved, type(config)().to_dict(), draw)
    path.write_text(json.dumps(stated), encoding="utf-8")

    with LLM(tmp_path, weights="fp32", threads=1, progress=False) as ours:
        logits = ours.logits(TOKENS)

    # Twice what one of the tried cases may have: these are not chosen for being well conditioned.
    error = relative_error(logits, whole_logits(theirs, TOKENS)).max()
    assert error <= 2e-4, stated
