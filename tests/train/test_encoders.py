"""A run of each encoder: split it gives the weights of one device, killed and resumed the same bits; what it saves
answers from Python, and exported."""

import dataclasses

import pytest
import tensorflow as tf

import tfbert
from tests.support.bert import worst
from tests.support.encoders import make
from tests.support.runs import assert_same_bits, changed, make_config, run_to, undrawn, weights, write_corpus
from tfbert.commandline.command import run_command
from tfbert.config.commands import FINETUNE
from tfbert.config.encoders import ENCODERS
from tfbert.model.load import save_pretrained
from tfbert.tokens.tokenizer import BertTokenizer
from tfbert.train.run import finetune

pytestmark = pytest.mark.slow
NAMES = [name for name in ENCODERS if name not in ("bert", "xlm-roberta", "camembert")]
TEXTS = ["alpha beta", "gamma"]


@pytest.mark.parametrize("model_type", NAMES)
def test_a_run_splits_resumes_answers_and_is_exported(model_type, tmp_path, monkeypatch):
    write_corpus(tmp_path)
    tokenizer = BertTokenizer.from_pretrained(tmp_path / "model")
    sizes = {"vocab_size": tokenizer.vocab_size, "max_position_embeddings": 64, "pad_token_id": tokenizer.pad_id}
    save_pretrained(make(model_type, "Model", dropout=0.1, **sizes), tokenizer, tmp_path / "model")
    config = make_config(tmp_path, "whole")
    config = changed(config, training={"max_steps": 4})
    with undrawn():
        finetune(config)
        again = dataclasses.replace(config, output=dataclasses.replace(config.output, output_dir=str(tmp_path / "cut")))
        run_to(2, again, monkeypatch)
        finetune(again)
        split = make_config(tmp_path, "split", strategy="mirrored", num_replicas=2)
        finetune(changed(split, training={"max_steps": 4}))
    assert_same_bits(weights(tmp_path / "whole"), weights(tmp_path / "cut"))
    one, two = weights(tmp_path / "whole"), weights(tmp_path / "split")
    assert one.keys() == two.keys() and max(worst(one[name], two[name]) for name in one) < 2e-6
    answers = tfbert.load(tmp_path / "whole")(TEXTS)
    model = tfbert.TFAutoModelForSequenceClassification.from_pretrained(tmp_path / "whole")
    assert type(model).__name__ == f"TF{ENCODERS[model_type].classes}ForSequenceClassification"
    flags = ["--mode=export", f"--model={tmp_path / 'whole'}", f"--output_dir={tmp_path / 'exported'}"]
    assert run_command(FINETUNE, ["command", *flags]) == 0
    exported = tf.saved_model.load(tmp_path / "exported")
    served = exported.signatures["text"](text=tf.constant(TEXTS))
    assert [answer["label"] for answer in answers] == [label.decode() for label in served["label"].numpy()]
    assert worst([answer["score"] for answer in answers], served["probabilities"].numpy().max(axis=1)) < 1e-5
    names = {*exported.signatures["token_ids"].structured_input_signature[1]}
    assert names == {*model.config.encoder.inputs}
