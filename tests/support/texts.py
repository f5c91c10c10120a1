"""Texts that are hard to tokenize, a small vocabulary for them, and Hugging Face's tokenizer over it."""

import functools
import inspect
import random
import unicodedata

import tokenizers
from transformers import BertTokenizerFast

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CHARS = (
    [chr(c) for c in range(0x21, 0x7F)]
    + list("äöüßéçñøłđıİſÆŒ¿¡«»§°½²´`€£…–—‘’“”„†•™→∑√")
    + list("αβγδεζηθικλμνξοπρσςτυφχψωΣΑΩάйабвгдежзиклмнопрстуфхцчшщъыьэюяЖЯ")
    + list("אבגדשלום‏אبتثجحسلامकखगनमस्तेกขคงัไทยაბგ가나다한글ᄒ")
    + list("中文字日本語のテスト漢々〆，。「」・")
    + list("😀👩👨👧🏽❤️🇹🇷🤖𝔸𝒷𠀀")
)
WORDS = (
    "the quick brown fox jump ##ing ##ed over un ##believ ##able movie . ##ly istanbul strasse [unused1] ## ### # ##."
)
VOCAB = list(dict.fromkeys(SPECIAL + WORDS.split() + [""] + CHARS + ["##" + char for char in CHARS]))

# What the docstring of `normalizer` says may differ.
NEW_LETTERS = {0x1C89, 0x2C2F, 0xA7C0, 0xA7CB, 0xA7CC, 0xA7D0, 0xA7D6, 0xA7D8, 0xA7DA, 0xA7DC}
NEW_LETTERS |= set(range(0x10570, 0x10596)) - {0x1057B, 0x1058B, 0x10593} | set(range(0x10D50, 0x10D66))
if tuple(map(int, tokenizers.__version__.split(".")[:2])) >= (0, 22):
    NEW_LETTERS |= {0xA7CE, 0xA7D2, 0xA7D4, *range(0x16EA0, 0x16EB9)}
NEW_COMPOSED = {0x105C9, 0x105E4, 0x11383, 0x11385, 0x1138E, 0x11391, 0x113C5, 0x113C7, 0x113C8, 0x11938}
NEW_COMPOSED |= set(range(0x16121, 0x16129)) | set(range(0x16D68, 0x16D6B))

TEXTS = [
    "",
    " ",
    "\t\r\n\x0b\x0c\x1c\x85\u2028\u2029",
    "The quick brown fox jumped over: unbelievably!  The movie.",
    "THE Quick\tbrown\nfox\rjumping\xa0over\u3000the\u2009fox",
    "co-operate o'clock #hashtag ##ing ## ### a##ing @user $5 5% a_b ^x `y` ~z~ [unused1] [ unused1 ]",
    "naïve café Ångström Ünïcödé ÇA façade Ñandú e\u0301e\u0323\u0301 \u0301 a\u0301\u0301",
    "İstanbul ISTANBUL ıstanbul Diyarbakır İİ I\u0307 J\u0307 Į\u0303 Ì Í Ĩ",
    "Straße STRASSE ẞ ﬁn ﬀ Ǆ ǅ ſ K Å",
    "ΑΣ ΑΣ. ΑΣΑ ΟΔΥΣΣΕΥΣ σς Σ ΆΈ ἈΛΦΑ",
    "привет МИР Ёлка Й и\u0306",
    "שָׁלוֹם سَلَام नमस्ते ไทย ทั้ง क\u094dष 한글 \u1112\u1161\u11ab 각",
    "中文字 日本語のテスト。漢字、中a文1字 \uf900\ufa0e \U0002f800 𠀀a𠀀",
    "\U0002b820\U0002b91f \U0002b920 a\U0002b820b \u9fff\u3400\u4dbf\ua000",
    "😀 a😀b 👩\u200d👩\u200d👧 ❤\ufe0f 👋🏽 🇹🇷 1\ufe0f\u20e3",
    "zero\u200bwidth\u200cnon\u200djoin \ufeffbom soft\xadhyphen \u2066isolate\u2069 \u202ertl \u180e \U000e0041",
    "nul\x00byte bell\x07 del\x7f esc\x1b[0m \ufffd\ufffe\uffff \ue000 \U0010fffd",
    "\ud7ff\ue001 𝔸𝒷 ½ ² ´ ￼ \u0378 \U000e01ef",
    "new punctuation a\u2e43b \u061da x\u2e52y; old \u166d \U000111c9 mark\u08ca\u1ac0\u1df6 \u1734",
    "\u1885\u1886 \u08e2 \U000110cd \U00013430 \u0890",
    "e\u0301" * 100 + " " + "e\u0301" * 101,
]

CASINGS = {"uncased": {"do_lower_case": True}, "cased": {"do_lower_case": False}}
CASINGS["uncased_accents"] = {"do_lower_case": True, "strip_accents": False}
CASINGS["cased_stripped"] = {"do_lower_case": False, "strip_accents": True}
CASINGS["chinese_words"] = {"do_lower_case": True, "tokenize_chinese_chars": False}


def random_texts(count):
    """Texts of characters from all over Unicode, without those that the docstring of `normalizer` lists."""
    blocks = [range(0x20, 0x7F), range(0x80, 0x250), range(0x300, 0x370), range(0x370, 0x530), range(0x590, 0xE80)]
    blocks += [range(0x1100, 0x1200), range(0x1E00, 0x2070), range(0x2070, 0x2C00), range(0x2E00, 0x3100)]
    blocks += [range(0x4E00, 0x4F00), range(0xAC00, 0xB000), range(0xE000, 0xE010), range(0xFE00, 0x10000)]
    blocks += [range(0x1F1E6, 0x1F700), range(0x2B800, 0x2B940), range(0xE0000, 0xE0200), range(0, 0x20)]
    blocks += [range(0x10000, 0x1F000), [ord(char) for char in CHARS], [ord(" ")], [ord("-")]]
    rng = random.Random(0)
    texts = []
    for _ in range(count):
        chosen = rng.choices(blocks, k=rng.randint(1, 4))
        codes = [rng.choice(rng.choice(chosen)) for _ in range(rng.randint(1, 40))]
        texts.append("".join(chr(code) for code in codes if code not in NEW_LETTERS | NEW_COMPOSED))
    return texts


def long_words():
    """Words of about as many characters as a word may have, and far more."""
    texts = []
    for char in ["a", "Z", "я", "Ж", "中", "の", "𝔸", "ß", "é", "e\u0301", "İ", "각", "-", "a\u200b", "a\ufffd"]:
        texts += [char * n for n in (50, 51, 100, 101, 400, 401, 1000)]
        texts += [f"the {char * n}-{char * 100} {char * (n + 1)}, fox" for n in (99, 100, 101)]
    return texts


def all_texts(count):
    """So many random ones among them."""
    return [*TEXTS, *random_texts(count), *long_words()]


def has_ordered_mark(text):
    """Whether a text has a mark that normalisation sorts and keeps: see the docstring of `offsets`."""
    marks = (char for char in unicodedata.normalize("NFD", text) if unicodedata.combining(char))
    return any(unicodedata.category(char) != "Mn" for char in marks)


def after_marks(reference, text, end):
    """The end of a piece of Hugging Face's, moved past what is dropped and part of the same character on the screen."""
    dropped = functools.partial(_is_dropped, reference)
    while end < len(text) and (unicodedata.category(text[end]) == "Mn" or text[end] in JOINERS) and dropped(text[end]):
        end += 1
    return end


JOINERS = {"\u200c", "\u200d", *map(chr, range(0xE0020, 0xE0080))}


@functools.cache
def _is_dropped(reference, char):
    return not reference.backend_tokenizer.normalizer.normalize_str(char)


def write_vocab(path, vocab):
    path.write_text("".join(token + "\n" for token in vocab), encoding="utf-8", newline="\n")
    return path


def hugging_face(vocab_file, **casing):
    parameters = inspect.signature(BertTokenizerFast.__init__).parameters
    name = "vocab" if "vocab" in parameters else "vocab_file"  # In transformers 5, and in 4.
    return BertTokenizerFast(**{name: str(vocab_file)}, **casing)
