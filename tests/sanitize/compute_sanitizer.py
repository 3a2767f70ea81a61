"""Runs the corpus on this machine's GPU under NVIDIA's compute-sanitizer, and records its findings.

    python -m tests.sanitize.compute_sanitizer OUT.json        # on a machine with a GPU
    python -m tests.sanitize.compute_sanitizer OUT.json --read OUT.txt

One program with all kernels is compiled; each case is run by itself under each tool, several at a
time. Beside OUT.json, OUT.txt holds what the tools printed, from which --read makes OUT.json again.
Needs NumPy, nvcc and compute-sanitizer, and takes about a minute on 16 cores.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from helpers.toolkit import require_toolkit
from tests.sanitize.cases import CASES, Array, Case

TOOLS = {
    "racecheck": ("--racecheck-report", "all"),
    "memcheck": (),
    "synccheck": (),
    "initcheck": (),
}
TIMEOUT = 20  # seconds for one case under one tool
SEPARATOR = "#### "  # before what one run has printed, in OUT.txt

HEAD = """#include <cstdio>
#include <cstdlib>
#include <vector>

struct Pointer {
    void *address;
    template <class T> operator T *() const { return (T *)address; }
};

// Device memory: 0, 1, 2 ..., or zeros, or nothing at all written to it.
template <class T> Pointer make(size_t n, char fill)
{
    void *address = nullptr;
    cudaMalloc(&address, n * sizeof(T));
    std::vector<T> values(n);
    if (fill == 'i') for (size_t i = 0; i < n; ++i) values[i] = (T)i;
    if (fill != 'u') cudaMemcpy(address, values.data(), n * sizeof(T), cudaMemcpyHostToDevice);
    return {address};
}

template <class T> void fetch(Pointer from, size_t n)
{
    std::vector<T> values(n);
    cudaMemcpy(values.data(), from.address, n * sizeof(T), cudaMemcpyDeviceToHost);
    cudaFree(from.address);
}

bool ended()
{
    cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) std::printf("launch: %s\\n", cudaGetErrorString(error));
    return error == cudaSuccess;
}
"""
C_TYPES = {"float32": "float", "int32": "int", "uint32": "unsigned", "uint8": "unsigned char",
           "uint16": "unsigned short"}  # fmt: skip


def program() -> str:
    """CUDA C++ of a program that runs the case whose number is its argument."""
    parts = [HEAD]
    for path in dict.fromkeys(case.path for case in CASES):
        parts += ["#undef TILE", "#undef PAD", f'#include "{path}"']
    parts += [_function(number, case) for number, case in enumerate(CASES)]
    calls = "\n".join(f"    case {number}: run_{number}(); break;" for number in range(len(CASES)))
    parts.append(f"int main(int, char **argv)\n{{\n    switch (std::atoi(argv[1])) {{\n{calls}\n"
                 "    }\n    return 0;\n}\n")  # fmt: skip
    return "\n".join(parts)


def _function(number: int, case: Case) -> str:
    arrays = {f"a{k}": a for k, a in enumerate(case.arguments) if isinstance(a, Array)}
    made = [f"    Pointer {name} = make<{C_TYPES[a.dtype]}>({a.size}, '{a.fill[0]}');"
            for name, a in arrays.items()]  # fmt: skip
    given = ", ".join(
        f"a{k}" if isinstance(a, Array) else str(a) for k, a in enumerate(case.arguments)
    )
    shape = f"{_dim3(case.grid)}, {_dim3(case.block)}, {case.shared}"
    back = [f"    fetch<{C_TYPES[a.dtype]}>({name}, {a.size});" for name, a in arrays.items()]
    return "\n".join([
        f"void run_{number}()", "{", *made, f"    {case.kernel}<<<{shape}>>>({given});",
        "    if (!ended()) return;", *back, "}",
    ])  # fmt: skip


def _dim3(extent: int | tuple[int, int]) -> str:
    return f"dim3({', '.join(map(str, extent if isinstance(extent, tuple) else (extent,)))})"


def compiled(folder: Path, arch: str = "native") -> Path:
    """The program, compiled with line numbers."""
    source, binary = folder / "corpus.cu", folder / "corpus"
    source.write_text(program(), encoding="utf-8")
    toolkit = require_toolkit()
    command = [toolkit.nvcc, f"-L{toolkit.lib}", "-lineinfo", f"-arch={arch}", source, "-o", binary]
    subprocess.run(command, check=True)
    return binary


def run(sanitizer: str, binary: Path, number: int, tool: str) -> str:
    """What the tool prints about a case, and a last line that says how it ended."""
    command = [sanitizer, "--tool", tool, *TOOLS[tool], "--print-limit", "400", str(binary),
               str(number)]  # fmt: skip
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        text, _ = process.communicate(timeout=TIMEOUT)
        return f"{text}\nended: {process.returncode}\n"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        return f"{text}\nended: timeout\n"


def read(text: str) -> dict:
    """The findings in what a tool has printed: kind and lines of each, in the order of the lines.

    A message begins with "========= " and a sentence; further lines of it are indented, and name
    the file and line of each access. Messages of one kind and with the same lines are one finding.
    """
    messages: list[list[str]] = []
    for line in text.splitlines():
        if not line.startswith("========= "):
            continue
        content = line.removeprefix("========= ")
        if not content.startswith(" "):
            messages.append([content])
        elif messages:
            messages[-1].append(content.strip())
    found: dict[tuple, int] = {}
    for message in messages:
        kind = _kind(message[0])
        if kind == "Race reported":
            kind += ": " + ", ".join(re.findall(r"\b(Read|Write) access", " ".join(message)))
        if kind:
            places = re.findall(r"([\w.]+\.cu):(\d+)", "\n".join(message))
            lines = tuple(dict.fromkeys(int(n) for file, n in places if file != "corpus.cu"))
            found[kind, lines] = found.get((kind, lines), 0) + 1
    ended = re.search(r"^ended: (.*)$", text, re.MULTILINE)
    return {
        "findings": [
            {"kind": kind, "lines": list(lines), "count": count}
            for (kind, lines), count in sorted(found.items())
        ],
        "ended": ended[1] if ended else "",
    }


def _kind(sentence: str) -> str:
    """The first sentence of a message without what differs from run to run; empty for no finding.

    "Error: Potential RAW hazard detected at __shared__ 0x0 in block (0,0,0) :" is
    "Potential RAW hazard detected at __shared__".
    """
    if re.match(r"(COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY|LEAK SUMMARY|Target|No )",
                sentence):  # fmt: skip
        return ""
    kind = re.sub(r"^(Error|Warning|Info|ERROR|WARNING|INFO): ", "", sentence)
    return re.split(r" 0x[0-9a-f]+| in block | between | \(", kind)[0].strip(" :.")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--read", type=Path, help="what the tools have printed, of an earlier run")
    options = parser.parse_args(arguments)
    log = options.read or options.out.with_suffix(".txt")
    if not options.read:
        record(log)
    header, *runs = log.read_text(encoding="utf-8").split(SEPARATOR)
    result = json.loads(header) | {"cases": {case.kernel: {} for case in CASES}}
    for text in runs:
        title, _, printed = text.partition("\n")
        kernel, tool = title.split()
        if kernel in result["cases"]:
            result["cases"][kernel][tool] = read(printed)
    options.out.write_text(_text(result), encoding="utf-8")
    return 0


def _text(result: dict) -> str:
    """JSON with a line for each case and tool."""
    head = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n"
                   for key, value in result.items() if key != "cases")  # fmt: skip
    cases = ",\n".join(
        f"  {json.dumps(kernel)}: {{\n"
        + ",\n".join(f"   {json.dumps(tool)}: {json.dumps(of)}" for tool, of in tools.items())
        + "\n  }"
        for kernel, tools in result["cases"].items()
    )
    return f'{{\n{head} "cases": {{\n{cases}\n }}\n}}\n'


def record(log: Path) -> None:
    """Compiles and runs everything, and writes what was printed into `log`."""
    sanitizer = shutil.which("compute-sanitizer") or next(
        (str(path) for path in (require_toolkit().nvcc.with_name("compute-sanitizer"),
                                Path("/usr/local/cuda/bin/compute-sanitizer")) if path.is_file()),
        None,
    )  # fmt: skip
    if sanitizer is None:
        sys.exit("compute-sanitizer is not on PATH, nor beside nvcc")
    hanging_last = sorted(range(len(CASES)), key=lambda number: CASES[number].hangs)
    jobs = [(number, tool) for number in hanging_last for tool in TOOLS]
    with tempfile.TemporaryDirectory() as folder:
        binary = compiled(Path(folder))
        with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
            printed = list(pool.map(lambda job: run(sanitizer, binary, *job), jobs))
    runs = [f"{SEPARATOR}{CASES[number].kernel} {tool}\n{text}"
            for (number, tool), text in zip(jobs, printed, strict=True)]  # fmt: skip
    log.write_text(json.dumps(_machine(sanitizer)) + "\n" + "".join(runs), encoding="utf-8")


def _machine(sanitizer: str) -> dict[str, str]:
    """The card, the day and the versions; what cannot be found out is empty."""
    version = re.search(r"Version ([\d.]+)", _said(sanitizer, "--version"))
    query = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    card, _, driver = _said(*query).partition("\n")[0].partition(", ")
    return {
        "card": card,
        "driver": driver,
        "nvcc": ".".join(map(str, require_toolkit().version)),
        "compute_sanitizer": version[1] if version else "",
        "date": datetime.date.today().isoformat(),
    }


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, text=True, capture_output=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
