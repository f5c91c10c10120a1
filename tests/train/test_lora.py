"""LoRA by the command: what is trained and kept, what it goes on from, exact in every task on any split."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

import tfbert
from tests.support.runs import assert_same_bits, changed, make_config, run_to, undrawn, weights, write_corpus
from tests.support.task_runs import CHOICES, KINDS, QUESTIONS, run_of
from tfbert import Config, ModelConfig, TrainingConfig, UsageError
from tfbert.bert.models import TFBertForSequenceClassification
from tfbert.model.weights import write_weights
from tfbert.train.run import finetune

pytestmark = pytest.mark.usefixtures("undrawn")
RANK, ALPHA = 2, 8.0
LORA = {"lora_rank": RANK, "lora_alpha": ALPHA, "lora_targets": "output.dense,query"}
ADAPTER, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def config_for(shared, name, **training):
    config = changed(make_config(shared, name), training=LORA | training)
    return changed(config, output={"keep_adapter": True, "save_total_limit": 0, "eval_steps": 4})


@pytest.fixture(scope="module")
def straight(shared):
    """A run of 12 updates at once, and its results."""
    with undrawn():
        return shared / "straight", finetune(config_for(shared, "straight"))


def test_the_saved_model_is_the_base_with_the_updates_and_the_head(shared, straight, caplog):
    directory, results = straight
    base, saved, adapter = weights(shared / "model"), weights(directory), load_file(directory / "adapter" / ADAPTER)
    updated = set()
    for name, value in saved.items():
        low = f"base_model.model.{name.removesuffix('weight')}lora_"
        if f"{low}A.weight" in adapter:
            change = ALPHA / RANK * adapter[f"{low}B.weight"] @ adapter[f"{low}A.weight"]
            np.testing.assert_allclose(value, base[name] + change, atol=1e-6)
            assert np.abs(change).max() > 1e-5
            updated.add(name)
        else:
            same = base[name] if name in base else adapter[f"base_model.model.{name}"]
            np.testing.assert_array_equal(value, same, err_msg=name)
    layer = "bert.encoder.layer.0"
    names = ("attention.self.query", "attention.output.dense", "output.dense")
    assert updated == {f"{layer}.{name}.weight" for name in names}
    trained = sum(value.size for value in adapter.values())
    assert results["trained_parameters"] == trained
    assert results["parameters"] == sum(v.size for v in [*saved.values(), *adapter.values()]) - 33 * 2
    card = (directory / "README.md").read_text()
    assert f"{trained:,} of {results['parameters']:,} parameters were trained" in card and "`adapter` has them" in card


def test_checkpoints_hold_what_is_trained_and_stay_as_adapters(shared, straight):
    kept = sorted((straight[0] / "checkpoints").iterdir())
    assert [path.name for path in kept] == ["step-00000003", "step-00000006", "step-00000009"]
    assert all({*(file.name for file in path.iterdir())} == {ADAPTER, CONFIG} for path in kept)
    values = json.loads((straight[0] / "adapter" / CONFIG).read_text())
    told = {"r": RANK, "lora_alpha": 8, "target_modules": ["query", "output.dense"], "modules_to_save": ["classifier"]}
    assert values.items() >= (told | {"base_model_name_or_path": str(shared / "model")}).items()
    with pytest.raises(UsageError, match="It holds an adapter: pass the model"):
        tfbert.load(kept[0])
    model = TFBertForSequenceClassification.from_pretrained(shared / "model", num_labels=2)
    model.load_adapter(straight[0] / "adapter")
    ids = np.arange(5, 15).reshape(2, 5)
    merged = TFBertForSequenceClassification.from_pretrained(straight[0])
    np.testing.assert_allclose(model(ids).logits, merged(ids).logits, atol=1e-6)
    before = model(ids).logits
    model.load_adapter(kept[0])
    assert np.abs(model(ids).logits - before).max() > 1e-5
    model.load_adapter(straight[0] / "adapter")
    np.testing.assert_array_equal(model(ids).logits, before, err_msg="an adapter takes the place of another one")


def test_a_run_goes_on_bit_for_bit_over_the_same_base_alone(shared, straight, monkeypatch):
    config = config_for(shared, "stopped")
    run_to(5, config, monkeypatch)
    checkpoint, trained = shared / "stopped" / "checkpoints" / "step-00000005", straight[1]["trained_parameters"]
    moments = sum(value.size for value in load_file(checkpoint / "optimizer.safetensors").values())
    assert 2 * trained <= moments <= 2 * trained + 12, "the optimizer's state is of what is trained"
    size = sum(file.stat().st_size for file in checkpoint.iterdir())
    assert 12 * trained < size < 12 * trained + 20_000 and not (checkpoint / "model.safetensors").exists()
    best = shared / "stopped" / "checkpoints" / "best-00000004"
    assert load_file(best / ADAPTER).keys() == load_file(checkpoint / ADAPTER).keys()
    base, path = weights(shared / "model"), shared / "model" / "model.safetensors"
    write_weights(base | {"bert.embeddings.LayerNorm.bias": base["bert.embeddings.LayerNorm.bias"] + 1e-3}, path)
    without = {"lora_rank": 0, "lora_alpha": None, "lora_targets": "query,value"}
    refused = {
        "base_weights='.*' before and '.*' now": {},
        "lora_rank=2 before and 4 now": {"lora_rank": 4},
        "lora_alpha=8.0 before and 4.0 now": {"lora_alpha": 4},
        "lora_targets='query,output.dense' before and 'query' now": {"lora_targets": "query"},
        "lora_rank=2 before and 0 now": without,
    }
    for line, other in refused.items():
        with pytest.raises(UsageError, match=line) as caught:
            finetune(changed(config, training=other, output={"keep_adapter": other != without}))
        assert "\n" not in str(caught.value) and "--model=" not in str(caught.value)
    write_weights(base, path)
    finetune(changed(config, training={"lora_targets": "output.dense,attention.output.dense,query"}))
    for name in ("model.safetensors", f"adapter/{ADAPTER}"):
        assert_same_bits(load_file(straight[0] / name), load_file(shared / "stopped" / name))


DEFAULT, EVERY = "query,value", "all"
DEFAULTS = [
    ({}, (5e-5, None, DEFAULT)),
    ({"lora_rank": 4}, (5e-4, 4.0, DEFAULT)),
    ({"lora_rank": 4, "lora_alpha": 16, "lora_targets": " value,query", "learning_rate": 1}, (1.0, 16.0, DEFAULT)),
    ({"lora_rank": 1, "lora_targets": ["all"], "optimizer": "lamb"}, (5e-3, 1.0, EVERY)),
]


@pytest.mark.parametrize("given, expected", DEFAULTS)
def test_defaults_that_depend_on_others(given, expected):
    config = Config(model=ModelConfig(model_name_or_path="mine"), training=TrainingConfig(**given))
    found = config.resolved().training
    assert (found.learning_rate, found.lora_alpha, found.lora_targets) == expected


@pytest.mark.slow
def test_peft_reads_the_adapter_beside_the_base(shared, straight):
    torch, peft, transformers = (pytest.importorskip(name) for name in ("torch", "peft", "transformers"))
    ids = np.arange(5, 15).reshape(2, 5)
    theirs = transformers.BertForSequenceClassification.from_pretrained(shared / "model", num_labels=2)
    theirs = peft.PeftModel.from_pretrained(theirs, straight[0] / "adapter").eval()
    with torch.no_grad():
        logits = theirs(torch.tensor(ids)).logits.numpy()
    expected = TFBertForSequenceClassification.from_pretrained(straight[0])(ids).logits
    np.testing.assert_allclose(logits, expected, atol=2e-6)


UNFELT = {QUESTIONS: {"qa_outputs.bias"}, CHOICES: {"classifier.bias"}}
"""What adds the same to all that a softmax compares."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("split", [{"num_replicas": 2, "strategy": "mirrored"}, {}], ids=["two replicas", "recomputed"])
def test_every_task_is_exact_on_a_split(kind, split, tmp_path):
    """Dropout is on, the last batch ragged, the base a random one, whose pooler is trained with the head."""
    write_corpus(tmp_path)
    every, found = {"lora_rank": 4, "lora_targets": "all", "learning_rate": 3e-3}, []
    for name, parts, options in (("one", 1, {}), ("split", 4, split)):
        config = run_of(kind, tmp_path, name, **options)[1]
        recomputes = parts > 1 and not split
        accumulated = {"gradient_accumulation_steps": parts, "gradient_checkpointing": recomputes}
        results = finetune(changed(config, training=every | accumulated))
        found.append(weights(tmp_path / name))
        assert 0 < results["trained_parameters"] < results["parameters"]
    for name in found[0].keys() - UNFELT.get(kind, set()):
        np.testing.assert_allclose(found[1][name], found[0][name], atol=2e-5, err_msg=name)
