"""Measures the module beside what Python programs use otherwise.

usage: python bench.py [--rounds N] [--size MIB] [--folder DIR] [--record FILE]

Each round runs every contender once, in another order, so that what disturbs the machine meets all of
them. A figure is a median over all rounds, and a ratio the median of the ratios within each round.
The served file is in the page cache. Downloads come from `underpass serve` as another process, and
every result is compared with its original.
"""

import argparse
import filecmp
import json
import os
import platform
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import requests
import underpass

#: What huggingface_hub reads at a time.
HUB_CHUNK = 10 << 20


def by_shutil(source, target):
    shutil.copyfile(source, target)


def by_reading(source, target):
    with open(source, "rb") as reader, open(target, "wb") as writer:
        while chunk := reader.read(1 << 20):
            writer.write(chunk)


def by_urllib(url, target):
    with urllib.request.urlopen(url) as answer, open(target, "wb") as file:
        shutil.copyfileobj(answer, file)


def by_requests(url, target, chunk=64 << 10):
    with requests.get(url, stream=True) as answer, open(target, "wb") as file:
        answer.raise_for_status()
        for part in answer.iter_content(chunk):
            file.write(part)


def by_hub_chunks(url, target):
    # It writes to a file that is renamed when it is complete.
    by_requests(url, target + ".incomplete", HUB_CHUNK)
    os.replace(target + ".incomplete", target)


COPIES = {
    "underpass.copy": underpass.copy,
    "shutil.copyfile": by_shutil,
    "read and write, 1 MiB": by_reading,
}
DOWNLOADS = {
    "underpass.get": underpass.get,
    "urllib and copyfileobj": by_urllib,
    "requests, 64 KiB": by_requests,
    "requests, 10 MiB as hubs do": by_hub_chunks,
}


def processor_time():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def sample(run, source, original, target):
    """Runs one contender once; returns seconds, and seconds of this process on processors."""
    if os.path.exists(target):
        os.unlink(target)
    processor, begun = processor_time(), time.perf_counter()
    run(source, target)
    seconds, processor = time.perf_counter() - begun, processor_time() - processor
    if not filecmp.cmp(original, target, shallow=False):
        sys.exit(f"{target} is not what it was copied from")
    os.unlink(target)
    return {"s": seconds, "cpu_s": processor}


def measure(contenders, source, original, target, rounds):
    """Returns the samples of each contender."""
    samples = {name: [] for name in contenders}
    for _ in range(rounds):
        for name in random.sample(list(contenders), len(contenders)):
            samples[name].append(sample(contenders[name], source, original, target))
    return samples


def summary(samples):
    """Returns medians, and ratios to the first contender."""
    ours = next(iter(samples.values()))
    rows = {}
    for name, theirs in samples.items():
        row = {key: statistics.median(each[key] for each in theirs) for key in ("s", "cpu_s")}
        for key in ("s", "cpu_s"):
            pairs = [(their[key], our[key]) for their, our in zip(theirs, ours)]
            row[f"{key}_ratio"] = statistics.median(their / max(our, 1e-6) for their, our in pairs)
        rows[name] = row
    return rows


def show(title, rows):
    print(f"{title:<30} {'s':>8} {'ratio':>6} {'cpu s':>8} {'ratio':>6}")
    for name, row in rows.items():
        figures = f"{row['s']:8.3f} {row['s_ratio']:6.2f} {row['cpu_s']:8.3f} {row['cpu_s_ratio']:6.2f}"
        print(f"{name:<30} {figures}")
    print()


def served(folder):
    """Starts the program of the same wheel; returns it and its URL."""
    program = os.path.join(os.path.dirname(sys.executable), "underpass")
    words = [program, "serve", "--quiet", "--port", "0", folder]
    server = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        if " at http://" in line:
            return server, line.split(" at ")[1].strip()
    sys.exit("the server did not start")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--size", type=int, default=1024, help="MiB of the file")
    parser.add_argument("--folder", help="where files are written [default: a temporary folder]")
    parser.add_argument("--record", help="write all samples to this file")
    parser.add_argument("--note", default="", help="what should be known about the machine")
    args = parser.parse_args()
    load = os.getloadavg()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        original = os.path.join(folder, "original")
        with open(original, "wb") as file:
            for _ in range(args.size):
                file.write(os.urandom(1 << 20))
        os.sync()
        target = os.path.join(folder, "target")
        copies = measure(COPIES, original, original, target, args.rounds)
        server, url = served(folder)
        try:
            downloads = measure(DOWNLOADS, url + "original", original, target, args.rounds)
        finally:
            server.terminate()
            server.wait()
    results = {"copy": summary(copies), "download": summary(downloads)}
    show(f"copy of {args.size} MiB", results["copy"])
    show(f"download of {args.size} MiB", results["download"])
    print(f"load average before {load[0]:.1f}, after {os.getloadavg()[0]:.1f}; {os.cpu_count()} cores")
    if args.record:
        record = {
            "underpass": underpass.__version__,
            "python": platform.python_version(),
            "kernel": platform.release(),
            "cores": os.cpu_count(),
            "note": args.note,
            "load": {"before": load, "after": os.getloadavg()},
            "size": args.size << 20,
            "rounds": args.rounds,
            "results": results,
            "samples": {"copy": copies, "download": downloads},
        }
        with open(args.record, "w") as file:
            json.dump(record, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
