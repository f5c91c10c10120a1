"""What happens beside the updates, counted in true steps: numbers logged, best weights, early stopping, saving;
what the banner says before them; and the results, each speed over the time it is said to be over."""

import contextlib
import dataclasses
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.clocks import Clock, Log, a_model, progress_over, schedule, update
from tests.support.models import strategy_of
from tfbert import Config, DataConfig, OutputConfig, Preempted, RunError, RuntimeConfig, TrainingConfig
from tfbert.model.files import BertConfig
from tfbert.output.logs import Reports
from tfbert.tasks.base import eval_prefix
from tfbert.tasks.classification.classification import Classification
from tfbert.train import fit
from tfbert.train.checkpoint import RunState
from tfbert.train.fit import Evaluate, Save, banner, check_finite, check_trained, make_updates, train_results
from tfbert.train.resume import Identity

SMALL = BertConfig(num_hidden_layers=2, hidden_size=8, num_attention_heads=1, intermediate_size=16, num_labels=2)


def test_progress_logs_means_since_the_last_line_and_speed_without_pauses(logged):
    log, clock, model = Log(), Clock(), a_model()
    progress, make_update = progress_over(log, clock, model)
    updates = [(8, 1.0, 1), (2, 3.0, 0), (1, 2.0, 0.5), (1, np.inf, 0), (2, 4.0, 0.25), (2, 5.0, 0.75)]
    for step, (seconds, loss, waited) in enumerate(updates, start=1):
        make_update(step, seconds, loss, waited, evaluated=100 if step == 5 else 0)
    assert [(step, kind) for step, kind, _ in log.records] == [(2, "train"), (4, "train"), (6, "train")]
    records = [numbers for _, _, numbers in log.records]
    assert [r["loss"] for r in records] == [2.0, 2.0, 4.5], "a step that was skipped has no loss"
    assert [r["skipped_steps"] for r in records] == [0, 1, 1]
    assert [r["examples_per_second"] for r in records] == [1.6, 8.0, 4.0]
    assert [r["tokens_per_second"] for r in records] == [8.0, 40.0, 20.0]
    assert [r["data_wait_share"] for r in records] == [0.1, 0.25, 0.25]
    assert progress.data_wait_share == 1.5 / 6, "the first stretch holds the compilation"
    assert progress.steps.steady.examples_per_second == pytest.approx(32 / 6)
    # The rate of the last update of each stretch: 1-based updates 2, 4, 6 of a rise over 2 and a fall over 10.
    np.testing.assert_allclose([r["learning_rate"] for r in records], [2 / 3, 0.9, 0.7], rtol=1e-6)
    assert [r["epoch"] for r in records] == [0.3333, 0.6667, 1.0]
    assert "grad_norm" not in records[1], "JSON has no infinity"
    assert logged() == ["1 of the last 2 steps skipped: gradients not finite"]
    assert log.said[0].endswith("0:20 left"), "10 updates like the second: the first one compiled"
    assert "step 6/12  epoch 1.00  loss 4.5000" in log.said[-1] and log.said[-1].endswith("0:09 left")


def test_a_terminal_hears_of_the_first_update(monkeypatch):
    """The next report may be minutes away."""
    for watched in (True, False):
        monkeypatch.setattr(fit, "is_watched", lambda watched=watched: watched)
        log = Log()
        _, make_update = progress_over(log, Clock(), a_model(), schedule=schedule(first=6))
        for step in (7, 8, 9):
            make_update(step, seconds=8)
        assert log.said[:-1] == ["first update after 8.0 s"] * watched and log.said[-1].startswith("step 8/12")


def test_a_device_that_computes_while_python_goes_on_is_timed_itself(monkeypatch):
    """Updates take it 0.1 s; the host hands one over in 0.01 s, and reads a counter when it logs and evaluates."""
    clock, model = Clock(), a_model()
    done = [clock.now]

    def wait_for(number):
        clock.now = max(clock.now, done[number])
        return np.float32(0)

    class Counter:
        numpy = staticmethod(lambda: wait_for(-1))

    model.counters.finite_steps = Counter
    monkeypatch.setattr(fit.time, "perf_counter", clock)
    progress, _ = progress_over(Log(), clock, model)

    def handed_over():
        clock.now += 0.01
        done.append(max(done[-1], clock.now) + 0.1)
        number = len(done) - 1
        return types.SimpleNamespace(numpy=lambda: wait_for(number))

    def evaluate(step):
        if step in (6, 9):
            with progress.paused():  # The update at hand is no pause.
                clock.now += 50

    make_updates(model, handed_over, range(1, 13), [progress.on_step, evaluate])
    steps = progress.steps
    assert steps.percentile(50) == pytest.approx(0.1, rel=0.15)
    assert steps.percentile(95) == pytest.approx(0.1, rel=0.15)
    assert steps.total.seconds == pytest.approx(1.1, rel=0.1), "all but the last update, which still runs"


def test_the_first_loss_after_a_checkpoint_is_that_of_a_run_that_was_not_stopped():
    log, model = Log(), a_model()
    for loss in (7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 3.0):
        update(model, loss)
    logged = {"loss_sum": 42.0, "finite_steps": 6, "skipped_steps": 0}
    resumed = RunState(step=7, best={}, best_step=0, without_better=0, identity={}, logged=logged)
    progress, make_update = progress_over(log, Clock(), model, schedule=schedule(first=7), resumed=resumed)
    make_update(8, seconds=1)
    assert [(step, numbers["loss"]) for step, _, numbers in log.records] == [(8, 2.0)]
    assert progress.logged == {"loss_sum": 46.0, "finite_steps": 8, "skipped_steps": 0}


def test_the_updates_asked_for_are_profiled_and_no_profiler_is_left(monkeypatch, tmp_path):
    """A real one: test_finetune.py."""
    said = []
    monkeypatch.setattr(fit.tf.profiler.experimental, "start", lambda path: said.append("start"))
    monkeypatch.setattr(fit.tf.profiler.experimental, "stop", lambda: said.append("stop"))

    def made(first, last, asked=(3, 4)):
        said.clear()
        steps = fit.profiled(range(first, 7), asked, tmp_path, contextlib.nullcontext)
        for step in steps:
            said.append(step)
            if step == last:
                break
        steps.close()
        return said

    assert made(1, 6) == [1, 2, "start", 3, 4, "stop", 5, 6]
    assert made(1, 3) == [1, 2, "start", 3, "stop"]
    assert made(4, 6) == made(4, 6, asked=(0, 0)) == [4, 5, 6]


def metrics_of(score, prefix, metric):
    """The metrics of an evaluation: of the metric that decides, or of several by name."""
    return {f"{prefix}{name}": value for name, value in (score if isinstance(score, dict) else {metric: score}).items()}


def evaluation(monkeypatch, scores, metric="accuracy", patience=0, name="validation", **options):
    """An Evaluate whose evaluations give these scores, and what it did."""
    log, model, saved = Log(), a_model(), []
    scores = iter(scores)
    scored = types.SimpleNamespace(
        metrics=lambda *arrays, prefix, way_out: metrics_of(next(scores), f"{prefix}_", metric),
        predict=lambda predictor, encoded, name: predictor.outputs(encoded),
        tuned=lambda predictions, examples, metric: scored,
        remarks=lambda predictions, examples: [],
        metrics_line=lambda found, decisive: "  ".join(f"{name} {value:.4f}" for name, value in found.items()),
    )
    monkeypatch.setattr(Evaluate, "_speeds", lambda self, seconds: {})
    counter = iter(range(1, 100))
    monkeypatch.setattr(fit, "get_trained", lambda model: {"w": np.array([next(counter)])})
    run = types.SimpleNamespace(
        model=model,
        predictor=types.SimpleNamespace(outputs=lambda examples: np.zeros((1, 2)), reset_clock=lambda: None),
        classifier=None,
        schedule=schedule(total=24, **options),
        config=Config(training=TrainingConfig(early_stopping_patience=patience)),
        data=types.SimpleNamespace(task=scored, validation={name: types.SimpleNamespace(labels=None, name="a.tsv")}),
        encode=lambda examples: examples,
        metric=metric,
        checkpoints=types.SimpleNamespace(save_best=lambda tensors, step: saved.append((step, int(tensors["w"][0])))),
    )
    at_the_end = []
    progress = types.SimpleNamespace(paused=contextlib.nullcontext, log=at_the_end.append, logged=at_the_end)
    part = Evaluate(run, log, progress)
    for step in range(1, 25):
        if not model.stop_training:
            part.on_step(step)
    return part, log, saved


def test_the_best_weights_are_kept_and_written_once_each(monkeypatch):
    part, log, saved = evaluation(monkeypatch, [0.5, 0.8, 0.7, 0.6, 0.9, 0.1])
    assert saved == [(4, 1), (8, 2), (20, 3)]
    assert (part.best_step, part.best, part.best_weights["w"][0]) == (20, {"eval_accuracy": 0.9}, 3)
    assert [step for step, _, _ in log.records] == [4, 8, 12, 16, 20, 24]


def scored(metric, *pairs, loss="loss"):
    """Evaluations with a metric and a loss."""
    return [{metric: score, loss: value} for score, value in pairs]


SATURATED = scored("accuracy", (0.9, 0.1), (1.0, 0.28), (1.0, 0.3), (1.0, 0.02), (1.0, 0.02), (0.9, 0.001))
ALL_ZERO = scored("f1", (0.0, 0.9), (0.0, 0.8), (0.0, 0.85), (0.0, 0.9), (0.0, 0.7), (0.0, 0.75))
ERRORS = scored("mse", (0.5, 0.5), (0.5, 0.5), (0.4, 0.4), (0.4, 0.4), (0.4, 0.4), (0.6, 0.6))
ANSWERS = scored("f1", (0, 0), (0, 0), (70, 60), (70, 61), (70, 61), (70, 59), loss="exact_match")
OF_PAIRS = scored("masked_accuracy", (0.1, 3), (0.2, 2), (0.2, 1.5), (0.2, 1.6), (0.2, 1.7), (0.1, 1))


TIES = [
    ("accuracy", SATURATED, 16, 2),
    ("f1", ALL_ZERO, 20, 1),
    ("mse", ERRORS, 12, 3),
    ("loss", scored("accuracy", (0.5, 0.4), (0.9, 0.4), (0.9, 0.5), (1, 0.6), (1, 0.6), (1, 0.6)), 4, 5),
    ("masked_accuracy", OF_PAIRS, 12, 3),
    ("f1", ANSWERS, 20, 2),  # No loss: the exact match decides, then the longer training.
    ("f1", ANSWERS[:1] * 6, 24, 5),  # Which is no improvement, and ends a run that is patient.
]


@pytest.mark.parametrize("metric, scores, at, without", TIES)
def test_a_tie_falls_to_the_lower_loss(monkeypatch, logged, metric, scores, at, without):
    part, _, saved = evaluation(monkeypatch, scores, metric=metric)
    assert (part.best_step, part.without_better) == (at, without)
    assert part.best == metrics_of(scores[at // 4 - 1], "eval_", metric)
    assert saved[-1][0] == at
    assert sum("(best" in line for line in logged()) == len(saved)


def test_a_tie_with_a_lower_loss_is_named_and_counts_for_patience(monkeypatch, logged):
    falling = scored("accuracy", (0.9, 0.5), (0.9, 0.4), (0.9, 0.3), (0.9, 0.31), (0.9, 0.32), (1.0, 0.1))
    part, log, _ = evaluation(monkeypatch, falling, patience=2)
    assert (part.best_step, [step for step, _, _ in log.records]) == (12, [4, 8, 12, 16, 20])
    assert not part._progress.logged, "it is due by itself"
    lines = logged()
    assert lines[0].endswith("eval_loss 0.5000  (best)")
    assert lines[1].endswith("eval_loss 0.4000  (best: eval_loss decides among equals)")
    assert lines[-1].startswith("stopped early: eval_accuracy has not improved on 0.9000 (step 12) in 2")


def test_the_last_update_is_logged_where_a_run_stops_early(monkeypatch):
    part, _, _ = evaluation(monkeypatch, [0.9] * 6, patience=2, logging_steps=50)
    assert (part._progress.logged, part._run.model.stop_training) == ([12], True)


def test_a_tie_across_a_resumed_run_falls_to_the_lower_loss(monkeypatch):
    """A checkpoint holds all metrics of the best evaluation, its loss too."""
    part, _, _ = evaluation(monkeypatch, scored("accuracy", *[(0.1, 1.0)] * 6))
    part._run.checkpoints.read_best = lambda step: {"w": np.zeros(1)}
    for loss, best_step in ((0.1, 40), (0.3, 32)):
        best = {"eval_accuracy": 1.0, "eval_loss": 0.2}
        part.restore(RunState(step=36, best=best, best_step=32, without_better=1, identity={}))
        part._task.metrics = lambda *arrays, prefix, way_out, loss=loss: {"eval_accuracy": 1.0, "eval_loss": loss}
        part._evaluate(40)
        assert (part.best_step, part.without_better) == (best_step, 0 if best_step == 40 else 2)


@pytest.mark.parametrize("name, prefix", [("validation_matched", "eval_matched"), ("test", "eval")])
def test_the_first_set_of_two_decides_a_tie(monkeypatch, name, prefix):
    assert eval_prefix(name) == prefix
    scores = scored("accuracy", (0.5, 0.3), (0.5, 0.2), (0.5, 0.4))
    part, _, _ = evaluation(monkeypatch, scores, eval_steps=10, name=name)
    assert (part.decisive, part.best_step) == (f"{prefix}_accuracy", 20)


def test_speeds_of_an_evaluation_count_every_batch():
    examples = types.SimpleNamespace(lengths=np.array([3, 5, 4]))
    # Of ten batches, only the last ones are remembered each.
    predictor = types.SimpleNamespace(seconds=10.0, waiting_seconds=2.5, batch_seconds=[1.0, 2.0, 3.0])
    run = types.SimpleNamespace(
        classifier=types.SimpleNamespace(config=SMALL),
        predictor=predictor,
        config=Config().resolved(),
        data=types.SimpleNamespace(task=Classification(("0", "1")), validation={"validation": examples}),
        encode=lambda examples: examples,
        metric="accuracy",
    )
    speeds = Evaluate(run, Log(), None)._speeds(12.0)
    assert (speeds["eval_samples_per_second"], speeds["eval_tokens_per_second"]) == (0.3, 1.2)
    assert (speeds["eval_data_wait_share"], speeds["eval_batch_seconds_p50"]) == (0.25, 2.0)


def updated(*finite, limit, logging_steps=1):
    """A run whose updates were finite or not, each looked at."""
    config = Config(training=TrainingConfig(max_skipped_steps=limit))
    run = types.SimpleNamespace(model=a_model(), schedule=schedule(logging_steps=logging_steps), config=config)
    for step, is_finite in enumerate(finite, start=1):
        update(run.model, 1.0, finite=is_finite)
        if run.schedule.is_due(step, logging_steps):
            check_finite(run, step)
    return run


def test_a_run_that_stays_non_finite_ends():
    finite = [False, False, True, False, False]
    updated(*finite, limit=3)
    with pytest.raises(RunError, match="last 3 updates up to step 6 were skipped"):
        updated(*finite, False, limit=3)


def test_a_run_without_one_finite_update_fails_however_short():
    check_trained(updated(*[False] * 3, True, *[False] * 8, limit=20, logging_steps=50))
    with pytest.raises(RunError, match="Received: none that are, in 12 updates"):
        check_trained(updated(*[False] * 12, limit=20, logging_steps=50))


def test_a_few_updates_may_all_go_into_finding_the_loss_scale(caplog):
    """As trying a command out with --max_steps=2 --mixed_precision may."""
    run = updated(False, False, limit=20, logging_steps=50)
    run.model.optimizer = keras.optimizers.LossScaleOptimizer(run.model.optimizer)
    check_trained(run)
    assert "nothing was trained: 2 updates" in caplog.text


def saving(every, stops=(), has_peers=False):
    """The steps saved at, and whether the run was stopped."""
    states, asked = [], []
    run = types.SimpleNamespace(
        model=a_model(),
        schedule=schedule(),
        checkpoints=types.SimpleNamespace(save=lambda model, state: states.append(state) or 0, directory="checkpoints"),
        config=Config(output=OutputConfig(output_dir="out", save_steps=every)),
        directory="out",
        identity=Identity(settings={}, choices={}, facts={"task": "classification"}),
        consensus=types.SimpleNamespace(any=lambda opinion: opinion, has_peers=has_peers),
    )
    progress = types.SimpleNamespace(paused=contextlib.nullcontext, logged={"loss_sum": 0.5})
    evaluation = types.SimpleNamespace(state=lambda: {"best": {"eval_loss": 1.0}, "best_step": 2, "without_better": 3})

    class Stop:
        is_set = property(lambda self: asked.append(step) or step in stops)

    part = Save(run, progress, evaluation, Stop(), Reports())
    for step in range(1, 13):
        try:
            part.on_step(step)
        except Preempted as stopped:
            return states, asked, str(stopped)
    return states, asked, ""


def test_checkpoints_come_on_schedule_but_not_at_the_end():
    states, asked, stopped = saving(every=4)
    assert [state.step for state in states] == [4, 8] and not stopped
    identity = {"settings": {}, "choices": {}, "facts": {"task": "classification"}, "until_step": {}, "contents": {}}
    expected = RunState(step=4, best={"eval_loss": 1.0}, best_step=2, without_better=3, identity=identity)
    assert states[0] == dataclasses.replace(expected, logged={"loss_sum": 0.5})
    assert asked == list(range(1, 12))


def test_a_run_that_is_asked_to_stop_saves_first():
    states, _, stopped = saving(every=0, stops=[7])
    assert [state.step for state in states] == [7]
    assert stopped == "stopped after step 7 of 12; checkpoint saved; the same command resumes in out"


def test_workers_look_at_each_other_only_so_often():
    states, asked, stopped = saving(every=4, stops=[5, 6, 7, 8, 9, 10], has_peers=True)
    assert asked == [5] and [state.step for state in states] == [4, 5] and "step 5" in stopped


def test_speeds_with_warm_up_leave_out_evaluation():
    model = a_model()
    progress, make_update = progress_over(Log(), Clock(), model)
    for step, seconds in enumerate([6, 2, 1, 1], start=1):
        make_update(step, seconds, evaluated=40 if step == 3 else 0)
    model.optimizer.iterations.assign(4)
    model.all_reduce_dtype = "bfloat16"
    model.trainable_variables = [tf.Variable(np.zeros(shape)) for shape in ([3, 4], [5])]
    run = types.SimpleNamespace(
        model=model,
        schedule=schedule(),
        classifier=types.SimpleNamespace(config=SMALL, lora=None, num_parameters=lambda **only: 17 + 3 * (not only)),
        strategy=types.SimpleNamespace(num_replicas_in_sync=1),
        data=types.SimpleNamespace(task=Classification(("0", "1"))),
    )
    results = train_results(run, progress, 50.0)
    assert results["train_examples_per_second_with_warmup"] == pytest.approx(4 * 8 / 10)
    assert results["train_examples_per_second_steady"] == pytest.approx(2 * 8 / 2)
    assert results["train_samples_per_second"] == pytest.approx(4 * 8 / 50)
    assert results["gradient_bytes"] == 2 * (3 * 4 + 5), "as they are summed, whatever the weights are"
    assert (results["trained_parameters"], results["parameters"]) == (17, 20)
    run.classifier.lora = "some"
    of_frozen = train_results(run, progress, 50.0)["train_model_gflops_per_second"]
    assert of_frozen == pytest.approx(results["train_model_gflops_per_second"] * 2 / 3, abs=0.01)


class Encoded(types.SimpleNamespace):
    may_be_cut = True

    def __len__(self):
        return len(self.lengths)


@pytest.mark.parametrize("longest, has_validation", [(9, True), (16, False)])
def test_the_banner_says_nothing_that_says_nothing(longest, has_validation, monkeypatch):
    data = types.SimpleNamespace(notes=(), train=[1, 2, 3], task=Classification(("0", "1")), test=None)
    data.validation = {"validation": [1, 2]} if has_validation else {}
    run = types.SimpleNamespace(
        config=Config(data=DataConfig(max_seq_length=16), training=TrainingConfig(global_batch_size=8)).resolved(),
        data=data,
        schedule=types.SimpleNamespace(first_step=0, total_steps=6, warmup_steps=1, steps_per_epoch=2, eval_steps=2),
        directory="out",
        train=Encoded(lengths=np.array([3, 5, longest])),
        strategy=strategy_of(1),
        batches=types.SimpleNamespace(description="few"),
        classifier=types.SimpleNamespace(num_parameters=lambda: 1),
        head_start="",
        resumed=None,
    )
    text = "\n".join(banner(run))
    assert ("evaluation every 2" in text) == has_validation == ("nothing to evaluate on" not in text)
    assert ("1 text fills all 16 and may be cut" in text) == (longest == 16) == ("may be cut" in text)
    assert "above the number of examples" in text
    run.schedule.eval_steps = 47
    assert (", evaluation at the end" in "\n".join(banner(run))) == has_validation
    assert "no checkpoint before the end (save_steps=500): a killed run begins at step 0 again" in text
    run.config = dataclasses.replace(run.config, output=OutputConfig(output_dir="out", save_steps=5)).resolved()
    assert "no checkpoint" not in "\n".join(banner(run))
    run.schedule.first_step = 5
    assert "a killed run begins at step 5 again" in "\n".join(banner(run))
    config = dataclasses.replace(run.config, runtime=RuntimeConfig(all_reduce_dtype="bfloat16"))
    run.config = config.resolved()
    assert "on CPU, no gradients to sum in bfloat16: one replica" in "\n".join(banner(run))
    run.config = dataclasses.replace(config, runtime=RuntimeConfig(xla=True)).resolved()
    assert not any("--xla" in line for line in banner(run)), "there is no GPU"
    with monkeypatch.context() as patch:
        patch.setattr("tensorflow.config.list_logical_devices", lambda kind: [kind])
        for steps, is_said in ((504, True), (505, False)):
            run.schedule.total_steps = steps
            said = "warning: --xla compiles each width of batches for 12 s or more, which 499 updates hardly"
            assert any(line.startswith(said) for line in banner(run)) == is_said
    run.config = config.resolved()
    run.strategy = strategy_of(2)
    assert "(logical devices that share its cores), gradients summed in bfloat16" in "\n".join(banner(run))
