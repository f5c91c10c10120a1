"""A run as a process of its own: what its start says."""

import os
import subprocess
import sys

SCRIPT = """
import os, sys
from tokenizers import Tokenizer, models, pre_tokenizers
from tfbert.launch import start_child
tokenizer = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.encode_batch(["a a"] * 64)
child = start_child([sys.executable, "-c", "import os; print(os.environ.get('TOKENIZERS_PARALLELISM'))"])
assert child.wait() == 0 and "TOKENIZERS_PARALLELISM" not in os.environ
os.waitpid(os.fork() or os._exit(0), 0)
"""


def test_a_process_that_has_tokenised_starts_one_without_a_warning():
    """The warning is that of the last line alone, a fork of the user's own."""
    environment = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "None\n" and done.stderr.count("just got forked") == 1
