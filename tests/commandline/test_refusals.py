"""What a command line is refused with: `refusals.txt` has each line with all that is said of it.

`python -m tests.commandline.test_refusals` writes what is said anew: read the difference.
"""

import contextlib
import pathlib
import re
import tempfile

import pytest

from tfbert.commandline import parse
from tfbert.config.run import FINETUNE, PRETRAIN
from tfbert.errors import UsageError, in_command

TABLE = pathlib.Path(__file__).with_name("refusals.txt")
ROWS = dict(re.findall(r"^(\w.*)\n((?:    .*\n)*)", TABLE.read_text(encoding="utf-8"), re.MULTILINE))
COMMANDS = {command.word: command for command in (FINETUNE, PRETRAIN)}


def said_of(words):
    """What is said of a command line, in an empty directory but for `rows.tsv`."""
    word, *arguments = words.split(" ")
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory), in_command():
        pathlib.Path("rows.tsv").touch()
        with pytest.raises(UsageError) as caught:
            parse(COMMANDS[word], ["x", *arguments])
        return "".join(f"    {line}\n" for line in str(caught.value).splitlines())


@pytest.mark.parametrize("words", ROWS)
def test_a_line_is_refused_with_all_that_is_wrong(words):
    said = said_of(words)
    assert said == ROWS[words]
    for line in re.findall(r"Received: (.*)", said):
        assert line.endswith((".", "?")) and ". " in line, "what to do is missing"


if __name__ == "__main__":
    TABLE.write_text("".join(f"{words}\n{said_of(words)}" for words in ROWS), encoding="utf-8")
