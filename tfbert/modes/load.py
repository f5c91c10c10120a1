"""A saved model as a function in Python: texts, sentences or questions -> answers, for a program or a notebook.

Loads a fine-tuned model as its directory describes it: task, labels, single texts or pairs, and longest input.

Training writes what transformers has no name for into `config.json` under `tfbert`, so it stays with the model.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import pathlib
import random
from collections.abc import Iterable, Iterator, Sized
from typing import Any, Literal, NoReturn, get_args

import keras
import numpy as np
import tensorflow as tf

from tfbert.bert.models import build_model
from tfbert.config.data import DataConfig, LongTexts
from tfbert.config.modes import ModelConfig, PredictConfig
from tfbert.config.run import Config
from tfbert.config.tasks import TaskOptions
from tfbert.config.types import STANDARD_STREAM, Recorded, field_types, shown
from tfbert.devices.process import log_if_slow
from tfbert.devices.runtime import check_backend, settings_kept, tell
from tfbert.errors import UsageError
from tfbert.model.files import OWN_FIELD, BertConfig, load_config, load_tokenizer, record_inputs, resolve_model
from tfbert.model.predictor import direct_predictor
from tfbert.private import check_not_forked
from tfbert.tasks.base import Task, check_finite
from tfbert.tasks.prediction import BEST, NAME, TrainedModel, check_whole
from tfbert.tasks.registry import entry_of, task_of_model
from tfbert.tasks.tables import as_trained
from tfbert.tasks.text_task import TextItems

log = logging.getLogger("tfbert")


def check_can(task: Task, what: str, mode: str) -> None:
    """Refuses a mode that does not exist for the model's task.

    Args:
        task: The model's task.
        what: What the registry has for the mode; empty if the task does not have it.
        mode: The mode.

    Raises:
        UsageError: for a model that was only pre-trained.
    """
    if not what:
        todo = "Fine-tune it first, or fill in words with tfbert.load(DIRECTORY)."
        raise UsageError(f"--mode={mode} is for models that were fine-tuned. Received: a model for {task.kind}. {todo}")


def _described(config: Config) -> tuple[pathlib.Path, BertConfig, dict[str, Any]]:
    """The directory of the model that a configuration names, its `config.json`, and what training wrote there."""
    directory = resolve_model(config.model)
    assert directory is not None  # Config refuses scratch models in these modes.
    saved = load_config(directory)
    return directory, saved, getattr(saved, OWN_FIELD, None) or {}


def saved_task(config: Config) -> Task:
    """The task of the model that a configuration names, without its weights.

    Raises:
        UsageError: for a directory that holds no fine-tuned model.
    """
    directory, saved, _ = _described(config)
    return task_of_model(saved, directory, config.task_options)


def as_saved(config: Config) -> Config:
    """The same configuration; where its user names no columns, those that its model was trained on, see `Recorded`."""
    data, has_input = config.data, config.data.uses_files or config.predict.input_file
    if not data.header or not (has_input or data.dataset not in ("", "demo")):
        return config
    _, _, trained = _described(config)
    columns = trained.get("columns", {}) | ({"label_column": ()} if config.mode == "predict" else {})
    choices = config.choosing.choice_columns or tuple(map(Recorded, columns.get("choice_columns", ())))
    return dataclasses.replace(config, data=as_trained(data, columns)).changed({"choice_columns": choices})


def load_trained_model(config: Config) -> TrainedModel:
    """Loads the model that a configuration names; call it in the strategy's scope.

    The longest input is the one asked for, else the one the model was trained with, else the task's default.

    Args:
        config: In a mode that uses a saved model.

    Raises:
        UsageError: for a directory that holds no fine-tuned model.
    """
    directory, saved, trained = _described(config)
    task = task_of_model(saved, directory, config.task_options)
    task.check_options(config)
    length, notes = _max_seq_length(config, trained, saved, task), []
    task = task.at_length(length, config.task_options, notes)
    tell(notes)
    tokenizer = load_tokenizer(config.model, directory, training_texts=())
    tokenizer = tokenizer.cutting(_long_texts(config, trained, directory))
    with log_if_slow("loading the weights"):
        classifier = build_model(
            config.model,
            directory,
            tokenizer=tokenizer,
            head=task.head(),
            max_seq_length=length,
            seed=config.runtime.seed,
            require_head=True,
        )
    num_texts, columns = trained.get("num_texts"), trained.get("columns", {})
    notes = task.notes() | tokenizer.notes()
    record_inputs(classifier.config, num_texts=num_texts, max_seq_length=length, columns=columns, **notes)
    return TrainedModel(
        name=config.model.model_name_or_path,
        classifier=classifier,
        tokenizer=tokenizer,
        task=task,
        num_texts=num_texts,
        max_seq_length=length,
        columns=columns,
    )


def _long_texts(config: Config, trained: dict[str, Any], directory: pathlib.Path) -> str:
    asked, own = config.data.long_texts, trained.get("long_texts") or "cut"
    known = get_args(LongTexts)
    if asked is None and own not in known:
        rule = f"A model's long_texts is one of {', '.join(known)}"
        received = f"{own!r:.80} in {directory / 'config.json'}"
        raise UsageError(f"{rule}. Received: {received}. Repair it, or pass --long_texts.")
    if asked not in (None, own):
        log.info("Of long texts is kept what long_texts=%s says, as asked; the model was trained with %s.", asked, own)
    return asked or own


def _max_seq_length(config: Config, trained: dict[str, Any], saved: BertConfig, task: Task) -> int:
    asked, own = config.data.max_seq_length, trained.get("max_seq_length")
    length = asked or own or min(task.default_max_seq_length, saved.num_positions)
    why = ", as in training" if own else ": the model does not say what it was trained with; pass max_seq_length"
    if asked:
        why = f", as asked; the model was trained with {own}" if own not in (None, asked) else ""
    # A guess is a warning, which Python shows without being told to.
    log.log(logging.INFO if asked or own else logging.WARNING, "Inputs are at most %d tokens long%s.", length, why)
    return length


def load(directory: str | os.PathLike[str], *, max_seq_length: int | None = None, **options: Any) -> LoadedModel:
    """Loads a fine-tuned model of any task, or a pre-trained one that fills in words, to call on texts.

    It computes in float32 on one device, a GPU if there is one. It changes nothing in the process: not the precision
    policy, the seeds, or the devices. A process may load several models, and train others.

    Another process, such as one of multiprocessing's "spawn", loads the model itself: it is not pickled. A forked
    process cannot call it, nor load one.

    Args:
        directory: A run's output directory, or that of another BERT from transformers with a task's head; or a model's
            name on the hub.
        max_seq_length: Longest input in tokens; longer texts are cut, or read in windows as in training;
            long sentences and contexts are split. None: as in
            training.
        **options: The part of `Config` with the options of the model's task, by its name there, such as
            `multi_label=MultiLabelConfig(label_threshold=0.3)`, `tagging=TaggingConfig(strict_entities=True)` or
            `answering=AnsweringConfig(max_answer_length=10)`.

    Returns:
        The model; see `LoadedModel.__call__` for what it takes and gives.

    Raises:
        UsageError: for a directory without such a model, an option that its task does not have, a call in the scope
            of a distribution strategy, or one in a process forked from one that had used TensorFlow.

    Examples:
        >>> classify = tfbert.load("runs/sst2")
        >>> classify("a bright film")
        {'label': '1', 'score': 0.998}
        >>> classify(table["review"], batch_size=64)  # A column of pandas: a list, in its order.
        [{'label': '1', 'score': 0.998}, {'label': '0', 'score': 0.971}, ...]
        >>> tfbert.load("runs/squad")({"question": "Who sang?", "context": "Ella sang."})
        {'score': 0.93, 'start': 0, 'end': 4, 'answer': 'Ella'}
        >>> tfbert.load("runs/bert")("Paris is the [MASK] of France.", top_k=1)
        [{'score': 0.97, 'token': 3007, 'token_str': 'capital', 'sequence': 'paris is the capital of france.'}]
    """
    check_not_forked()
    check_backend()
    if tf.distribute.has_strategy():
        received = f"a call in the scope of {type(tf.distribute.get_strategy()).__name__}"
        raise UsageError(f"A loaded model computes on one device. Received: {received}. Call it outside.")
    if not isinstance(directory, str | os.PathLike):
        rule = "A model is the path of a directory, or a name on the hub"
        raise UsageError(f"{rule}. Received: directory={shown(directory)}. Pass for example 'runs/mine'.")
    options = {name: part for name, part in options.items() if part is not None}
    kinds = {name: kind for name, kind in field_types(TaskOptions).items() if name in Config.classes()}
    for name, part in options.items():
        if not isinstance(part, kinds.get(name, ())):
            known = ", ".join(f"{name}={kind.__name__}(...)" for name, kind in kinds.items())
            rule = "load takes a directory, max_seq_length and the options of the model's task"
            raise UsageError(f"{rule}. Received: {name}={part!r:.60}. Pass one of {known}.")
        for field in dataclasses.fields(part):
            of_files = field.metadata["resume"] == "content" or field.metadata["modes"] == ("predict",)
            if of_files and getattr(part, field.name) != field.default:
                rule = f"{field.name} says how files are read or written, and a loaded model is called in Python"
                raise UsageError(f"{rule}. Received: {field.name}={getattr(part, field.name)!r}. Leave it out.")
    config = Config(
        mode="predict",
        model=ModelConfig(model_name_or_path=os.fspath(directory)),
        data=DataConfig(max_seq_length=max_seq_length),
        **options,
        predict=PredictConfig(input_file=STANDARD_STREAM),  # The mode needs one; nothing is read from it.
    )
    with settings_kept():
        keras.config.set_dtype_policy("float32")
        drawn = random.getstate()  # Keras draws a seed for each dropout.
        loaded = LoadedModel(load_trained_model(config))
        random.setstate(drawn)
        return loaded


class LoadedModel:
    """A fine-tuned model to call on texts; `load` makes one. It may be called from several threads.

    Args:
        model: The model, created under no strategy.

    Attributes:
        task: `classification`, `regression`, `multi_label_classification`, `token_classification`,
            `question_answering`, `multiple_choice` or `pretraining`.
        label_names: Name of each class or tag; empty where there are none.
        max_seq_length: Longest input in tokens.
    """

    def __init__(self, model: TrainedModel):
        self._model = model
        self._outputs = direct_predictor(
            model.logits, of_tokens=model.task.reads_tokens, input_names=model.task.input_names
        )
        self.task = model.task.name
        self.label_names = model.task.label_names
        self.max_seq_length = model.max_seq_length

    def __repr__(self) -> str:
        return f"LoadedModel({self._model.name!r}, {self._model.task.kind})"

    def __reduce__(self) -> NoReturn:
        rule = "A loaded model is not pickled"
        raise UsageError(f"{rule}. Received: {self!r}. Pass its directory, and call tfbert.load in the other process.")

    def __copy__(self) -> LoadedModel:
        return self  # Nothing changes it.

    def __deepcopy__(self, memo: dict[int, Any]) -> LoadedModel:
        return self

    def __call__(self, inputs: Any, *, top_k: int | None | Literal["best"] = BEST, batch_size: int = 32) -> Any:
        """Answers one input, or many. Keys are those of transformers' pipelines.

        Of every task but tagging and filling in words, an input may also be a row of a table as a dictionary: its
        columns are those that the model was trained on.

        Classification and regression: an input is a text; or a pair as `{"text": ..., "text_pair": ...}` or a tuple of
        two. The answer has `label` and `score`: a class and its probability, or `LABEL_0` and the predicted number.

        Multi-label classification: an input is likewise a text or a pair. The answer is a list of the labels above the
        model's threshold, the most probable first, maybe none, each with `label` and `score`, its probability.

        Token classification: an input is a text or a list of words. The answer is a list of the entities, each with
        `entity_group` (the type), `score` (the mean probability of its words' tags), `word`, `start` and `end`. For a
        text, `start` and `end` count characters, and `word` is the text between them. For a list of words they count
        words, and `word` is those words joined by blanks. Where tags are no entities, such as parts of speech, the
        answer is a list of all words, with the tag as `entity` in place of `entity_group`.

        Question answering: an input is `{"question": ..., "context": ...}`; other keys are ignored. The answer has
        `score` (its probability among the best ones), `start` and `end`, characters of the context, and `answer`, the
        text between them; if there is no answer, `answer` is empty, and `start` and `end` are 0.

        Multiple choice: an input is `{"context": ..., "question": ..., "choices": [...]}`; context or question may be
        left out; other keys are ignored. The answer has `index`, the best choice from 0, `choice`, its text, and
        `score`, its probability.

        A pre-trained model: an input is a text with `[MASK]` where words are to be filled in. The answer is a list of
        words, best first, each with `score` (its probability), `token` (its id), `token_str` and `sequence`, the text
        with the word; for a text with several `[MASK]`, a list of such lists.

        Args:
            inputs: One input gives one answer. Any iterable of inputs, such as a list, a generator, a column of pandas
                or an array of NumPy, gives a list of answers in the same order; a set, which has none, is refused. So
                the words of a single sentence go into a list of their own: `model([["Ella", "sang"]])`. Half a
                surrogate pair in a text is read as nothing, as bytes are that are not UTF-8 in a file to predict.
            top_k: For classification and regression, the answer lists the `top_k` best classes, best first; with None
                all classes; with `"best"` the best one, not in a list. Likewise the choices of multiple choice. For
                several labels a text likewise, but with `"best"` those above the threshold. For words to fill in, how
                many to give; `"best"` gives 5.
            batch_size: Rows that are computed at a time; inputs are sorted by length, some thousand at once.

        Raises:
            UsageError: for an input that the model does not take, naming it, before any input is computed; for an
                iterable without a length, when that input is reached; and in a forked process.
            RunError: for predictions that are not finite.
        """
        check_not_forked()
        check_whole("batch_size", batch_size)
        given = entry_of(self.task).items(self._model, top_k)
        is_one, found = given.is_one(inputs), []
        values = [("the input", inputs)] if is_one else ((f"{NAME}[{i}]", v) for i, v in enumerate(_many(inputs)))
        items = (given.item(value, where) for where, value in values)
        for chunk in given.chunks([*items] if is_one or isinstance(inputs, Sized) else items):
            encoded = given.encode(chunk)
            predictions = given.predictions(self._outputs(encoded, rows=batch_size), encoded)
            check_finite(given.scores(predictions), range(len(found), len(found) + len(chunk)), NAME)
            found += given.answers(chunk, predictions)
        return found[0] if is_one else found

    @property
    def classes_(self) -> np.ndarray:
        """`label_names` under scikit-learn's name: the columns of `predict_proba`."""
        return np.array(self.label_names, dtype=np.str_)

    def predict(self, texts: Iterable[Any], *, batch_size: int = 32) -> np.ndarray:
        """What scikit-learn's estimators give for many texts or pairs, which are those of `__call__`.

        Returns:
            `[n]`: labels, or numbers as float64. With several labels a text, `[n, labels]`: 1 for each label above the
            threshold, else 0, in the order of `classes_`.

        Raises:
            UsageError, RunError: as `__call__`; for one text, and for a model of another task.
        """
        answers = self._to_texts(texts, BEST, batch_size)
        if not self.label_names:
            return np.array([answer["score"] for answer in answers], np.float64)
        if any(isinstance(answer, list) for answer in answers):
            chosen = [{each["label"] for each in answer} for answer in answers]
            return np.array([[int(name in names) for name in self.label_names] for names in chosen])
        return np.array([answer["label"] for answer in answers], dtype=np.str_)

    def predict_proba(self, texts: Iterable[Any], *, batch_size: int = 32) -> np.ndarray:
        """The probability of each class, or label, as scikit-learn's classifiers give it: `[n, classes]`, float64, in
        the order of `classes_`, so `pandas.DataFrame(classify.predict_proba(texts), columns=classify.classes_)`.

        Raises:
            UsageError, RunError: as `predict`; for a model that predicts numbers.
        """
        if not self.label_names:
            rule = "Probabilities are of classes"
            raise UsageError(f"{rule}. Received: a model for {self._model.task.kind}. Call predict.")
        found = [{each["label"]: each["score"] for each in row} for row in self._to_texts(texts, None, batch_size)]
        return np.array([[row[name] for name in self.label_names] for row in found]).reshape(-1, len(self.label_names))

    def _to_texts(self, texts: Iterable[Any], top_k: int | None | Literal["best"], batch_size: int) -> list[Any]:
        """The answers to many texts."""
        given = entry_of(self.task).items(self._model, BEST)
        if not isinstance(given, TextItems):
            rule = "predict and predict_proba give labels or numbers of whole texts"
            todo = "Call the model itself: model(inputs)."
            raise UsageError(f"{rule}. Received: a model for {self._model.task.kind}. {todo}")
        if given.is_one(texts):
            raise UsageError(f"predict takes many texts. Received: {texts!r:.60}. Pass [text], or call model(text).")
        return self(texts, top_k=top_k, batch_size=batch_size)


def _many(inputs: Any) -> Iterator[Any]:
    """The inputs one after the other."""
    # Iterating over a table of pandas gives the names of its columns.
    is_table = getattr(inputs, "columns", None) is not None and getattr(inputs, "ndim", 0) == 2
    if not is_table and not isinstance(inputs, set | frozenset):
        with contextlib.suppress(TypeError):
            return iter(inputs)
    rule = "A model is called on an input, or on many in an order: a list, a column, rows as dictionaries"
    todo = 'Pass a text or a list; of a set sorted(inputs), of a table table["NAME"] or table.to_dict("records").'
    raise UsageError(f"{rule}. Received: {shown(inputs)}. {todo}")
