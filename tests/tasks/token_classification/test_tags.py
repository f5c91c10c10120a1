"""Schemes: found from the tags, the same entities in another, and tags that cannot follow one another; taggers of
others, whose tags are BIOES, BILOU, BMES or IO: scored by their own scheme, whatever the data's is; and entity tags in
every form that people write, tags that do not belong to the others, and tags that are no entities."""

import collections
import pathlib
import re

import numpy as np
import pytest

from tests.support.refusals import refused
from tests.support.task_runs import SENTENCES
from tfbert import BertConfig, DataConfig, TaggingConfig
from tfbert.config.tasks import TaskOptions
from tfbert.tasks.tables import load_data
from tfbert.tasks.token_classification import tags as tags_module
from tfbert.tasks.token_classification.tagged import TaggedTable, in_usual_form
from tfbert.tasks.token_classification.tags import TagSequences, class_names, scheme_of_model
from tfbert.tasks.token_classification.token_classification import TokenClassification

# A person of two words, another at once, a place after a word; two organisations of one word, and one of three.
IOB2 = ["B-PER I-PER B-PER O B-LOC", "B-ORG B-ORG", "O B-ORG I-ORG I-ORG"]
WRITTEN = {
    "IOB2": IOB2,
    "IOB1": ["I-PER I-PER B-PER O I-LOC", "I-ORG B-ORG", "O I-ORG I-ORG I-ORG"],
    "BIOES": ["B-PER E-PER S-PER O S-LOC", "S-ORG S-ORG", "O B-ORG I-ORG E-ORG"],
    "BILOU": ["B-PER L-PER U-PER O U-LOC", "U-ORG U-ORG", "O B-ORG I-ORG L-ORG"],
    "BMES": ["B-PER E-PER S-PER O S-LOC", "S-ORG S-ORG", "O B-ORG M-ORG E-ORG"],
}


def tags(*sentences: str) -> list[list[str]]:
    return [sentence.split() for sentence in sentences]


def written(name, spans):
    """Entities, as (type, number of words), in a scheme; `("", 2)` are two words in none."""
    row, last = [], ""
    for kind, size in spans:
        middle = {"BMES": "M"}.get(name, "I")
        first = "I" if name == "IO" or (name == "IOB1" and last != kind) else "B"
        end, single = {"BIOES": "ES", "BMES": "ES", "BILOU": "LU"}.get(name, "I" + first)
        letters = single if size == 1 else first + middle * (size - 2) + end
        row += [f"{letter}-{kind}" for letter in letters] if kind else ["O"] * size
        last = kind
    return row


@pytest.mark.parametrize("name", WRITTEN)
def test_every_scheme_is_found_and_its_entities_come_back_from_every_other(name):
    found = TagSequences(tags(*WRITTEN[name]))
    assert (found.scheme, found.doubt, found.invalid()) == (name, "", None)
    assert found.written_in("IOB2") == tags(*IOB2)
    rng, kinds = np.random.default_rng(0), ["A", "B-C", ""]
    sizes = [rng.integers(1, 5, rng.integers(0, 6)).tolist() for _ in range(300)]
    sentences = [[(str(rng.choice(kinds)), size) for size in own] for own in sizes]
    found = TagSequences([written(name, spans) for spans in sentences])
    assert (found.scheme, found.doubt, found.invalid()) == (name, "", None)
    for target in ("IOB2", "BIOES", "BILOU", "BMES", "IO"):
        assert found.written_in(target) == [written(target, spans) for spans in sentences], target
    assert found.starts.tolist() == [tag[0] == "B" for spans in sentences for tag in written("IOB2", spans)]


OF_MODELS = {
    "IOB2": ["O B-A I-A", "O B-A"],
    "IO": ["O I-A I-B"],
    "BIOES": ["O B-A I-A E-A S-A", "O S-A"],
    "BILOU": ["B-A I-A L-A U-A O"],
    "BMES": ["B-A M-A E-A S-A O"],
    "none": ["NOUN VERB", "O B-A I-A X"],
}


@pytest.mark.parametrize(("names", "scheme"), [(names, scheme) for scheme, own in OF_MODELS.items() for names in own])
def test_the_scheme_of_a_model(names, scheme):
    assert scheme_of_model(names.split()) == scheme


DOUBTS = [
    (["NOUN VERB", "O-x PUNCT"], "none", ""),
    (["O 0 B-PER"], "none", "although B- occur too: '0' has no prefix"),
    (["O O"], "IOB2", "no entity"),
    (["B-A O B-A B-B"], "IOB2", "no I- occurs"),
    (["I-A O I-B I-A"], "IO", "or IOB1"),
    (["B-A I-A O B-A", "I-A"], "IOB2", ""),
    (["I-A B-A O I-A", "B-A I-A I-B"], "IOB1", ""),
    (["B- -A B b-A"], "none", ""),
    ([""], "IOB2", "no entity"),
]


@pytest.mark.parametrize(("sentences", "name", "doubt"), DOUBTS)
def test_doubts(sentences, name, doubt):
    found = TagSequences(tags(*sentences))
    assert found.scheme == name
    assert doubt in found.doubt and bool(doubt) == bool(found.doubt)


def test_no_sentence_and_no_prefix():
    none, plain = TagSequences([]), TagSequences(tags("DET NOUN", "VERB"))
    assert (none.scheme, none.written_in("IOB2"), none.invalid()) == ("IOB2", [], None)
    assert (plain.scheme, plain.written_in("IOB2"), plain.invalid()) == ("none", tags("DET NOUN", "VERB"), None)


def test_what_conlleval_would_start_is_started():
    found = TagSequences(tags("I-A I-B B-B", "I-B O I-A", "E-A I-A S-A E-A E-A"))
    assert found.written_in("IOB2") == tags("B-A B-B B-B", "B-B O B-A", "B-A B-A B-A B-A B-A")


INVALID = {  # Beside as many valid ones that the scheme is beyond doubt.
    "IOB2": [
        (["B-A I-A O", "B-A I-B", "I-A"], 1, "2 tags out of place in IOB2, the first 'I-B' after 'B-A'"),
        (["O", "I-A I-A"], 1, "1 tag out of place in IOB2, the first 'I-A' at the start"),
        (["O I-A"], 0, "1 tag out of place in IOB2, the first 'I-A' after 'O'"),
    ],
    "IOB1": [(["I-A B-A", "B-A B-B"], 1, "2 tags out of place in IOB1, the first 'B-A' at the start")],
    "BIOES": [
        (["S-A B-A E-A", "B-A O", "I-A"], 1, "3 tags out of place in BIOES, the first 'O' after 'B-A'"),
        (["S-A", "B-A I-A"], 1, "1 tag out of place in BIOES, the first 'I-A' at the end"),
        (["B-A E-B"], 0, "1 tag out of place in BIOES, the first 'E-B' after 'B-A'"),
        (["S-A E-A"], 0, "1 tag out of place in BIOES, the first 'E-A' after 'S-A'"),
        (["B-A S-A"], 0, "1 tag out of place in BIOES, the first 'S-A' after 'B-A'"),
    ],
}


@pytest.mark.parametrize("scheme", INVALID)
def test_tags_that_cannot_follow_one_another(scheme):
    for sentences, sentence, what in INVALID[scheme]:
        found = TagSequences(tags(*sentences, *2 * WRITTEN[scheme]))
        assert (found.scheme, found.invalid()) == (scheme, (sentence, what))


def test_class_names_in_order():
    found = class_names(tags("I-LOC B-PER", "B-A-b I-PER B-LOC I-A-b"))
    assert found == ("O", "B-A-b", "I-A-b", "B-LOC", "I-LOC", "B-PER", "I-PER")
    assert class_names(tags("VERB ADJ O")) == ("O", "ADJ", "VERB")
    assert class_names(tags("VERB ADJ")) == ("ADJ", "VERB")


# --- Taggers of others ---------------------------------------------------------------------------------------------

# A person of three words, a place of one; a place, a person of two.
GOLD = [[("PER", 3), ("", 1), ("LOC", 1)], [("LOC", 1), ("", 1), ("PER", 2)]]
DATA = {scheme: [written(scheme, spans) for spans in GOLD] for scheme in ("IOB2", "BIOES", "BILOU", "BMES", "IO")}
LETTERS = {"BIOES": "BIES", "BILOU": "BILU", "BMES": "BMES", "IO": "I"}
MODELS = ["BIOES", "IO", *(pytest.param(scheme, marks=pytest.mark.slow) for scheme in ("BILOU", "BMES"))]


def scored(scheme, said, gold, strict=False):
    """Of a tagger that says `said` with all its might: the metrics, and the notes about the data."""
    names = ["O", *(f"{letter}-{kind}" for kind in ("PER", "LOC") for letter in LETTERS[scheme])]
    options = TaskOptions(tagging=TaggingConfig(strict_entities=strict))
    task = TokenClassification.of_model(BertConfig(id2label=dict(enumerate(names))), pathlib.Path("m"), options)
    table, notes = TaggedTable(name="x", words=gold, tags=gold, lines=list(range(len(gold)))), []
    predictions = 20 * np.eye(len(names), dtype=np.float32)[[names.index(tag) for tag in sum(said, [])]]
    # As after `subset`, which takes some.
    return task.metrics(predictions, task.examples(table, notes).take(range(len(gold)))), notes


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("scheme", MODELS)
def test_data_of_every_scheme_is_scored_as_data_of_the_own_one(scheme, strict):
    # A person in the place's stead, and one without its end; before them the person without its first word.
    last = written(scheme, [("PER", 1), ("", 1), ("PER", 3)])[:-1]
    wrong = [written(scheme, [("", 1), ("PER", 2), *GOLD[0][1:]]), last]
    # Of four entities the place, and the last person where nothing says that it does not end.
    found = 3 if strict and scheme != "IO" else 4
    scores = [(found - 2) / found, (found - 2) / 4, 7 / 9 if scheme == "IO" else 5 / 9]
    for said, score in ((DATA[scheme], [1, 1, 1]), (wrong, scores)):
        expected, _ = scored(scheme, said, DATA[scheme], strict)
        assert [expected[name] for name in ("precision", "recall", "accuracy")] == pytest.approx(score)
        assert (expected["loss"] < 1e-3) == (said == DATA[scheme])
        for data in DATA:
            found, notes = scored(scheme, said, DATA[data], strict)
            is_said = any(f"tags are {data}" in note and f"converted to {scheme}" in note for note in notes)
            assert found == expected and is_said == (data != scheme), data


@pytest.mark.parametrize("strict", [False, True])
def test_touching_entities_are_two_though_the_model_can_only_say_one(strict):
    """As for seqeval, which takes the data's tags as they are."""
    found, _ = scored("IO", tags("I-PER I-PER O I-LOC"), tags("B-PER B-PER O B-LOC"), strict)
    assert (found["precision"], found["recall"], found["accuracy"]) == (1 / 2, 1 / 3, 1)


def test_a_tag_that_the_model_has_only_in_the_scheme_of_the_data():
    with refused("Received: 'S-ORG', written 'B-ORG', in the sentence of x"):
        scored("BIOES", tags("O O"), tags("O B-ORG"))


# --- Forms ---------------------------------------------------------------------------------------------------------

USUAL = ["B-PER I-PER O", "O B-LOC", "O"]


def table(*sentences: str) -> TaggedTable:
    words = [[f"w{place}" for place in range(len(row))] for row in tags(*sentences)]
    return TaggedTable(name="file", words=words, tags=tags(*sentences), lines=range(1, len(sentences) + 1))


def read(*sentences: str, **options):
    """The tags in their usual form, a text per sentence, and the notes."""
    notes: list[str] = []
    return [" ".join(tags) for tags in in_usual_form(table(*sentences), notes, **options).tags], notes


def swapped(separator):
    return [" ".join(f"{tag[2:]}{separator}{tag[0]}" if tag != "O" else tag for tag in row.split()) for row in USUAL]


FORMS = {
    "underscores": [row.replace("-", "_") for row in USUAL],
    "colons": [row.replace("-", ":") for row in USUAL],
    "slashes": [row.replace("-", "/") for row in USUAL],
    "suffixes": swapped("-"),
    "suffixes, underscores": swapped("_"),
    "small": ["b-PER i-PER o", "o b-LOC", "o"],
    "small letters, a large O": ["b-PER i-PER O", "O b-LOC", "O"],
    "small suffixes": ["PER_b PER_i o", "o LOC_b", "o"],
    "small bare letters": ["b i o", "o b"],
    "one small bare letter": ["b o", "o b"],
    "suffixes of phrases": ["NN-B NN-I", "VV-B"],
    "several underscores": ["B_a_b E_a_b S_c-d O", "O"],
    "no mark": ["BPER IPER O", "BLOC ILOC"],
    "angles": ["<B-PER> <I-PER> o", "<B-LOC>"],
    "brackets": ["(PER* *) *", "(LOC)"],
    "a plus": ["B+PER I+PER", "O"],
    "letters as words": ["Begin-PER Inside-PER O Begin-LOC", "O Begin-ORG Inside-ORG"],
    "short words": ["BEG_PER IN_PER OUT BEG_LOC"],
    "words behind": ["PER:start PER:end O LOC:single"],
    "dashes for O": ["- B_PER -", "- B_LOC I_LOC"],
    "a type alone among them": ["B_PER I_PER O", "O", "O B_PER PER"],
    "entities of one word": ["B_PER B_LOC O"],
}


@pytest.mark.parametrize("sentences", FORMS.values(), ids=FORMS)
def test_every_other_form_is_refused_where_the_model_has_entities(sentences):
    with refused(r"written as B-PER, I-PER and O. Received: .* in file. Write them so: docs/other_formats.md"):
        read(*sentences)
    as_written, notes = read(*sentences, model_has_entities=False)
    assert as_written == sentences and "look like entity tags" in notes[0], "a model of others has these very tags"


def test_bare_letters_are_entities_of_one_type():
    note = "file: tags are written as B, read as B-ENTITY"
    assert read("B I O", "O B") == (["B-ENTITY I-ENTITY O", "O B-ENTITY"], [note])
    assert read("B M E O")[0] == ["B-ENTITY M-ENTITY E-ENTITY O"]


STAY = [
    USUAL,
    ["B-per I-per O"],
    ["B-B I-B B-I O"],
    ["DET NOUN VERB", "NOUN ."],
    ["# CD , -LRB-", "NN IN"],
    ["N O V", "S V L", "^ U G I"],  # Of tweets: O is a pronoun.
    ["S V O", "S V"],
    ["B M E S", "S B E"],  # Of Chinese words, none of which is outside.
    ["S_1 S_2", "S_3"],
    ["class_a class_b", "class_c class_d class_i"],
    ["0 1 2", "3"],
    ["I O V", "V V"],
    ["DET NOUN VERB _", "NOUN VERB _ DET NOUN"],
    ["NN-SBJ VB-PRD", "IN-TMP NN-PRD"],
]


@pytest.mark.parametrize("sentences", STAY)
def test_tags_that_stay_as_they_are(sentences):
    assert read(*sentences) == (list(sentences), [])


LIKE_ENTITIES = [
    ["PER O O", "O O O LOC"],
    ["B-PER I-PER X", "O O O O O X X", "X"],
    ["PER _ _ LOC", "_ _ ORG ORG"],
    ["PER - -", "- - - ORG ORG"],
    ["PER none none LOC", "none none ORG ORG"],
    ["OUT Person OUT OUT", "OUT Place"],
]


@pytest.mark.parametrize("sentences", LIKE_ENTITIES)
def test_what_looks_like_entities_is_warned_of(sentences):
    found, (note,) = read(*sentences)
    assert found == sentences and note.startswith("warning: file: these look like entity tags ('")


def test_ids_of_tags_need_names():
    _, (note,) = read("0 0 1 2 0 0", "0 3")
    assert "these look like entity tags" in note and note.endswith("name them with --label_names=O,B-PER,...")


FOREIGN = {
    "a comment": (["B-PER I-PER O", "newdoc O"], "newdoc", "word 1 of file, line 2"),
    "a zero": (["B-PER I-PER O 0"], "0", "word 4 of file, line 1"),
    "small o's alone": (["B-PER I-PER o", "o o o o", "B-LOC"], "o", "word 3 of file, line 1"),
    "zeros alone": (["0 0 0", "B-PER 0"], "0", "word 1 of file, line 1"),
    "underscores alone": (["B-PER _ _", "_ B-LOC I-LOC"], "_", "word 2 of file, line 1"),
    "a word for it": (["B-PER none none", "none B-LOC"], "none", "word 2 of file, line 1"),
    "a small o": (["B-PER I-PER O", "o O"], "o", "word 1 of file, line 2"),
    "bare letters": (["B I O", "O B PUNCT"], "PUNCT", "word 3 of file, line 2"),
    "another form": (["B-PER I-PER O", "B_PER O"], "B_PER", "word 1 of file, line 2"),
    "many dates": (
        ["B-PER I-PER O O O O"] * 9 + [f"[2009-{number}] O" for number in range(30)],
        "[2009-0]",
        "word 1 of file, line 10",
    ),
    "few of many": (["B-PER I-PER O"] * 100 + ["x O"] * 20, "x", "word 1 of file, line 101"),
}


@pytest.mark.parametrize(("sentences", "tag", "where"), FOREIGN.values(), ids=FOREIGN)
def test_a_few_tags_never_change_what_the_others_are(sentences, tag, where):
    with refused(re.escape(f"Received: {tag!r} for 'w") + f".* in {where};"):
        read(*sentences)


def test_tags_that_may_stand_beside_entity_tags():
    for placeholder in ("X", "_", "[PAD]"):
        sentences = ["B-PER I-PER O", f"{placeholder} O"]
        assert read(*sentences)[0] == sentences
    sentences = ["B-PER I-PER O", "LOC O"]
    assert read(*sentences, known={"LOC"})[0] == sentences, "a class of the model"
    assert read("B-PER LOC ORG O", "LOC B-PER")[0] == ["B-PER LOC ORG O", "LOC B-PER"], "as many as the others"


def test_no_tags():
    assert tags_module.form_of({}) == ({}, {})
    assert not tags_module.look_like_types({}) and not tags_module.are_of_another_form({})
    assert read() == ([], []) and read("O O") == (["O O"], [])
    assert tags_module.form_of(collections.Counter(["O", "NN"])) == ({}, {"NN": 1})


def test_a_model_in_io_keeps_where_entities_start():
    examples = TokenClassification(("O", "I-PER")).examples(table("B-PER B-PER I-PER", "O"), [])
    assert (examples.labels.tolist(), examples.starts.tolist()) == ([1, 1, 1, 0], [True, True, False, False])


def test_one_foreign_line_of_a_file_is_named(write):
    content = "".join(f"a B-X\n{'% note' if i == 7 else 'c I-X'}\n\n# a comment\n" for i in range(20))
    with refused(r"all but O have one\. Received: 'note' for '%' in word 2 of .*a\.conll, line 29;"):
        load_data(DataConfig(task=SENTENCES, train_file=write("a.conll", content)))
