"""The last act of a run: the weights that are kept, how well they do, and every file that reports it."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

import keras

from tfbert import __version__
from tfbert.devices.strategy import describe
from tfbert.model.bert_config import record_inputs
from tfbert.model.load import save_pretrained
from tfbert.model.weights import set_weights_dict
from tfbert.output import output_dir
from tfbert.output.reports import Reports
from tfbert.report.model_card import model_card
from tfbert.report.pages import report_at_end
from tfbert.tasks.base import TRAINING_WAY_OUT
from tfbert.train.build import Run
from tfbert.train.checkpoint import tidy
from tfbert.train.fit import Trained
from tfbert.train.identity import data_facts
from tfbert.train.summary import summary, train_results

if TYPE_CHECKING:
    from tfbert.model.configuration import BertConfig

log = logging.getLogger("tfbert")


def finish(run: Run, trained: Trained, reports: Reports) -> dict[str, float]:
    """Writes model, card, report and results; every worker must call.

    Args:
        run: The run.
        trained: What it was trained to.
        reports: Told of the results, on the chief.

    Returns:
        What `all_results.json` holds.

    Raises:
        RunError: where something cannot be written, or the kept weights' predictions are not finite.
    """
    config, data, evaluation = run.config, run.data, trained.evaluation
    results = train_results(run, trained.progress, trained.seconds) | trained.cpu.named("train")
    if config.output.keep_optimizer:
        trained.saving.save_last()
    if evaluation is not None:
        set_weights_dict(run.classifier, evaluation.best_weights)
        results |= evaluation.best | {"best_step": evaluation.best_step}
    if run.chief:
        # Before anything else can fail: a worker lost in the evaluation below must not cost the model.
        save_pretrained(run.classifier, run.tokenizer, run.directory)

    kept = None
    if evaluation is not None:
        kept, data = evaluation.kept_predictions(), dataclasses.replace(data, task=evaluation.kept_task())
    if data.task.notes() != run.data.task.notes():
        recorded = {"num_texts": data.train.num_texts, "columns": data.columns, **data.task.notes()}
        recorded |= run.tokenizer.notes()
        record_inputs(run.classifier.config, max_seq_length=config.data.max_seq_length, **recorded)
        if run.chief:
            save_pretrained(run.classifier, run.tokenizer, run.directory)
    if data.test is not None:
        found = data.task.predict(trained.predictor, run.encode(data.test))
        results |= data.task.metrics(found, data.test, prefix="test", way_out=TRAINING_WAY_OUT)
    results |= trained.saving.costs()
    lines = summary(results, run.directory, data.task, evaluation.decisive if evaluation else "")
    if run.chief:
        card = model_card(
            config, data, results, version=__version__, directory=run.directory, head_start=run.head_start
        )
        output_dir.write_text(run.directory / output_dir.CARD, card)
        facts = {
            "devices": describe(run.strategy),
            "precision": keras.config.dtype_policy().name,
            "parameters": run.classifier.num_parameters(),
            "dropout": _dropout(run.classifier.config),
            "decisive_metric": evaluation.decisive if evaluation else None,
            "data": data_facts(run.identity),
        }
        report_at_end(run.directory, facts, data, kept, results)
        reports.finishing(results)
        # Last: a run with results is one that is finished.
        output_dir.write_json(run.directory / output_dir.RESULTS, results)
        lines += tidy(run.directory, keep=config.output.save_total_limit, keep_state=config.output.keep_optimizer)
    for line in lines:
        log.info("%s", line)
    return results


def _dropout(bert_config: BertConfig) -> float:
    """The model's largest rate of dropout."""
    rates = bert_config.hidden_dropout_prob, bert_config.attention_probs_dropout_prob, bert_config.classifier_dropout
    return max(rate for rate in rates if rate is not None)
