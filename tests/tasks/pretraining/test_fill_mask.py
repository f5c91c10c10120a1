"""`tfbert.load` of a pre-trained model fills in words, as transformers' pipeline does."""

import functools
import math

import numpy as np
import pytest
import transformers

import tfbert
from tests.support.host_tokenizers import KINDS as KINDS_OF_HOST
from tests.support.models import VOCAB, tiny_bert
from tests.support.runs import TOKENS, tokenizer_of
from tests.support.task_runs import command
from tests.support.transformers_4 import transformers_4
from tfbert import RunError, UsageError
from tfbert.bert.models import TFBertForMaskedLM, TFBertForPreTraining
from tfbert.model import weights
from tfbert.model.files import record_inputs
from tfbert.model.head import save_pretrained
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
    for name, kind in KINDS.items():
        model = tiny_bert(kind=kind, num_hidden_layers=1)
        record_inputs(model.config, num_texts=2, max_seq_length=16)
        save_pretrained(model, tokenizer_of(TOKENS + PUNCTUATION), directory / name)
    return directory


@functools.cache
def pipeline(directory):
    model = transformers_4("TFBertForMaskedLM").from_pretrained(directory)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    return transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer, framework="tf", torch_dtype=None)


def assert_alike(found, expected):
    if isinstance(expected, list):
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
    for most in (1, VOCAB):
        assert_alike(model(plain[0], top_k=most), pipe(plain[0], top_k=most))
    assert sum(answer["score"] for answer in model(plain[0], top_k=VOCAB)) == pytest.approx(1, abs=1e-5)
    several = "the [MASK] [MASK] was [MASK]"
    assert_alike(model([several, *plain])[0], pipe(several))
    assert len(model(several)) == 3 and "[MASK]" in model(several)[0][0]["sequence"]


@pytest.fixture(scope="module")
def pairs(saved):
    return tfbert.load(saved / "pairs")


def test_a_special_token_that_is_written_in_a_text_is_plain_text(pairs):
    """But for the place to be filled in."""
    assert "[ sep ]" not in TOKENS and len(pairs(TEXTS[4])) == 5


def test_joined_tokens_are_those_of_hugging_face(saved):
    tokenizer = transformers.BertTokenizerFast.from_pretrained(saved / "pairs")
    ours = BertTokenizer.from_pretrained(saved / "pairs")
    rng = np.random.default_rng(0)
    for _ in range(50):
        ids = rng.integers(0, VOCAB, rng.integers(1, 9)).tolist()
        for skip in (False, True):
            assert ours.decode(ids, skip_special_tokens=skip) == tokenizer.decode(ids, skip_special_tokens=skip)


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
    assert_alike(tfbert.load(tmp_path / "saved")(texts), pipeline(tmp_path / "saved")(texts))


LATE = " good" * 15 + " [MASK]"


REFUSED = [
    ("no place", {}, r"have a \[MASK\]. Received: 'no place' in the input"),
    (["[MASK]", "none"], {}, r"'none' in inputs\[1\]"),
    (3, {}, "text"),
    (LATE, {}, r"within the first 16 tokens of its text. Received: a later one in the input\."),
    ("[MASK]", {"top_k": 101}, "at most 100"),
    ("[MASK]", {"top_k": None}, "at most 100"),
    ("[MASK]", {"top_k": 0}, "top_k must be"),
]


@pytest.mark.parametrize("value, options, message", REFUSED)
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
    (tmp_path / "texts.tsv").write_text("sentence\ngood\n")
    of_modes = {"predict": f"--input_file={tmp_path / 'texts.tsv'}", "export": f"--output_dir={tmp_path / 'out'}"}
    for mode, flag in of_modes.items():
        with pytest.raises(UsageError, match=f"mode={mode} is for models that were fine-tuned"):
            command(f"--mode={mode}", f"--model={saved / 'pairs'}", flag)
    assert not (tmp_path / "out").exists()
