"""`tfbert.load` of a pre-trained model fills in words, as transformers' pipeline does."""

import functools
import math

import numpy as np
import pytest
import transformers

import tfbert
from tests.support.host_tokenizers import KINDS as KINDS_OF_HOST
from tests.support.models import VOCAB, tiny_bert
from tests.support.runs import TOKENS
from tests.support.transformers_4 import transformers_4
from tfbert import Config, DataConfig, ExportConfig, ModelConfig, OutputConfig, PredictConfig, RunError, UsageError
from tfbert.bert.models import TFBertForMaskedLM, TFBertForPreTraining
from tfbert.model import weights
from tfbert.model.files import record_inputs
from tfbert.model.head import save_pretrained
from tfbert.modes.export import export
from tfbert.modes.predict import predict
from tfbert.tokens.host import read_tokenizer
from tfbert.tokens.tokenizer import BertTokenizer

KINDS = {"pairs": TFBertForPreTraining, "words": TFBertForMaskedLM}
PUNCTUATION = [".", ",", "!", "?", "'", "s", "##s", "##ing", "(", "-"]
TEXTS = [
    "the [MASK] was good .",
    "a very dull plot , [MASK] fine !",
    "[MASK]",
    "Film[MASK]film. It's\nslow-bright?",
    "[UNK] the [SEP] good [MASK] [CLS]",
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """`pairs`, with a next-sentence head, and `words` without."""
    directory = tmp_path_factory.mktemp("models")
    vocab = TOKENS + PUNCTUATION
    tokenizer = BertTokenizer(vocab + [f"[unused{i}]" for i in range(VOCAB - len(vocab))])
    for name, kind in KINDS.items():
        model = tiny_bert(kind=kind, num_hidden_layers=1)
        record_inputs(model.config, num_texts=2, max_seq_length=16)
        save_pretrained(model, tokenizer, directory / name)
    return directory


@functools.cache
def pipeline(directory):
    model = transformers_4("TFBertForMaskedLM").from_pretrained(directory)
    tokenizer = transformers.BertTokenizerFast.from_pretrained(directory, split_special_tokens=False)
    return transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer, framework="tf", torch_dtype=None)


def assert_alike(found, expected):
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other)
        return
    assert list(found) == list(expected)
    assert found.pop("score") == pytest.approx(expected.pop("score"), rel=1e-4)
    assert found == expected


# Of a model without next sentences, with other tokenizers: below.
@pytest.mark.parametrize("name", ["pairs", pytest.param("words", marks=pytest.mark.slow)])
def test_words_are_those_of_the_pipeline(saved, name):
    model, pipe = tfbert.load(saved / name), pipeline(saved / name)
    assert model.task == "pretraining" and model.label_names == ()
    plain = TEXTS[:4]  # Of other special tokens in a text the pipeline makes control tokens.
    assert_alike(model(plain), pipe(plain))
    assert_alike(model(plain[::-1], batch_size=1, top_k=3), pipe(plain[::-1], top_k=3))
    assert_alike(model(plain[0], top_k=1), pipe(plain[0], top_k=1))
    several = "the [MASK] [MASK] was [MASK]"
    assert_alike(model([several, *plain])[0], pipe(several))
    assert len(model(several)) == 3 and "[MASK]" in model(several)[0][0]["sequence"]


@pytest.fixture(scope="module")
def pairs(saved):
    return tfbert.load(saved / "pairs")


def test_probabilities_and_words_of_one_place(pairs):
    answers = pairs("the [MASK] was good", top_k=VOCAB)
    assert len(answers) == len({answer["token"] for answer in answers}) == VOCAB
    assert sum(answer["score"] for answer in answers) == pytest.approx(1, abs=1e-5)
    assert all(one["score"] >= other["score"] for one, other in zip(answers, answers[1:], strict=False))
    # A special token that is written in a text is plain text, but for the place to be filled in.
    assert "[ sep ]" not in TOKENS and len(pairs(TEXTS[4])) == 5


def test_joined_tokens_are_those_of_hugging_face(saved):
    tokenizer = transformers.BertTokenizerFast.from_pretrained(saved / "pairs")
    ours = BertTokenizer.from_pretrained(saved / "pairs")
    rng = np.random.default_rng(0)
    for _ in range(50):
        ids = rng.integers(0, VOCAB, rng.integers(1, 9)).tolist()
        for skip in (False, True):
            expected = tokenizer.decode(ids, skip_special_tokens=skip)
            assert ours.decode(ids, skip_special_tokens=skip) == expected


# The kinds of `tokens/host` are compared in tests/tokens/test_host.py.
SLOW_KINDS = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("camembert", "modernbert")]


@pytest.mark.parametrize("kind", ["roberta", *SLOW_KINDS])
def test_words_of_other_tokenizers_are_those_of_the_pipeline(tmp_path, kind):
    tokenizer = read_tokenizer(KINDS_OF_HOST[kind](tmp_path / "source"))
    options = {"vocab_size": tokenizer.vocab_size, "num_hidden_layers": 1, "pad_token_id": tokenizer.pad_id}
    model = tiny_bert(kind=TFBertForMaskedLM, **options)
    record_inputs(model.config, num_texts=2, max_seq_length=32)
    save_pretrained(model, tokenizer, tmp_path / "saved")
    mask = tokenizer.mask_token
    texts = [f"the  {mask} was good.", f"{mask}", f"a{mask}b, {mask} é !", f"Some text\n {mask}, then."]
    model = transformers_4("TFBertForMaskedLM").from_pretrained(tmp_path / "saved")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    pipe = transformers.pipeline("fill-mask", model=model, tokenizer=theirs, framework="tf", torch_dtype=None)
    assert_alike(tfbert.load(tmp_path / "saved")(texts), pipe(texts))


LATE = " good" * 15 + " [MASK]"


@pytest.mark.parametrize(
    "value, options, message",
    [
        ("no place", {}, r"have a \[MASK\]. Received: 'no place' in the input"),
        (["[MASK]", "none"], {}, r"'none' in inputs\[1\]"),
        (3, {}, "text"),
        (LATE, {}, r"within the first 16 tokens of its text. Received: a later one in the input\."),
        ("[MASK]", {"top_k": 101}, "at most 100"),
        ("[MASK]", {"top_k": None}, "at most 100"),
        ("[MASK]", {"top_k": 0}, "top_k must be"),
    ],
)
def test_what_cannot_be_filled_in_is_refused(saved, pairs, value, options, message):
    with pytest.raises(UsageError, match=message):
        pairs(value, **options)
    if value == LATE:
        assert len(tfbert.load(saved / "pairs", max_seq_length=32)(value)) == 5


def test_a_model_that_diverged_is_refused(saved):
    model = tfbert.load(saved / "pairs")
    own = model._model.classifier
    weights.set_weights_dict(own, {n: v * math.nan for n, v in weights.get_weights_dict(own).items()})
    with pytest.raises(RunError, match="must be finite"):
        model("the [MASK]")


def test_modes_of_fine_tuned_models_refuse_it(saved, tmp_path):
    model = ModelConfig(model_name_or_path=str(saved / "pairs"))
    (tmp_path / "texts.tsv").write_text("sentence\ngood\n")
    given = PredictConfig(input_file=str(tmp_path / "texts.tsv"))
    with pytest.raises(UsageError, match="mode=predict is for models that were fine-tuned"):
        predict(Config(mode="predict", model=model, predict=given))
    output = OutputConfig(output_dir=str(tmp_path / "out"))
    with pytest.raises(UsageError, match="mode=export is for models that were fine-tuned"):
        export(Config(mode="export", model=model, data=DataConfig(), output=output, export=ExportConfig()))
    assert not (tmp_path / "out").exists()
