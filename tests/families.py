"""Tiny models of many families, with random weights and the tiny model's word tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.conftest import WORDS, make_tiny_model

_SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 66,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
_DECODER: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
# model type -> what its config needs to be tiny and without dropout.
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": _SIZES,
    "roberta": _SIZES,
    "xlm-roberta": _SIZES,
    "electra": _SIZES | {"embedding_size": 32},
    "albert": _SIZES | {"embedding_size": 16, "classifier_dropout_prob": 0.0},
    "deberta-v2": _SIZES | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "pooler_hidden_size": 32},
    "distilbert": {
        "dim": 32,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 64,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "seq_classif_dropout": 0.0,
    },
    "modernbert": _DECODER | {"global_attn_every_n_layers": 2, "local_attention": 16},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "llama": _DECODER,
    "qwen3": _DECODER,
    "xlnet": {"d_model": 32, "n_layer": 1, "n_head": 2, "d_inner": 64, "dropout": 0.0, "summary_last_dropout": 0.0},
}


def make_family(model_type: str, folder: Path) -> Path:
    """A folder that any loader reads."""
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    # XLNet reads a text's class off its last token, so its own tokenizers pad on the left.
    make_tiny_model(folder, padding_side="left" if model_type == "xlnet" else "right")
    special = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    config = AutoConfig.for_model(model_type, vocab_size=len(WORDS) + 4, **special, **FAMILIES[model_type])
    torch.manual_seed(0)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    return folder
