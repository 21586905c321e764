"""The trained model as a Hugging Face folder that `pipeline` loads, with a card."""

from __future__ import annotations

from pathlib import Path

from launcher.build import Session
from launcher.records import replace_folder
from launcher.tasks.base import Evaluation
from launcher.units import count


def save_model(session: Session, folder: Path, evaluation: Evaluation | None, update: int) -> None:
    """Weights (float32 safetensors), config, tokenizer and card; all processes call it, the main one writes."""
    accelerator = session.accelerator
    weights = session.form.weights()
    if accelerator.is_main_process:
        temporary = folder.with_name(folder.name + ".tmp")
        session.form.bare.save_pretrained(temporary, state_dict=weights)
        session.collator.tokenizer.save_pretrained(temporary)
        (temporary / "README.md").write_text(model_card(session, evaluation, update), encoding="utf-8")
        replace_folder(temporary, folder)
    accelerator.wait_for_everyone()


def model_card(session: Session, evaluation: Evaluation | None, update: int) -> str:
    """What it is, how it was trained, how good it is beside the best constant answer."""
    recipe = session.plan.recipe
    training = recipe.training
    lines = [
        "---",
        "library_name: transformers",
        f"pipeline_tag: {session.plan.recipe.task.pipeline_tag}",
        "---",
        f"# {recipe.name}",
        "",
        f"Fine-tuned from `{recipe.model.source}` on `{recipe.data.train}` by frugal-launcher: "
        f"{count(update, 'update')} of {count(training.batch_size, 'example')}, "
        f"learning rate {training.learning_rate:g}, schedule {training.schedule}, seed {training.seed}.",
        "",
        f"Strategies: {', '.join(strategy.key for strategy in session.plan.strategies) or 'none'}.",
    ]
    if evaluation is not None:
        lines += ["", f"| metric | this model | {evaluation.floor_name} |", "| --- | ---: | ---: |"]
        lines += [
            f"| {name} | {value:.4f} | {evaluation.floor[name]:.4f} |" for name, value in evaluation.metrics.items()
        ]
    lines += [
        "",
        "```python",
        "from transformers import pipeline",
        "",
        recipe.task.usage("PATH_OF_THIS_FOLDER"),
        "```",
        "",
    ]
    return "\n".join(lines)
