#!/usr/bin/env python3
"""Tests of gpu_check.sh without a GPU: fakes replace the GPU's tools and the test programs.

Run by ctest: gpu_check_test.py BUILD_FOLDER.
"""
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "bench" / "gpu_check.sh"
BUILD = None  # with the real test programs, which know their tests' names
PROGRAMS = ["calls", "failures", "gemm_cluster_split_k", "gemm_groups", "gemm_places", "gemm_tiles", "group",
            "host_side", "operators", "traces"]
STAND_IN = """#!/usr/bin/env bash
[[ $* == *gtest_list_tests* ]] && exec {real} "$@"
echo "{name} on $CUDA_VISIBLE_DEVICES: ${{GTEST_SHARD_INDEX:+part $GTEST_SHARD_INDEX of $GTEST_TOTAL_SHARDS }}$*" >>{log}
echo "[  PASSED  ] {count} tests."
exit {code}
"""


class Run:
    """One run of the script's tests on `gpus` fake GPUs; `count` and `code` by program."""

    def __init__(self, gpus, count=None, code=None, part="tests", flags=(), torch=True):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            log = folder / "log"
            log.write_text("")
            for program in PROGRAMS:
                self._write(folder / "build/tests/cuda" / f"cuda_{program}", STAND_IN.format(
                    real=f"{BUILD}/tests/cuda/cuda_{program}", name=program, log=log, count=(count or {}).get(program, 3),
                    code=(code or {}).get(program, 0)))
            self._write(folder / "bin/nvidia-smi", f"#!/bin/sh\nseq {gpus}\n")
            for program in ("bin/tilewire", "bench/bench_cuda_gemm", "bench/bench_grouped_gemm"):
                self._write(folder / "build" / program, f"#!/bin/sh\necho {program} $* >>{log}\n")
            # peers.py and ablations.py do not run, whoever is asked to run them.
            self._write(folder / "bin/torchrun", f"#!/bin/sh\necho torchrun $* >>{log}\necho 'a bar  1.2 <= 1.0  MISSED'\n")
            self._write(folder / "bin/python3", f"#!/bin/sh\necho python3 $* >>{log}\nexit {0 if torch else 1}\n")
            self._write(folder / "bin/compute-sanitizer", "#!/usr/bin/env bash\nshift 4\nexec \"$@\"\n")
            ran = subprocess.run([SCRIPT, folder / "build", folder / "results", "--only", part, *flags], text=True, check=False,
                                 capture_output=True, env=os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}"})
            self.code, self.out, self.calls = ran.returncode, ran.stdout + ran.stderr, log.read_text().splitlines()

    @staticmethod
    def _write(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


class GpuCheck(unittest.TestCase):
    def test_every_program_runs_on_any_number_of_gpus(self):
        for gpus in (1, 2, 4, 8):
            run = Run(gpus)
            self.assertEqual(run.code, 0, run.out)
            self.assertIn("0 failed", run.out)
            self.assertEqual({call.split()[0] for call in run.calls}, set(PROGRAMS))
            used = {number for call in run.calls for number in call.split(":")[0].split(" on ")[1].split(",")} - {""}
            self.assertEqual(used, {str(number) for number in range(gpus)})

    def test_quick_runs_tests_on_up_to_four_gpus(self):
        for gpus in (1, 2, 4):
            run = Run(gpus, flags=["--quick"])
            self.assertEqual(run.code, 0, run.out)
            self.assertEqual({call.split()[0] for call in run.calls},
                             {"calls", "gemm_cluster_split_k", "gemm_groups", "gemm_places", "gemm_tiles", "operators"})
            used = {number for call in run.calls for number in call.split(":")[0].split(" on ")[1].split(",")} - {""}
            self.assertEqual(used, {str(number) for number in range(gpus)})

    def test_benchmarks(self):
        run = Run(4, part="benchmarks")
        self.assertEqual(run.code, 0, run.out)
        self.assertIn("MISSED", run.out)
        self.assertEqual([call.split()[0] for call in run.calls],
                         ["bin/tilewire", "bin/tilewire", "bench/bench_cuda_gemm", "bench/bench_grouped_gemm", "python3",
                          "torchrun"])
        self.assertIn("--nproc-per-node 4", run.calls[-1])
        run = Run(4, part="benchmarks", flags=["--quick"])
        self.assertEqual([call.split()[0] for call in run.calls], ["bin/tilewire", "bin/tilewire", "python3", "torchrun"])
        self.assertIn("--turns 5", run.calls[-1])

    def test_two_gpus_without_torch_are_a_failure_one_is_none(self):
        run = Run(2, part="benchmarks", torch=False)
        self.assertEqual(run.code, 1, run.out)
        self.assertIn("FAILED  peers: no torch here", run.out)
        run = Run(1, part="benchmarks", torch=False)
        self.assertEqual(run.code, 0, run.out)
        self.assertIn("skipped peers", run.out)

    def test_ablations_run_where_they_are_asked_for(self):
        self.assertEqual([call.split()[:1] for call in Run(2, part="ablations").calls], [["python3"]])
        self.assertEqual(Run(2, part="ablations", torch=False).code, 1, "they fail here")
        self.assertEqual(Run(1, part="ablations").calls, [])
        run = Run(2, part="nothing")
        self.assertEqual((run.code, run.calls), (2, []))

    def test_names_of_tests_are_those_of_the_programs(self):
        # A name that is gone, and what it is that the filters of operators choose.
        run = Run(4)
        self.assertNotIn("no test is called", run.out)
        of_all = [call for call in run.calls if call.startswith("operators") and "_4_ranks" in call]
        self.assertEqual(sorted(re.findall(r"part \d of \d", " ".join(of_all))), ["part 0 of 2", "part 1 of 2"])
        chosen = {call.split("--gtest_filter=")[1] for call in of_all}
        self.assertEqual(len(chosen), 1, "of both parts")
        listed = subprocess.run([f"{BUILD}/tests/cuda/cuda_operators", "--gtest_list_tests", f"--gtest_filter={chosen.pop()}"],
                                capture_output=True, text=True, check=True).stdout
        self.assertGreater(listed.count("_4_ranks"), 30)

    def test_every_pattern_of_a_filter_has_a_test(self):
        asked = {(call.split()[0], pattern) for gpus in (1, 2, 4) for flags in ([], ["--quick"])
                 for call in Run(gpus, flags=flags).calls if "--gtest_filter=" in call
                 for pattern in call.split("--gtest_filter=")[1].split("-")[0].split(":") if pattern}
        self.assertGreater(len(asked), 30)
        for program, pattern in sorted(asked):
            listed = subprocess.run([f"{BUILD}/tests/cuda/cuda_{program}", "--gtest_list_tests", f"--gtest_filter={pattern}"],
                                    capture_output=True, text=True, check=True).stdout
            self.assertIn("\n  ", listed, f"{program}: no test is called {pattern}")

    def test_what_fails_or_runs_nothing_is_told(self):
        run = Run(2, code={"traces": 1})
        self.assertEqual(run.code, 1, run.out)
        self.assertIn("FAILED  traces (exit code 1)", run.out)
        run = Run(2, count={"group": 0})
        self.assertEqual(run.code, 1, run.out)
        self.assertIn("FAILED  group: no test ran", run.out)


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
