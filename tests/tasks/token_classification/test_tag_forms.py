"""Entity tags in every form that people write, tags that do not belong to the others, and tags that are no entities."""

import collections
import re

import pytest

from tests.support.refusals import refused
from tests.support.task_runs import SENTENCES
from tfbert import DataConfig
from tfbert.tasks.tables import load_data
from tfbert.tasks.token_classification.tagged import TaggedTable, in_usual_form
from tfbert.tasks.token_classification.tags import are_of_another_form, form_of, look_like_types
from tfbert.tasks.token_classification.token_classification import TokenClassification

USUAL = ["B-PER I-PER O", "O B-LOC", "O"]


def table(*sentences: str) -> TaggedTable:
    tags = [sentence.split() for sentence in sentences]
    words = [[f"w{place}" for place in range(len(row))] for row in tags]
    return TaggedTable(name="file", words=words, tags=tags, lines=range(1, len(tags) + 1))


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
    assert form_of({}) == ({}, {}) and not look_like_types({}) and not are_of_another_form({})
    assert read() == ([], []) and read("O O") == (["O O"], [])
    assert form_of(collections.Counter(["O", "NN"])) == ({}, {"NN": 1})


def test_a_model_in_io_keeps_where_entities_start():
    examples = TokenClassification(("O", "I-PER")).examples(table("B-PER B-PER I-PER", "O"), [])
    assert (examples.labels.tolist(), examples.starts.tolist()) == ([1, 1, 1, 0], [True, True, False, False])


def test_one_foreign_line_of_a_file_is_named(write):
    content = "".join(f"a B-X\n{'% note' if i == 7 else 'c I-X'}\n\n# a comment\n" for i in range(20))
    with refused(r"all but O have one\. Received: 'note' for '%' in word 2 of .*a\.conll, line 29;"):
        load_data(DataConfig(task=SENTENCES, train_file=write("a.conll", content)))
