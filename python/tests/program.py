"""The program of the same wheel."""

import json
import os
import subprocess
import sys


def program(*words):
    """Runs it and returns its standard output."""
    path = os.path.join(os.path.dirname(sys.executable), "underpass")
    outcome = subprocess.run([path, *words], capture_output=True, text=True, timeout=120)
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


def receipt_of(command, *words):
    """Returns the receipt of a command."""
    return json.loads(program(command, "--json", *words))
