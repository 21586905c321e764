"""The recipe: what to train, on what, how; read strictly, with every problem at its line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
    model_validator,
)

from launcher.strategies import ALL, Strategy
from launcher.tasks import SequenceClassification
from launcher.units import parse_bytes

# transformers' names, less reduce_lr_on_plateau and greedy, which steer by a metric and not by the update's number.
Schedule = Literal[
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
    "cosine_with_min_lr",
    "cosine_warmup_with_min_lr",
    "warmup_stable_decay",
]
Scalar = str | int | float | bool | None


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Model(Section):
    """Which pretrained model."""

    source: str = Field(
        min_length=1, description="Hub id, local folder, or package://NAME/path in an installed package"
    )
    revision: str | None = Field(default=None, description="Branch, tag or commit of a Hub id")
    trust_remote_code: bool = Field(default=False, description="Run Python code that comes with the model")
    config: dict[str, Scalar] = Field(default={}, description="Changes to the model's config, such as a dropout rate")


class Validation(Section):
    """Where the validation examples come from: one of the three."""

    share: float | None = Field(default=None, gt=0, lt=1, description="Share of the training data, drawn with the seed")
    file: str | None = Field(default=None, description="A file or folder of its own")
    split: str | None = Field(default=None, description="A split of the same source")

    @model_validator(mode="after")
    def _one_of_three(self) -> Self:
        if sum(value is not None for value in (self.share, self.file, self.split)) != 1:
            raise ValueError("state one of share, file and split")
        return self


class Data(Section):
    """Where the examples lie and what their columns are called."""

    train: str = Field(min_length=1, description="File, folder, Hub id, or package://NAME/path")
    validation: Validation | None = Field(default=None, description="Without it nothing is evaluated")
    columns: dict[str, str] = Field(default={}, description="The task's word for a column: the data's name of it")
    subset: str | None = Field(default=None, description="Configuration of a Hub data set")
    split: str = Field(default="train", description="Split of a Hub data set to train on")
    max_rows: int | None = Field(default=None, ge=2, description="Train on so many rows, drawn with the seed")
    encoding: str = Field(default="utf-8", description="Of text files")
    encoding_errors: Literal["strict", "replace"] = Field(
        default="strict", description="strict: stop at a byte that is not in the encoding; replace: put a mark there"
    )


class Training(Section):
    """What is learned from, and how fast. Nothing else in the recipe changes an update."""

    batch_size: int = Field(ge=1, description="Examples per update, over all processes")
    epochs: float | None = Field(default=None, gt=0, description="Passes over the training data")
    updates: int | None = Field(default=None, ge=1, description="Optimizer steps, instead of epochs")
    learning_rate: float = Field(gt=0, lt=10, description="Highest learning rate of the schedule")
    schedule: Schedule = Field(default="linear", description="transformers' name of the learning rate schedule")
    schedule_options: dict[str, Scalar] = Field(default={}, description="What that schedule takes besides")
    warmup: float = Field(default=0.0, ge=0, description="Below 1: share of all updates; from 1 on: number of updates")
    weight_decay: float = Field(default=0.0, ge=0, lt=1, description="Not applied to biases and norms")
    max_grad_norm: float | None = Field(default=1.0, gt=0, description="Clip the gradient's norm; null: do not clip")
    seed: int = Field(default=0, ge=0, lt=2**31, description="Of the split, the order, new weights and dropout")
    evaluate_every: int | None = Field(default=None, ge=1, description="Updates; absent: after every epoch")
    keep_best: str | None = Field(default=None, description="Keep the weights of the best evaluation by this metric")

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.epochs is None) == (self.updates is None):
            raise ValueError("state one of epochs and updates")
        return self


def _size(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and value <= 0:
        raise ValueError(f"{value} is not a memory size above zero")
    return parse_bytes(value) if isinstance(value, str) and value != "auto" else value


# Strategies that change what is learned, and that a plan can set by itself.
PERMISSIONS = tuple(cls.key for cls in ALL if cls.cost == "changes_training")
if TYPE_CHECKING:
    Permission = str
else:
    Permission = Literal[PERMISSIONS]


class Memory(Section):
    """How much of a card the run may take."""

    budget: Annotated[int | Literal["auto"] | None, BeforeValidator(_size, json_schema_input_type=str | int)] = Field(
        default=None, description="Such as 4GB: the run is planned to stay below; auto: what the device has free"
    )
    allow: tuple[Permission, ...] = Field(
        default=(), strict=False, description="What the plan may change of the training to stay below"
    )


class Output(Section):
    """Where results go."""

    folder: str = Field(default="runs", min_length=1, description="Each run gets a folder of its own in here")


class Strategies(Section):
    """One optional field per strategy: settings or true switch it on, false keeps the launcher from choosing it."""

    def get(self, key: str) -> Strategy | None:
        """The strategy as the recipe states it; None where it is absent or switched off."""
        value = getattr(self, key)
        return value if isinstance(value, Strategy) else None

    def chosen(self) -> tuple[Strategy, ...]:
        """What the recipe switches on, in the order of ALL."""
        return tuple(strategy for cls in ALL if (strategy := self.get(cls.key)) is not None)

    def is_open(self, key: str) -> bool:
        """Whether the recipe leaves the choice to the launcher."""
        return getattr(self, key) is None


def _switch(value: object, validate: ValidatorFunctionWrapHandler) -> object:
    if value is False:
        return False
    if value is None:
        raise ValueError("is empty; write true, or its settings")
    return validate({} if value is True else value)


def _plain(value: object) -> object:
    return value.model_dump(mode="json", exclude_none=True) if isinstance(value, BaseModel) else value


def _strategy_field(cls: type[Strategy]) -> Any:
    """Settings, true, false or absent."""
    switch = WrapValidator(_switch, json_schema_input_type=cls | bool)
    return Annotated[cls | None, switch, PlainSerializer(_plain)], Field(default=None, description=cls.summary)


if TYPE_CHECKING:
    RecipeStrategies = Strategies
else:
    RecipeStrategies = create_model(
        "Strategies", __base__=Strategies, __module__=__name__, **{cls.key: _strategy_field(cls) for cls in ALL}
    )


class Recipe(Section):
    """Everything that decides a run. The same recipe gives the same training on any number of processes."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100, description="Names the run's folder")
    model: Model = Field(description="Which pretrained model")
    task: SequenceClassification = Field(description="What the model learns to do")
    data: Data = Field(description="Where the examples lie and what their columns are called")
    training: Training = Field(description="What is learned from, and how fast")
    strategies: RecipeStrategies = Field(default_factory=RecipeStrategies)
    memory: Memory = Field(default_factory=Memory)
    output: Output = Field(default_factory=Output)

    # Where relative paths start: the recipe's folder, so that a recipe works from anywhere.
    _base: Path = PrivateAttr(default_factory=Path.cwd)

    @property
    def base(self) -> Path:
        return self._base

    def with_base(self, base: Path) -> Self:
        self._base = base
        return self
