"""CoNLL files as they occur, and those that cannot be read; its relatives: comments, running numbers, CoNLL-U's ranges;
and words that look like them."""

import io
import itertools
import pathlib

import pytest

from tests.support.refusals import refused
from tfbert import DataConfig, UsageError
from tfbert.tasks.token_classification import conll
from tfbert.tasks.token_classification.conll import looks_like_conll, open_conll
from tfbert.tasks.token_classification.tagged import holds_words, read_sentences


def read(content, **options):
    """The sentences as `Ann/B-PER left/O` (words alone where there are no tags), and the notes."""
    file = open_conll(io.BytesIO(content.encode()), **options)
    sentences = list(file.read(()))
    if errors := [sentence for sentence in sentences if isinstance(sentence, UsageError)]:
        raise errors[0]
    shown = [" ".join(map("/".join, zip(s.words, s.tags, strict=True)) if s.tags else s.words) for s in sentences]
    return shown, file.notes()


GERMEVAL = (
    "#\thttp://de.example/A\t[2009-10-17]\t\n1\tAnn\tB-PER\tO\n2\tging\tO\tO\n\n"
    "#\thttp://de.example/B\t[2009-10-18]\t\n1\tOslo\tB-LOC\tB-PER\n"
)
UNER = (
    "# sent_id = a-1\n# text = Ann left\n1\tAnn\tB-PER\t-\tann1\n2\tleft\tO\t-\tann1\n\n"
    "# sent_id = a-2\n1\tOslo\tB-LOC\t-\tann1\n"
)
MULTICONER = "# id 1\tdomain=en\nAnn _ _ B-PER\nleft _ _ O\n\n# id 2\tdomain=en\nOslo _ _ B-LOC\n"
CONLLU = (
    "# newdoc\n# sent_id = 1\n# text = du pain\n1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_\n1\tde\tde\tADP\tP\t_\t3\tcase\t_\t_\n"
    "2\tle\tle\tDET\tD\t_\t3\tdet\t_\t_\n3\tpain\tpain\tNOUN\tN\t_\t0\troot\t_\tSpaceAfter=No\n"
    "3.1\tx\tx\tVERB\tV\t_\t_\t_\t_\t_\n\n1\tAh\tah\tINTJ\tI\t_\t0\troot\t_\t_\n"
)
CONLL_2012 = "#begin (a)\na 0 0 Ann NNP * {} (3\na 0 1 left VBD * O 3)|(4)\n\na 0 0 Oslo NNP * {} -\n#end document\n"
ANN, OSLO = "Ann/B-PER left/O", "Oslo/B-LOC"

TWO = [ANN, OSLO]

FIRST, SECOND = {"text_column": ["1"]}, {"text_column": ["2"]}
RELATIVES = {
    "GermEval": (GERMEVAL, FIRST | {"label_column": "2"}, ["Ann/B-PER ging/O", OSLO]),
    "GermEval, inner tags": (GERMEVAL, FIRST, ["Ann/O ging/O", "Oslo/B-PER"]),
    "UNER": (UNER, FIRST | {"label_column": "2"}, TWO),
    "MultiCoNER": (MULTICONER, {}, TWO),
    "CoNLL-U": (CONLLU, {}, ["de/ADP le/DET pain/NOUN", "Ah/INTJ"]),
    "CoNLL-U, XPOS": (CONLLU, {"label_column": "4"}, ["de/P le/D pain/N", "Ah/I"]),
    "CoNLL-2012": (CONLL_2012.format("B-PER", "B-LOC"), {"text_column": ["3"], "label_column": "6"}, TWO),
    "MIT": ("B-PER\tAnn\nO\tleft\n\nB-LOC\tOslo\n", FIRST | {"label_column": "0"}, TWO),
    "words that look like tags": ("B-12\tB-VIT\nO\tO\n\nO\tO\n", {}, ["B-12/B-VIT O/O", "O/O"]),
    "CoNLL-2003": ("-DOCSTART- -X- O\n\nAnn NNP B-PER\nleft VBD O\n\n-DOCSTART-\n\nOslo NNP B-LOC\n", {}, TWO),
    "numbers": ("0 Ann B-PER\n1 left O\n\n0 Oslo B-LOC\n", FIRST, TWO),
    "WebAnno": ("#Text=x\n1-1\t0-3\tAnn\tB-PER\n1-2\t4-8\tleft\tO\n\n2-1\t9-13\tOslo\tB-LOC\n", SECOND, TWO),
    "numbers behind": ("Ann 1 B-PER\nleft 2 O\n\nOslo 1 B-LOC\n", {}, TWO),
    "WebAnno's head": ("#FORMAT=x\n\n\n#Text=Ann left\nAnn\tB-PER\nleft\tO\n\n#Text=Oslo\nOslo\tB-LOC\n", {}, TWO),
    "another program's": ("# a b\n#\n#y\nAnn B-PER\n# inside O B-PER\nleft O\n# at the end\n\nOslo B-LOC\n#", {}, TWO),
}


@pytest.mark.parametrize(("content", "options", "expected"), RELATIVES.values(), ids=RELATIVES)
def test_relatives_of_conll(content, options, expected):
    found, notes = read(content, **options)
    assert found == expected
    assert read(content.replace("\n", "\r\n"), **options)[0] == expected
    words = [" ".join(word.rpartition("/")[0] for word in line.split()) for line in expected]
    columns = {key: value for key, value in options.items() if key == "text_column"}
    assert read(content, with_tags=False, **columns)[0] == words, "predict reads the same words"
    has_comments = any(line.startswith("#") for line in content.splitlines())
    assert any("left out, as comments" in note for note in notes) == has_comments


@pytest.mark.parametrize("content", ["# newdoc\n{}", "{}\n# newdoc", "{}# newdoc", "\n\n# newdoc\n\n{}"])
@pytest.mark.parametrize("tags", [TWO, ["Ann/NOUN left/VERB", "Oslo/NOUN"]])
def test_one_comment_changes_nothing(content, tags):
    plain = "\n\n".join(line.replace(" ", "\n").replace("/", " ") for line in tags) + "\n"
    for comment in ("# newdoc id = 3", "#end", "#"):
        found, notes = read(content.replace("# newdoc", comment).format(plain))
        assert found == tags and "1 line without a word left out" in notes[-1] and repr(comment) in notes[-1]
    message = "a word only if other words have its tag. Received: '# newdoc' in .*, line .*Delete it if it is a com"
    with refused(message):
        read(content.format(plain))


WRONG = {
    "offsets": ("0-3 Ann B-PER", "words"),
    "offsets in two columns": ("0 3 Ann B-PER", "words"),
    "offsets in brackets": ("(0,3) Ann B-PER", "words"),
    "the file": ("news.txt Ann B-PER", "words"),
    "nothing": ("_ Ann B-PER", "words"),
    "sentences": ("1 Ann NNP", "words"),
    "parts of speech in front": ("NNP Ann B-PER", "words"),
    "the tags": ("B-PER NNP Ann", "words"),
    "two columns, the tags first": ("B-PER Ann", "words"),
    "sentences behind": ("Ann B-PER 1", "tags"),
    "scores behind": ("Ann B-PER 0.51", "tags"),
    "parts of speech behind": ("Ann B-PER NNP", "tags"),
    "coreference behind": ("Ann B-PER (3", "tags"),
    "words in place of tags": ("NNP Ann", "tags"),
}


@pytest.mark.parametrize(("line", "what"), WRONG.values(), ids=WRONG)
def test_the_user_says_which_column_holds_what(line, what, write):
    lines = [line.replace("Ann", f"Ann{chr(97 + n // 26)}{chr(97 + n % 26)}") for n in range(30)]
    lines += [line.replace("Ann", "left").replace("B-PER", "O")]
    content = "\n".join(lines[:20]) + "\n\n" + "\n".join(lines[20:]) + "\n"
    message = rf"The words are in .*, where column \d cannot hold the {what}: 0: .*Pass the numbers before both\.$"
    with refused(message):
        read(content)
    columns = line.split()
    word, tag = columns.index("Ann"), min(columns.index(own) for own in columns if own in ("B-PER", "NNP"))
    named = {"text_column": [str(word)], "label_column": str(tag)}
    assert read(content, **named)[0][0].startswith(f"Annaa/{columns[tag]} Annab/")
    if "B-PER" in columns:  # So that the message is about the columns.
        assert holds_words(pathlib.Path(write("a.tsv", content.replace(" ", "\t"))))
    elif what == "words":
        with refused(message):
            read(content, with_tags=False)


def test_columns_that_nobody_named_are_said():
    note = (
        "standard input: the words are those of column 0, the tags those of column 2: 0: 'Ann', 'left', 'Oslo'; "
        "1: 'NNP', 'VBD'; 2: 'B-PER', 'O', 'B-LOC'; --text_column and --label_column take others"
    )
    content = "Ann NNP B-PER\nleft VBD O\n\nOslo NNP B-LOC\n"
    assert read(content) == (TWO, (note,))
    assert read(content, text_column=["0"], label_column="2") == (TWO, ())
    assert "the words are those of column 0: 0:" in read(content, with_tags=False)[1][0]
    assert "words are those of column 1, the tags those of column 3: 0: '1-2', '1'" in read(CONLLU)[1][0]
    assert read("Ann B-PER\nleft O\n\nOslo B-LOC\n") == (TWO, ()), "entities say which column is which"
    assert "the tags those of column 1: 0: 'NNP', 'VBD'; 1: 'Ann', 'left'" in read("NNP Ann\nVBD left\n")[1][0]


def test_tabs_separate_all_columns_or_none():
    lines = "Ann NNP\tB-PER\nleft VBD\tO\n"
    with refused("either all columns or none.*blanks, such as 'Ann NNP' in column 0"):
        read(lines)
    assert read(lines, text_column=["0"])[0] == ["Ann NNP/B-PER left VBD/O"]
    assert read("Ann Lee\tB-PER\nleft\tO\n")[0] == ["Ann Lee/B-PER left/O"], "words of more than one, as names may be"


def test_what_is_odd_but_healthy_is_read():
    assert read("no UH O\nno UH O\n")[0] == ["no/O no/O"]
    assert read("1914 CD B-YEAR\n- : O\n1918 CD B-YEAR\n\nAnn NNP O\n")[0] == ["1914/B-YEAR -/O 1918/B-YEAR", "Ann/O"]
    assert read("Ann B-NP O\nleft O O\n")[0] == ["Ann/O left/O"], "no entity in so short a file"
    many = "".join(f"w{place * place % 7} {'NN' if place % 2 else 'VB'} B-x{place % 3}\n" for place in range(80))
    assert read(many)[0][0].startswith("w0/B-x0 w1/B-x1")


WORDS = {
    "WNUT17": ("#win\tO\n#\tO\n#Oslo\tB-x\n# 1\tO\n\nleft\tO\n", ["#win/O #/O #Oslo/B-x # 1/O", "left/O"]),
    "a type of its own": ("#\tB-sign\n\nAnn\tB-PER\n", ["#/B-sign", "Ann/B-PER"]),
    "the Penn Treebank": ("# #\n10 CD\n\nAnn NNP\n", ["#/# 10/CD", "Ann/NNP"]),
    "no entity so far": ("# O\nleft O\n", ["#/O left/O"]),
    "scores": ("2-1 O\nAnn B-PER\n", ["2-1/O Ann/B-PER"]),
    "words with numbers": ("w1 O\nw2 B-x\n\nw1 O\n", ["w1/O w2/B-x", "w1/O"]),
    "no document's start": ("-DOCSTART-x O\nAnn B-PER\n", ["-DOCSTART-x/O Ann/B-PER"]),
    "a number alone": ("1 O\n\n7 O\nleft O\n", ["1/O", "7/O left/O"]),
}


@pytest.mark.parametrize(("content", "expected"), WORDS.values(), ids=WORDS)
def test_words_that_start_with_a_hash_stay_words(content, expected):
    sentences, notes = read(content)
    assert sentences == expected
    assert all("the words are those of column 0, the tags those of column 1" in note for note in notes)


def test_a_hash_with_a_tag_that_comes_after_the_first_lines_is_refused(monkeypatch):
    monkeypatch.setattr(conll, "_HEAD_LINES", 2)
    with refused("Received: '# SYM' in .*, line 6"):
        read("a NOUN\nb VERB\n\nc SYM\n\n# SYM\n")


def test_words_alone_are_words():
    assert read("#a\n#b\n\n#\n1\n", with_tags=False) == (["#a #b", "# 1"], ())
    assert read("I-95\n", with_tags=False) == (["I-95"], ())
    found, notes = read("# sent 1\nAnn\nleft\n\n# sent 2\nOslo\n", with_tags=False)
    assert found == ["Ann left", "Oslo"] and "2 lines without a word left out" in notes[0]


BAD = {
    "numbers and words": ("1 Ann\n2 left\n\n1 Oslo\n", {"text_column": ["1"]}, "column 1 of 2 for both"),
    "one column": ("a\nb\n", {}, "different columns.* column 0 of 1 for both in .* 0: 'a', 'b'.* or --mode=predict"),
    "a line without a tag": ("Ann O\n# newdoc x O\nleft\n", {}, "must have 2 columns.* Received: 1 in .*, line 3"),
    "the first line": ("A title of a file\nAnn\tO\nleft\tO\n", {}, "must have 2 columns.*Received: 1 in .*, line 1"),
    "tags for words": (
        "Ann B-PER\nleft O\n",
        {"text_column": ["1"], "label_column": "0"},
        "column 1 cannot hold the words: 0: 'Ann', 'left'; 1: 'B-PER', 'O'. Pass the",
    ),
    "comments alone": ("# a b\n\n# c\n\n# a O\n", {}, "at least one sentence. Received: .* none but comments"),
    "nothing": ("\n\n-DOCSTART- O\n\n", {}, "at least one sentence. Received: 'standard input' with none"),
    "headers": ("Sentence #\tWord\tTag\n1\tAnn\tO\n1\tleft\tO\n", {"with_tags": False}, "no header.*'Word', 'Tag'"),
    "an index": ("a O\n", {"label_column": "2"}, "label_column='2' for standard input with columns 0 to 1"),
    "no index": ("a O\n", {"label_column": "-1"}, "label_column='-1'"),
    "a name": ("a O\n", {"text_column": ["tokens"]}, "text_column='tokens'"),
    "two": ("a O\n", {"text_column": ["0", "1"]}, "text_column='0,1'"),
}


@pytest.mark.parametrize(("content", "options", "message"), BAD.values(), ids=BAD)
def test_what_is_refused_names_its_line(content, options, message):
    with refused(message):
        read(content, **options)


def test_a_comment_beyond_the_first_lines(monkeypatch):
    monkeypatch.setattr(conll, "_HEAD_LINES", 4)
    comments = "# a b\n" * 11
    found, notes = read(f"{comments}Ann B-PER\nleft O\n\n{comments}#\nOslo B-LOC\n")
    assert found == TWO and "23 lines" in notes[0]


LIKE = {
    "by its ending": ("a.conll", "a\n", True),
    "by its ending, .gz": ("a.iob.gz", "a\n", True),
    "tags": ("a.txt", "Ann B-PER\nleft O\n\nOslo B-LOC\n", True),
    "many columns": ("a.tsv.gz", "-DOCSTART-\t-X-\tO\n\nAnn\tNNP\tI-PER\n\nOslo\tNNP\tO\n", True),
    "one block": ("a.txt", "Ann B-PER\nleft O\n\n", False),
    "no entity": ("a.txt", "Ann O\n\nleft O\n", False),
    "parts of speech": ("a.txt", "Ann NNP\n\nleft VB\n", False),
    "columns that differ": ("a.txt", "Ann B-PER\n\nhe left O\n", False),
    "one column": ("a.txt", "B-PER\n\nO\n", False),
    "nothing": ("a.txt", "\n\n", False),
    "another ending": ("a.csv", "Ann B-PER\nleft O\n\nOslo B-LOC\n", False),
    "GermEval": ("a.tsv", GERMEVAL, True),
    "MultiCoNER": ("a.txt", MULTICONER, True),
    "a bare letter": ("a.tsv", "Ann\tB\nleft\tO\n\nOslo\tB\n", True),
    "underscores": ("a.txt", "Ann B_PER\nleft O\n\nOslo B_LOC\n", True),
    "ranges": ("a.conllu", "x", True),
    "UNER": ("a.iob2.gz", "x", True),
    "a last column without entities": ("a.tsv", GERMEVAL.replace("B-PER\n", "O\n"), True),
    "MIT": ("a.txt", "B-PER\tAnn\nO\tleft\n\nB-LOC\tOslo\n", True),
    "a header": ("a.tsv", "token\tlabel\nAnn\tB-PER\nleft\tO\n\nOslo\tB-LOC\n", True),
    "a table's header": ("a.tsv", "word\tlabel\ngood film\t1\n\nbad\t0\n", False),
    "comments of a table": ("a.tsv", "# text\tlabel\nAnn\t1\n\nleft\t2\n", False),
}


@pytest.mark.parametrize(("name", "content", "expected"), LIKE.values(), ids=LIKE)
def test_what_looks_like_conll(name, content, expected, write):
    path = pathlib.Path(write(name, content))
    assert looks_like_conll(path) is expected and holds_words(path) is expected
    if name == "a.tsv" and content.startswith("#\t"):
        assert holds_words(path, DataConfig(text_column=["1"], label_column="2"))
        assert not holds_words(path, DataConfig(text_column=["1"], label_column="ner"))
        path = pathlib.Path(write(name, GERMEVAL.replace("B-PER\n", "O\n")))
        assert not holds_words(path, DataConfig(label_column="3"))


def test_the_language_before_each_word_is_warned_of():
    _, notes = read("en:Ann B-PER\nen:left O\n\nen:Oslo B-LOC\n")
    assert [note for note in notes if "every word starts with 'en:'" in note] and "warning" in notes[0]
    assert read("en:Ann B-PER\nleft O\n\nen:Oslo B-LOC\n")[1] == ()


def test_a_file_without_blank_lines_is_warned_of(write):
    lines = "Ann B-PER\nleft O\n" * 200
    (note,) = read_sentences(pathlib.Path(write("a.conll", lines))).notes
    assert note.startswith("warning") and "one sentence of 400 words; a blank line" in note
    for content in (lines[:170], lines + "\n" + lines):
        assert read_sentences(pathlib.Path(write("a.conll", content))).notes == ()


# --- Sentences as they are read ---


def rows_of(content, **options):
    """(line, words, tags) of each sentence."""
    return [(s.line, s.words, s.tags) for s in open_conll(io.BytesIO(content.encode()), **options).read(())]


AS_READ = [(1, ["Ann", "left"], ["B-PER", "O"]), (4, ["Oslo"], ["B-LOC"])]


FORMS = [
    "Ann\tB-PER\nleft\tO\n\nOslo\tB-LOC\n",
    "Ann\tB-PER\nleft\tO\n\nOslo\tB-LOC",
    "Ann B-PER\nleft    O\n\nOslo B-LOC\n\n\n",
    "Ann NNP  I-NP B-PER\nleft VB O O\n \t\nOslo NNP O B-LOC\n",
    "Ann\tB-PER\r\nleft\tO\r\n\r\nOslo\tB-LOC\r\n",
    "\ufeffAnn\tB-PER\nleft\t O \n\nOslo\tB-LOC\n",
    "Ann B-PER\nleft O\n-DOCSTART- O\nOslo B-LOC\n-DOCSTART- O\n",
]


@pytest.mark.parametrize("content", FORMS)
def test_forms_of_one_file(content, write):
    assert rows_of(content) == AS_READ
    path = pathlib.Path(write("a.conll.gz", content))
    assert [(s.line, s.words, s.tags) for s in open_conll(path).read(())] == AS_READ


def test_words_without_tags():
    assert rows_of("Ann\nleft\n\nOslo\n", with_tags=False) == [(1, ["Ann", "left"], None), (4, ["Oslo"], None)]
    assert rows_of("Ann B-PER\n", with_tags=False) == [(1, ["Ann"], None)]
    assert rows_of("Ann\t\n", with_tags=False) == [(1, ["Ann"], None)]


def test_words_that_look_like_something_else():
    """A comment, quotes, and blanks of Unicode that are no column's end."""
    words = ["#", '"', "New York", "\xa0", "a\u2028b", "\u3000", "\x85", "，"]
    assert rows_of("".join(f"{word}\tO\n" for word in words)) == [(1, words, ["O"] * len(words))]
    words.remove("New York")
    assert rows_of("".join(f"{word}  O\n" for word in words)) == [(1, words, ["O"] * len(words))]


BAD_SENTENCES = {
    "columns": ("a\tO\nb\tO\tO\n\nc\tO\n", "must have 2 columns separated by tabs.*Received: 3 in .*, line 2"),
    "spaces": ("a O\nb c O\n\nc O\n", "must have 2 columns separated by spaces.*Received: 3 in .*, line 2"),
    "another separator": ("a\tO\nb O\n\nc\tO\n", "must have 2 columns separated by tabs.*Received: 1 in .*, line 2"),
    "no word": ("a\tO\n\tO\n\nc\tO\n", "must not be blank, .*Received: '' in column 0 of .*, line 2"),
    "blank word": ("a\tO\n  \tO\n\nc\tO\n", "must not be blank, .*Received: '  ' in column 0 of .*, line 2"),
    "no tag": ("a\tO\nb\t \n\nc\tO\n", "and needs a tag. Received: ' ' in column 1 of .*, line 2"),
    "bytes": (b"a\tO\nb\xff\tO\n\nc\tO\n", "must be UTF-8. Received: byte 0xff in .*, line 2"),
}


@pytest.mark.parametrize(("content", "message"), BAD_SENTENCES.values(), ids=BAD_SENTENCES)
def test_a_bad_sentence_is_an_error_in_its_place(content, message, write):
    path = pathlib.Path(write("a.conll", content))
    error, good = open_conll(path).read(())
    assert isinstance(error, UsageError) and (good.words, good.tags) == (["c"], ["O"])
    with refused(message):
        raise error
    assert str(path) in str(error)


def test_a_file_without_blank_lines_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(conll, "MOST_WORDS", 3)
    endless = itertools.chain([b"a O\n"] * 10, [b"\n"], itertools.cycle([b"b O\n", b"\n"]))

    class Endless(io.BytesIO):
        def __iter__(self):
            return endless

    found = open_conll(Endless()).read(())
    assert "at most 3 words, and a blank line ends it. Received: more words in standard input, from" in str(next(found))
    assert next(found).line == 12
    assert rows_of("a O\na O\na O\n") == [(1, ["a"] * 3, ["O"] * 3)]


def test_lines_of_words_as_they_were():
    content = "\n-DOCSTART- -X- O\n\nNew  NNP B-LOC \n#  #   O\n\n\n-DOCSTART- -X- O\nb NN O\n\n\n"
    found = [s.written for s in open_conll(io.BytesIO(content.encode())).read(())]
    assert found == [["New  NNP B-LOC  ", "#  #   O "], ["b NN O "]]
    assert [s.written for s in open_conll(io.BytesIO(b"a b\tO\r\n\r\nc\tO")).read(())] == [["a b\tO\t"], ["c\tO\t"]]
