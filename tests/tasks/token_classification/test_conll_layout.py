"""CoNLL's relatives: comments, running numbers, CoNLL-U's ranges; and words that look like them."""

import io
import pathlib
import re

import pytest

from tests.support.refusals import refused
from tfbert.config.data import DataConfig
from tfbert.errors import UsageError
from tfbert.tasks.token_classification import conll
from tfbert.tasks.token_classification.conll import looks_like_conll, open_conll
from tfbert.tasks.token_classification.tagged import holds_tags, read_sentences


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
OF_CONLLU = ["de/ADP le/DET pain/NOUN", "Ah/INTJ"]
TWO = [ANN, OSLO]

RELATIVES = {
    "GermEval": (GERMEVAL, {"text_column": ["1"], "label_column": "2"}, ["Ann/B-PER ging/O", OSLO]),
    "GermEval, columns found": (GERMEVAL, {}, ["Ann/O ging/O", "Oslo/B-PER"]),
    "UNER": (UNER, {}, TWO),
    "MultiCoNER": (MULTICONER, {}, TWO),
    "MultiCoNER, spaces": (MULTICONER.replace("\t", " "), {}, TWO),
    "CoNLL-U": (CONLLU, {}, OF_CONLLU),
    "CoNLL-U, XPOS": (CONLLU, {"label_column": "4"}, ["de/P le/D pain/N", "Ah/I"]),
    "CoNLL-2012": (
        "#begin document (a); part 000\na 0 0 Ann NNP B-PER\na 0 1 left VBD O\n\na 0 0 Oslo NNP B-LOC\n#end document\n",
        {},
        TWO,
    ),
    "CoNLL-2012, coreference": (CONLL_2012.format("B-PER", "B-LOC"), {}, TWO),
    "MIT": ("B-PER\tAnn\nO\tleft\n\nB-LOC\tOslo\n", {}, TWO),
    "MIT, the tags named": ("B-PER Ann\nO left\n\nB-LOC Oslo\n", {"label_column": "0"}, TWO),
    "words that look like tags": ("B-12\tB-VIT\nO\tO\n\nO\tO\n", {}, ["B-12/B-VIT O/O", "O/O"]),
    "CoNLL-2003": ("-DOCSTART- -X- O\n\nAnn NNP B-PER\nleft VBD O\n\n-DOCSTART-\n\nOslo NNP B-LOC\n", {}, TWO),
    "numbers from 0": ("0 Ann B-PER\n1 left O\n\n0 Oslo B-LOC\n", {}, TWO),
    "numbers of the file": ("7 Ann B-PER\n8 left O\n\n9 Oslo B-LOC\n", {}, TWO),
    "numbers of sentences": ("1 Ann B-PER\n1 left O\n\n2 Oslo B-LOC\n", {}, TWO),
    "numbers of sentences and words": ("1 1 Ann B-PER\n1 2 left O\n\n2 1 Oslo B-LOC\n", {}, TWO),
    "numbers with a stop": ("1. Ann B-PER\n2. left O\n\n1. Oslo B-LOC\n", {}, TWO),
    "names of words": ("s1_1 Ann B-PER\ns1_2 left O\n\ns2_1 Oslo B-LOC\n", {}, TWO),
    "WebAnno": ("#Text=x\n1-1\t0-3\tAnn\tB-PER\n1-2\t4-8\tleft\tO\n\n2-1\t9-13\tOslo\tB-LOC\n", {}, TWO),
    "numbers behind": ("Ann 1 B-PER\nleft 2 O\n\nOslo 1 B-LOC\n", {}, TWO),
    "WebAnno's head": ("#FORMAT=x\n\n\n#Text=Ann left\nAnn\tB-PER\nleft\tO\n\n#Text=Oslo\nOslo\tB-LOC\n", {}, TWO),
    "another program's": (
        "# x\n#\n#y\nAnn B_PER\n# inside O B_PER\nleft O\n# at the end\n\n# alone\n\nOslo B_LOC\n# z",
        {},
        ["Ann/B_PER left/O", "Oslo/B_LOC"],
    ),
}


@pytest.mark.parametrize(("content", "options", "expected"), RELATIVES.values(), ids=RELATIVES)
def test_relatives_of_conll(content, options, expected):
    found, notes = read(content, **options)
    assert found == expected
    assert read(content.replace("\n", "\r\n"), **options)[0] == expected
    words = [" ".join(word.rpartition("/")[0] for word in line.split()) for line in expected]
    columns = {key: value for key, value in options.items() if key == "text_column"}
    assert read(content, tags="none", **columns)[0] == words, "predict reads the same words"
    has_comments = any(line.startswith("#") for line in content.splitlines())
    assert any("comment left out" in note or "comments left out" in note for note in notes) == has_comments


@pytest.mark.parametrize("content", ["# newdoc\n{}", "{}\n# newdoc", "{}# newdoc", "\n\n# newdoc\n\n{}"])
@pytest.mark.parametrize(("separator", "tags"), [(" ", TWO), ("\t", TWO), (" ", ["Ann/NOUN left/VERB", "Oslo/NOUN"])])
def test_one_comment_changes_nothing(content, separator, tags):
    plain = "\n\n".join(line.replace(" ", "\n").replace("/", separator) for line in tags) + "\n"
    for comment in ("# newdoc", f"#{separator}newdoc", "# newdoc id = 3", "#end document", "#", "#newpar"):
        found, notes = read(content.replace("# newdoc", comment).format(plain))
        assert found == tags, comment
        assert "1 comment left out" in notes[-1] and repr(comment) in notes[-1]


SENTENCES = [
    "Ann/NNP/B-PER left/VBD/O Oslo/NNP/B-LOC for/IN/O the/DT/O big/JJ/O city/NN/O",
    "of/IN/O London/NNP/B-LOC in/IN/O May/NNP/O and/CC/O",
    "Bob/NNP/B-PER met/VBD/O Mary/NNP/B-PER Smith/NNP/I-PER at/IN/O Acme/NNP/B-ORG Corp/NNP/I-ORG yesterday/NN/O",
    "with/IN/O five/CD/O old/JJ/O friends/NNS/O ././O",
    "five/CD/O",
]
TAGGED = [re.sub("/[^/ ]+/", "/", sentence) for sentence in SENTENCES]


def with_places(before, *, behind=lambda *_: (), has_blank=True, has_pos=False):
    """A file with further columns, made of the sentence, the word in it, the word in the file, and its characters."""
    lines, place, start = [], 0, 0
    for sentence, words in enumerate(SENTENCES):
        for number, (word, pos, tag) in enumerate(each.split("/") for each in words.split()):
            place, start, end = place + 1, start + len(word) + 1, start + len(word)
            facts = (sentence, number, place, start - len(word) - 1, end, pos)
            lines.append([*before(*facts), word, *([pos] if has_pos else []), tag, *behind(*facts)])
        lines += [[]] * has_blank
    return "".join("\t".join(map(str, line)) + "\n" for line in lines)


PLACES = {
    "offsets": lambda s, n, i, a, b, pos: (f"{a}-{b}",),
    "offsets in two columns": lambda s, n, i, a, b, pos: (a, b),
    "offsets in brackets": lambda s, n, i, a, b, pos: (f"({a},{b})",),
    "the file": lambda s, n, i, a, b, pos: ("news.txt",),
    "documents": lambda s, n, i, a, b, pos: (("news", "blog", "news", "mail", "chat")[s],),
    "numbered documents": lambda s, n, i, a, b, pos: (f"PMID{s // 2}",),
    "documents and offsets": lambda s, n, i, a, b, pos: ("news.txt", a, b),
    "lines, blank ones too": lambda s, n, i, a, b, pos: (i + s,),
    "sentences": lambda s, n, i, a, b, pos: (s,),
    "times": lambda s, n, i, a, b, pos: (f"{i * 0.31:.2f}",),
    "nothing": lambda s, n, i, a, b, pos: ("_",),
}


@pytest.mark.parametrize("before", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("has_pos", [False, True])
def test_columns_that_say_where_a_word_is_are_not_the_words(before, has_pos):
    content = with_places(before, has_pos=has_pos)
    found, notes = read(content)
    assert found == TAGGED
    assert "the words are in column" in notes[0] and "column 0 holds" in notes[0]
    words = [" ".join(word.partition("/")[0] for word in sentence.split()) for sentence in SENTENCES]
    assert read(content, tags="none")[0] == words


IN_DOUBT = {
    "T1": ((lambda s, n, i, a, b, pos: (f"T{i}",)), 1, "'T1', 'T2', 'T3' in column 0 and 'Ann', 'left', 'Oslo'"),
    "T1 and offsets": ((lambda s, n, i, a, b, pos: (f"T{i}", f"{a}-{b}")), 2, "'T1', .* in column 0 and 'Ann', 'left'"),
    "parts of speech": ((lambda s, n, i, a, b, pos: (pos,)), 1, "'NNP', 'VBD', 'IN' in column 0 and 'Ann', 'left'"),
    "counts": ((lambda s, n, i, a, b, pos: (13 * i % 29,)), 1, "'13', '26', '10' in column 0 and 'Ann', 'left'"),
    "hashes": ((lambda s, n, i, a, b, pos: (f"{(977 * i) % 65536:04x}x",)), 1, "'03d1x', '07a2x', .* and 'Ann'"),
}


@pytest.mark.parametrize(("before", "column", "message"), IN_DOUBT.values(), ids=IN_DOUBT)
def test_the_user_says_which_column_holds_the_words(before, column, message, write):
    content = with_places(before)
    for options in ({}, {"tags": "none"}):
        said = rf"clear which column.*{message}.*--text_column={column} or --text_column=0"
        with pytest.raises(UsageError, match=said):
            read(content, **options)
    assert read(content, text_column=[str(column)])[0] == TAGGED
    path = pathlib.Path(write("a.tsv", content))
    assert holds_tags(path), "so that the message is about the words"


@pytest.mark.parametrize("between", [" ", " _ x "])
def test_tabs_separate_all_columns_or_none(between):
    content = with_places(lambda *_: (), has_pos=True)
    lines = [line.replace("\t", between, 1) for line in content.split("\n")]
    with pytest.raises(UsageError, match=f"either all columns or none.*blanks, such as 'Ann{between}NNP' in column 0"):
        read("\n".join(lines))
    assert read("\n".join(lines), text_column=["0"])[0][0].startswith(f"Ann{between}NNP/")
    some = with_places(lambda *_: ()).replace("Oslo", "New York").replace("Ann", "Ann Lee")
    assert read(some)[0][0].startswith("Ann Lee/"), "words of more than one, as names may be"


UNSEPARATED = {
    "sentences": ((lambda s, n, i, a, b, pos: (s,)), {}, "'0' to '1'"),
    "words of sentences": ((lambda s, n, i, a, b, pos: (n,)), {}, "'6' to '0'"),
    "documents": ((lambda s, n, i, a, b, pos: (("news", "blog", "web", "mail", "chat")[s],)), {}, "'news' to 'blog'"),
    "a column that the user skips": ((lambda s, n, i, a, b, pos: (s,)), {"text_column": ["1"]}, "'0' to '1'"),
}


@pytest.mark.parametrize(("before", "options", "places"), UNSEPARATED.values(), ids=UNSEPARATED)
def test_sentences_without_blank_lines_are_refused_where_a_column_shows_it(before, options, places):
    with pytest.raises(UsageError, match=rf"blank line ends a sentence.*column 0 goes from {places} without one"):
        read(with_places(before, has_blank=False), **options)


def test_numbers_of_sentences_behind_the_words_show_it_too():
    content = with_places(lambda *_: (), behind=lambda s, *_: (s,), has_blank=False)
    with pytest.raises(UsageError, match="blank line ends a sentence.*column 2 goes from '0' to '1' without one"):
        read(content, label_column="1")
    ends = with_places(lambda *_: (), behind=lambda s, n, *_: (int(n == len(SENTENCES[s].split()) - 1),))
    assert read(ends, label_column="1")[0] == TAGGED, "a 1 for the last word of a sentence"


def test_healthy_words_stay_in_the_first_column():
    plain = with_places(lambda *_: (), has_pos=True)
    for content in (plain, with_places(lambda *_: ())):
        assert read(content) == (TAGGED, ()) and read(content, text_column=["0"])[0] == TAGGED
    words = ["Ann/NNP", "left/VBD", "Oslo/NNP", "./."] * 20
    parsed = ""
    for n, (word, pos) in enumerate((each.split("/") for each in words), 1):
        ends = (7 * n % 5, "dep", f"{7 * n % 5}:dep{n % 25}", f"start_char={6 * n}|end_char={6 * n + 5}")
        columns = (n, word, word, pos, "_", "_", *ends)
        parsed += "\t".join(map(str, columns)) + "\n"
    assert read(parsed)[0] == [" ".join(words)], "as UDPipe and Stanza write"
    tags = ["O O O O O O B-x I-x", "O O O O O O O O O B-x", "O O B-x O O O O O O", "B-x O O O O O"] * 9
    tags_first = "\n\n".join("\n".join(f"{tag}\tw{i}" for i, tag in enumerate(own.split())) for own in tags)
    assert read(tags_first)[0] == [" ".join(f"w{i}/{tag}" for i, tag in enumerate(own.split())) for own in tags]
    assert read(tags_first, tags="none")[0][0] == "w0 w1 w2 w3 w4 w5 w6 w7"
    assert read("no UH O\nno UH O\n")[0] == ["no/O no/O"]
    assert read("1914 CD B-YEAR\n- : O\n1918 CD B-YEAR\n\nAnn NNP O\n")[0] == ["1914/B-YEAR -/O 1918/B-YEAR", "Ann/O"]
    words = "".join(f"w{place * place % 7} {'NN' if place % 2 else 'VB'} B-x{place % 3}\n" for place in range(80))
    assert read(words)[0][0].startswith("w0/B-x0 w1/B-x1")


BEHIND = {"sentences": lambda s, n, i, a, b, pos: (s,), "scores": lambda s, n, i, a, b, pos: (f"0.{50 + i}",)}


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND)
def test_numbers_beside_entity_tags_are_not_the_tags(behind):
    content = with_places(lambda *_: (), behind=behind)
    with pytest.raises(UsageError, match="clear which column holds the tags.*--label_column=1 or --label_column=2"):
        read(content)
    assert read(content, label_column="1")[0] == TAGGED


WORDS = {
    "WNUT17": ("#win\tO\n#\tO\n#Oslo\tB-x\n# 1\tO\n\nleft\tO\n", ["#win/O #/O #Oslo/B-x # 1/O", "left/O"]),
    "a type of its own": ("#\tB-sign\n\nAnn\tB-PER\n", ["#/B-sign", "Ann/B-PER"]),
    "only hashtags": ("#a O\n#b B-x\n", ["#a/O #b/B-x"]),
    "pieces of words": ("Ann B-PER\n##a X\n##b X\n", ["Ann/B-PER ##a/X ##b/X"]),
    "the Penn Treebank": ("# # O\n10 CD O\n\nAnn NNP B-PER\n", ["#/O 10/O", "Ann/B-PER"]),
    "the Penn Treebank's tags": ("# #\n10 CD\n\nAnn NNP\n", ["#/# 10/CD", "Ann/NNP"]),
    "symbols": ("# SYM\n10 NUM\n\nAnn PROPN\n", ["#/SYM 10/NUM", "Ann/PROPN"]),
    "no entity so far": ("# O\nleft O\n", ["#/O left/O"]),
    "scores": ("2-1 O\nAnn B-PER\n", ["2-1/O Ann/B-PER"]),
    "words with numbers": ("w1 O\nw2 B-x\n\nw1 O\n", ["w1/O w2/B-x", "w1/O"]),
    "a number alone": ("1 O\n\n7 O\nleft O\n", ["1/O", "7/O left/O"]),
}


@pytest.mark.parametrize(("content", "expected"), WORDS.values(), ids=WORDS)
def test_words_that_start_with_a_hash_stay_words(content, expected):
    found, notes = read(content)
    assert found == expected
    assert not any("left out" in note for note in notes)
    assert [note for note in notes if "SYM" not in note] == []


def test_words_alone_are_words():
    assert read("#a\n#b\n\n#\n1\n", tags="none") == (["#a #b", "# 1"], ())
    found, notes = read("# sent 1\nAnn\nleft\n\n# sent 2\nOslo\n", tags="none")
    assert found == ["Ann left", "Oslo"] and "2 comments left out" in notes[0]


def test_what_was_guessed_is_said():
    found, notes = read("# newdoc\nAnn noun\nleft verb\n# sym\n")
    assert found == ["Ann/noun left/verb #/sym"]
    assert "1 comment left out: lines that start with #; the first is line 1: '# newdoc'" in notes[0]
    assert notes[1].startswith("warning: ") and "that no other word has" in notes[1] and "line 4: '# sym'" in notes[1]
    _, notes = read(CONLLU)
    assert "words are in column 1; column 0 holds their places" in notes[0]
    assert "tags are in column 3, UPOS" in notes[1]
    assert "2 multiword ranges and empty nodes" in notes[3] and "line 4" in notes[3]
    assert "--label_column=2 takes others" in read(GERMEVAL)[1][1]
    _, (note,) = read("Ann\tB-PER\tNNP\nleft\tO\tVBD\n\nOslo\tB-LOC\tNNP\n")
    assert note.startswith("warning: ") and "the last, but column 1 holds entity tags; --label_column=1" in note


BAD = {
    "numbers as words": (GERMEVAL, {"text_column": ["0"]}, "numbers.*text_column=0 for .*, with '1'. Pass another"),
    "numbers and words": ("1 Ann\n2 left\n\n1 Oslo\n", {}, "column 1 of 2 for both"),
    "numbers and tags": ("Ann O\n# newdoc x O\nleft\n", {}, "must have 2 columns.* Received: 1 in .*, line 3"),
    "another separator": ("Ann\tO\n# O\n", {}, "must have 2 columns.* Received: 1 in .*, line 2"),
    "a hashtag without a tag": ("#win\tO\n#lost\nAnn\tB-PER\n", {}, "must have 2 columns.* Received: 1 in .*, line 2"),
    "the first line": ("A title of a file\nAnn\tO\nleft\tO\n", {}, "must have 2 columns.*Received: 1 in .*, line 1"),
    "coreference": (CONLL_2012.format("(PER)", "(LOC)"), {}, "coreference.* column 7, the last. Pass --label_column"),
    "tags first": ("B-PER NNP Ann\nO VBD left\n", {}, "'B-PER', 'O' in column 0 and .*Pass --text_column=1 or"),
    "tags for words": (
        "Ann B-PER\nleft O\n",
        {"text_column": ["1"], "label_column": "0"},
        "text_column=1 for .*, with 'B-PER'",
    ),
    "comments alone": ("# a b\n\n# c\n", {}, "at least one sentence. Received: .* with none but comments"),
    "a header": (
        "Sentence #\tWord\tTag\n1\tAnn\tO\n1\tleft\tO\n",
        {"tags": "none"},
        "have no header.*'Word' with the tag 'Tag'",
    ),
}


@pytest.mark.parametrize(("content", "options", "message"), BAD.values(), ids=BAD)
def test_what_is_refused_names_its_line(content, options, message):
    with refused(message):
        read(content, **options)


def test_a_comment_beyond_the_first_lines(monkeypatch):
    monkeypatch.setattr(conll, "_HEAD_LINES", 4)
    comments = "# a b\n" * 11
    found, notes = read(f"{comments}Ann B-PER\nleft O\n\n{comments}# x\n#\nOslo B-LOC\n")
    assert found == TWO and "24 comments" in notes[0]


def test_the_file_comes_back_with_a_column_more():
    sentences = open_conll(io.BytesIO(CONLLU.encode()), tags="none").read(())
    again = "".join(s.with_column([f"<{word}>" for word in s.words]) for s in sentences)
    for line, new in zip(CONLLU.splitlines(), again.splitlines(), strict=True):
        number, _, rest = line.partition("\t")
        word = "_" if "-" in number or "." in number else f"<{rest.partition(chr(9))[0]}>"
        assert new == (f"{line}\t{word}" if rest else line)
    content = "# a\n\n# b\nAnn B-PER\n# in O\n# side O\nleft O\n# c\n\n# d\n\nOslo B-LOC\n# e\n\n# f\n"
    sentences = open_conll(io.BytesIO(content.encode())).read(())
    expected = content.replace("B-PER", "B-PER p").replace("left O", "left O p").replace("B-LOC", "B-LOC p")
    assert "".join(s.with_column(["p"] * len(s.words)) for s in sentences) == expected


def test_bad_sentences_and_lines_of_words(write):
    path = write("a.conllu", CONLLU.replace("1\tAh\tah", "1\tAh") + "\n# x\n1\tOh\toh\tINTJ\t_\t_\t_\t_\t_\t_\n")
    table = read_sentences(path, DataConfig(skip_bad_rows=True))
    assert (table.words, table.lines) == ([["de", "le", "pain"], ["Oh"]], [5, 13])
    assert table.where_word(0, 2) == f"{path}, line 7" and "1 of 3 sentences skipped" in table.notes[-1]


LIKE = {
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
    assert looks_like_conll(path) is expected and holds_tags(path) is expected
    if name == "a.tsv" and content.startswith("#\t"):
        assert holds_tags(path, DataConfig(text_column=["1"], label_column="2"))
        assert not holds_tags(path, DataConfig(text_column=["1"], label_column="ner"))
        path = pathlib.Path(write(name, GERMEVAL.replace("B-PER\n", "O\n")))
        assert not holds_tags(path, DataConfig(label_column="3"))


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


@pytest.mark.parametrize(
    "row, is_said",
    [
        ("Ella NNP B-X B-X\nsang VBD O O\n\n", True),
        ("Ella B-X B-Y\nsang O B-X\n\n", True),
        ("Ella NOUN NOUN\nsang VERB NOUN\n\n", True),
        ("Ella NNP B-NP B-PER\nsang VBD B-VP O\n\n", False),
        ("Ella NOUN NNP\nsang VERB VBD\n\n", False),
        ("Ella _ B-X\nsang _ O\n\n", False),
    ],
)
def test_right_and_predicted_tags_side_by_side(tmp_path, row, is_said):
    """As conlleval reads them."""
    path = tmp_path / "a.conll"
    path.write_text(5 * row)
    said = [note for note in read_sentences(path).notes if "are predicted" in note]
    assert len(said) == is_said and all(note.startswith("warning: ") for note in said)
    last = len(row.splitlines()[0].split()) - 1
    assert all(f"column {last}, the last, but column {last - 1} holds such too" in note for note in said)
