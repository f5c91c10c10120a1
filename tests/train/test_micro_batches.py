"""`--gradient_accumulation_steps=auto`: the largest micro-batch that fits, found without a trace, and kept."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.support.batches import BATCH, make_examples
from tests.support.models import strategy_of, tiny_bert
from tests.support.processes import output_of
from tests.support.runs import assert_same_bits, limit_memory, make_config, stop_at, weights
from tests.support.splits import ROOT, launched
from tests.support.updates import build as build_model
from tfbert import Config
from tfbert.batches.schedule import plan_run, training_batches
from tfbert.devices.workers import Consensus
from tfbert.errors import Preempted, RunError, UsageError
from tfbert.model.forward import forward
from tfbert.step.keras3.finetuner import FineTuner
from tfbert.train import build
from tfbert.train.build import find_accumulation
from tfbert.train.checkpoint import _training_variables
from tfbert.train.resume import decide
from tfbert.train.run import finetune

SLOW = pytest.mark.slow


def setting(replicas=1, batching="length_grouped", xla=False, count=37):
    """A model, and the arguments that `find_accumulation` needs besides."""
    examples, strategy = make_examples(count), strategy_of(replicas)
    config = Config().changed({"batching": batching, "max_seq_length": 40, "global_batch_size": BATCH, "xla": xla})
    config = config.accumulating("auto").resolved()
    options = {"jit_compile": xla, "forward": forward, "max_grad_norm": 1.0}
    model = build_model(lambda: tiny_bert(dropout=0.1, num_hidden_layers=1), replicas=replicas, **options)
    with strategy.scope():
        model.create_variables()
    return model, (Consensus(strategy), config, examples, plan_run(config, len(examples)))


def state(model):
    return [v.numpy().copy() for v in (*model.model.variables, *_training_variables(model).values())]


FITTING = [(2, 2, 2), (1, 3, 4), (1, 8, 1), (1, 7, 2), (2, 1, 4)]
FITTING = [(1, 4, 2), *(pytest.param(*case, marks=SLOW) for case in FITTING)]


@pytest.mark.parametrize("replicas, room, expected", FITTING)
def test_the_largest_micro_batch_that_fits_is_found_without_a_trace(monkeypatch, logged, replicas, room, expected):
    model, arguments = setting(replicas)
    longest, tries = int(arguments[2].tokens.lengths.max()), []
    before = state(model)
    limit_memory(monkeypatch, room * longest, tries)
    assert find_accumulation(model, *arguments) == expected
    tf.nest.map_structure(np.testing.assert_array_equal, state(model), before)
    assert model.gradient_accumulation_steps == expected
    share = BATCH // replicas
    assert set(tries) == {(share // n, longest) for n in (1, 2, 4, 8) if n <= expected}
    lines = [line for line in logged() if not line.endswith(" ...")]  # What takes long on a busy machine is named.
    assert lines == [f"a micro-batch of {share // n} does not fit into memory" for n in (1, 2, 4) if n < expected]


@SLOW
def test_without_a_limit_nothing_is_split_with_xla_too():
    model, arguments = setting(xla=True)
    assert find_accumulation(model, *arguments) == 1


@SLOW
def test_packed_batches_are_tried_in_their_own_shape(monkeypatch):
    model, (consensus, config, examples, schedule) = setting(batching="packed")
    shapes, tries = [], []
    for n in (1, 2):
        batches = training_batches(config.accumulating(n), examples.tokens.lengths, schedule, num_replicas=1)
        shapes.append((batches.shape.num_rows, batches.shape.width))
    limit_memory(monkeypatch, np.prod(shapes[1]), tries)
    assert find_accumulation(model, consensus, config, examples, schedule) == 2
    assert tries == shapes


@pytest.mark.parametrize("batching", ["length_grouped", "packed"])
def test_micro_batches_beyond_what_kernels_count_are_not_tried(monkeypatch, logged, batching):
    """Of a batch of 8 rows of up to 20 tokens, the whole and its halves are too large, however much memory there is."""
    model, arguments = setting(batching=batching)
    batches = training_batches(arguments[1].accumulating(1), arguments[2].tokens.lengths, arguments[3], num_replicas=1)
    tokens = batches.shape.num_tokens if batches.shape else BATCH * int(batches.largest.widths.max())
    monkeypatch.setattr(build, "MAX_TOKENS", tokens // 3)
    monkeypatch.setattr(build, "_fits", lambda *tried: True)
    assert find_accumulation(model, *arguments) == 4
    assert logged() == []


@pytest.mark.slow
def test_no_room_for_one_example_is_an_error_and_fewer_are_not_tried(monkeypatch, logged):
    """A batch far above the data would be split until each example of it, there or not, is one of its own."""
    model, (consensus, config, examples, schedule) = setting(count=2)
    config = config.changed({"global_batch_size": 1000})
    limit_memory(monkeypatch, 1)
    with pytest.raises(RunError, match="One example per replica must fit into memory.*gradient_checkpointing"):
        find_accumulation(model, consensus, config, examples, schedule)
    tried = [int(line.split()[3]) for line in logged()]
    assert tried[0] == len(examples) and tried[-1] == 1 and tried.count(1) == 1


def test_other_errors_are_not_taken_for_a_lack_of_memory(monkeypatch):
    model, arguments = setting()

    def wrong(*_):
        raise tf.errors.InvalidArgumentError(None, None, "no room")

    monkeypatch.setattr(FineTuner, "_accumulate", wrong)
    with pytest.raises(tf.errors.InvalidArgumentError, match="no room"):
        find_accumulation(model, *arguments)


def test_the_peak_of_memory_is_not_that_of_a_try(corpus, monkeypatch):
    done = []
    monkeypatch.setattr(build, "find_accumulation", lambda *args, **kwargs: done.append("found") or 2)
    monkeypatch.setattr(build, "reset_peak_memory", lambda: done.append("reset"))
    strategy = strategy_of(1)
    config = make_config(corpus, "auto").accumulating("auto").resolved()
    run = build.build_run(decide(corpus / "auto", config), strategy, Consensus(strategy))
    assert done == ["found", "reset"] and run.config.training.gradient_accumulation_steps == 2


SMALL_GPU = """
import json
import tensorflow as tf
from tfbert.config.run import Config
from tfbert.train.run import finetune

gpu = tf.config.list_physical_devices("GPU")[0]
tf.config.set_visible_devices(gpu, "GPU")
tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=1024)])
# A device with a limit cannot grow too.
tf.config.experimental.set_memory_growth = lambda *args: None
print(json.dumps(finetune(Config.from_json(open("config.json").read()))))
"""


@pytest.mark.gpu
@pytest.mark.skipif(not tf.config.list_physical_devices("GPU"), reason="needs a GPU")
def test_a_gpu_that_is_too_small_gets_smaller_micro_batches(tmp_path):
    """A real lack of memory: 256 texts of 128 tokens would take some 5 GB."""
    options = {"model_name_or_path": "scratch/mini", "max_seq_length": 128, "batching": "padded", "max_steps": 3}
    options |= {"max_eval_examples": 64, "global_batch_size": 256, "output_dir": str(tmp_path / "out")}
    (tmp_path / "config.json").write_text(Config().accumulating("auto").changed(options).to_json())
    results = json.loads(output_of(SMALL_GPU, tmp_path).splitlines()[-1])
    assert results["global_step"] == 3 and np.isfinite(results["train_loss"])
    written = json.loads((tmp_path / "out" / "run_config.json").read_text())
    assert written["training"]["gradient_accumulation_steps"] > 1
    assert 0 < results["peak_memory_bytes"] <= 2**30


@SLOW
def test_a_run_keeps_what_it_found(corpus, monkeypatch, caplog):
    caplog.set_level("INFO", logger="tfbert")
    with monkeypatch.context() as patch:
        limit_memory(patch, 4 * 10)  # The longest of the corpus are 10 tokens.
        stop_at(patch, 4)
        with pytest.raises(Preempted, match="after step 4 of 12"):
            finetune(make_config(corpus, "auto").accumulating("auto"))
    assert "a micro-batch of 8 does not fit into memory" in caplog.text
    assert "batch      8 = 1 replica x 2 micro-batches x 4" in caplog.text
    written = json.loads((corpus / "auto" / "run_config.json").read_text())
    assert written["training"]["gradient_accumulation_steps"] == 2
    # All would fit now; the run goes on as it began.
    finetune(make_config(corpus, "auto").accumulating("auto"))
    finetune(make_config(corpus, "two").accumulating(2))
    assert_same_bits(weights(corpus / "auto"), weights(corpus / "two"))


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_start_that_came_to_no_checkpoint_is_taken_up(corpus, monkeypatch):
    config = make_config(corpus, "auto").changed({"validation_file": "", "save_steps": 0, "eval_steps": 0})
    shorter, path = config.changed({"max_steps": 1}), corpus / "auto" / "run_config.json"
    path.parent.mkdir()
    path.write_text(config.accumulating(4).resolved().to_json())
    with pytest.raises(UsageError, match="another configuration"):
        finetune(shorter.accumulating("auto"))
    path.write_text(shorter.accumulating(4).resolved().to_json())
    finetune(shorter.accumulating("auto"))
    # Found anew: there is no checkpoint whose noise it would have to be.
    assert Config.from_json(path.read_text()).training.gradient_accumulation_steps == 1


WORKER = f"""
import json, os, sys
sys.path.insert(0, {str(ROOT)!r})
import pytest
from tests.support.runs import limit_memory
from tfbert.config.run import Config
from tfbert.train.run import finetune

if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
    limit_memory(pytest.MonkeyPatch(), 2 * 10)
finetune(Config.from_json(open(sys.argv[1]).read()))
"""


@SLOW
@pytest.mark.multi_worker
def test_workers_agree_on_what_fits_on_all(corpus):
    """Only the second worker is short of memory."""
    config = make_config(corpus, "two", strategy="multi_worker").accumulating("auto")
    (corpus / "config.json").write_text(config.to_json())
    (corpus / "worker.py").write_text(WORKER)
    launched(str(corpus / "worker.py"), [str(corpus / "config.json")])
    written = json.loads((corpus / "two" / "run_config.json").read_text())
    assert written["training"]["gradient_accumulation_steps"] == 2
