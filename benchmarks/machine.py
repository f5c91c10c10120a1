"""What every benchmark reports with its figures: the machine, and CPU time in the program and in the kernel."""

from __future__ import annotations

import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from tfbert.report.run_files import processor  # noqa: E402

_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
_HUGE_PAGES = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")


def machine() -> dict[str, str]:
    """The CPU, its vector instructions, cores, kernel, C library and large pages, as far as the system reports them.

    Virtual machines often hide a CPU's number: its family and model tell generations apart, which differ in speed.
    """
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
        known = set(text.split())
        generation = re.search(r"cpu family\s*: (\d+)\nmodel\s*: (\d+)", text)
        huge_pages = _HUGE_PAGES.read_text(encoding="utf-8").strip()
    except OSError:  # Not Linux.
        known, generation, huge_pages = set(), None, "unknown"
    return {
        "cpu": processor() + (f", family {generation[1]}, model {generation[2]}" if generation else ""),
        "instructions": " ".join(flag for flag in _FLAGS if flag in known),
        "cores": str(os.cpu_count()),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "huge_pages": huge_pages,
    }


def wait(process: subprocess.Popen) -> dict[str, float]:
    """Waits for a process to end, sets its `returncode`, and returns its CPU seconds and peak memory in MB."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "user_seconds": round(used.ru_utime, 1),
        "kernel_seconds": round(used.ru_stime, 1),
        "peak_mb": round(used.ru_maxrss / 1024),
    }


def done(*words: object) -> tuple[str, str, dict[str, float]]:
    """Runs a process; if it fails, exits and shows its output. Returns its stdout, stderr, CPU seconds and memory."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([str(word) for word in words], stdout=out, stderr=errors)
        used = wait(process)
        out.seek(0), errors.seek(0)
        texts = out.read(), errors.read()
    if process.returncode:
        sys.exit(f"{words[:3]} failed:\n{''.join(texts)}")
    return *texts, used
