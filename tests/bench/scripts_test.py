#!/usr/bin/env python3
"""Tests without a GPU: bars.py, tables.py, result_files.py, candidates.py, ablations.py, plots.py, plot_t3.py, trace_turns.py.

Run by ctest: scripts_test.py TILEWIRE [TILEWIRE_STUDIES].
"""
import importlib.util
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parent.parent.parent / "bench"
sys.path.insert(0, str(BENCH))

import ablations
import bars
import candidates
import result_files
import tables

DOCS = BENCH.parent / "docs"
TILEWIRE = None  # the executables
STUDIES = None


def row(operator, m, total, gemm=100.0, free=None, sequential=200.0, peer=150.0):
    return {"operator": bars.OPERATORS[operator], "m": m, "n": 4096, "k": 2048, "ranks": 4, "total_us": total,
            "gemm_us": gemm, "comm_us": 50.0, "free_us": free, "sequential_us": sequential,
            "peers": {"torch_two_shot": peer, "torch_one_shot": 400} if operator == "AR" else {"torch_fused": peer}}


def peers_result():
    rows = [row(operator, m, 100.0 + 10 * index, free=105.0) for operator in bars.OPERATORS
            for index, m in enumerate((64, 512, 1024, 8192))]
    rows[0]["total_us"] = None
    rows[1]["total_us"] = 900.0  # an overlap of -7
    rows[2]["peers"] = {}
    return {"facts": {"gpu": "GPU", "ranks": 4}, "rows": rows}


def named(judged, words):
    return next(one for one in judged["list"] if words in one["bar"])


class WinnerTables(unittest.TestCase):
    def test_shipped_tables_are_those_of_the_results(self):
        ran = subprocess.run([sys.executable, BENCH / "winner_tables.py", "--check"], capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, f"run bench/winner_tables.py: {ran.stdout}{ran.stderr}")


class Bars(unittest.TestCase):
    def test_a_bar_for_each_row_is_met_when_the_worst_row_meets_it(self):
        judged = bars.bars_of([row("AG", 1024, 103, free=100.5), row("AG", 8192, 103, free=101), row("AG", 64, 500)])
        bar = named(judged, "AG, M >= 1024: total / free")
        self.assertAlmostEqual(bar["value"], 103 / 100.5)
        self.assertEqual((bar["met"], bar["rows"], bar["worst"]), (True, 2, "all_gather_gemm 1024 4096 2048"))
        self.assertFalse(named(judged, "AG, M <= 512: total / gemm")["met"])

    def test_means_are_geometric_and_overlap_is_at_least(self):
        judged = bars.bars_of([row("RS", 1024, 100, free=100), row("RS", 2048, 108, free=100)])
        self.assertAlmostEqual(named(judged, "RS, M >= 1024: total / free, geometric")["value"], math.sqrt(1.08))
        self.assertTrue(named(judged, "RS, M >= 1024: total / free, geometric")["met"])
        overlap = named(judged, "overlap")
        self.assertAlmostEqual(overlap["value"], 0.96)
        self.assertTrue(overlap["met"])
        means = judged["means"]["gemm_reduce_scatter"]
        self.assertAlmostEqual(means["total_over_free"], math.sqrt(1.08))
        self.assertAlmostEqual(means["overlap_mean"], 0.96)

    def test_what_is_missing_is_not_met(self):
        judged = bars.bars_of([row("AG", 1024, 100, free=100), row("AG", 2048, 100)])
        bar = named(judged, "AG, M >= 1024: total / free")
        self.assertEqual((bar["met"], bar["rows_without"]), (False, 1))
        self.assertIsNone(named(judged, "AR, M >= 1024")["met"])
        self.assertIsNone(named(judged, "AR, M >= 1024")["value"])

    def test_small_all_reduces_are_compared_with_the_faster_of_the_others(self):
        judged = bars.bars_of([row("AR", 64, 80, sequential=200.0, peer=100.0)])
        self.assertAlmostEqual(named(judged, "AR, M = 64")["value"], 0.8)
        self.assertTrue(named(judged, "AR, M = 64")["met"])

    def test_text_names_each_bar(self):
        judged = bars.bars_of(peers_result()["rows"])
        text = bars.text_of(judged)
        for bar in bars.BARS:
            self.assertIn(bar.text, text)
        self.assertIn("rows without", text)
        json.dumps(judged)


class TraceTurns(unittest.TestCase):
    def run_tool(self, *arguments):
        return subprocess.run([sys.executable, str(BENCH.parent / "tools/trace_turns.py"), *map(str, arguments)],
                              capture_output=True, text=True, check=False)

    def test_turns_of_a_committed_trace(self):
        ran = self.run_tool(BENCH / "results/traces_x4/rs_512_12288_49152.json.xz", "--turn", 128)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        turns = [line.split() for line in ran.stdout.splitlines() if line.split()[1:4] == ["tiles", "gemm", "128"]]
        self.assertEqual([turn[0] for turn in turns], ["0", "0", "1", "1", "2", "2", "3", "3"])
        self.assertEqual(turns[0][4:], ["2.6", "3.2", "3.4", "126.8", "129.1", "131.1", "123.6", "126.0", "127.9"])

    def test_a_trace_without_tasks_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "trace.json"
            path.write_text('{"traceEvents": [{"ph": "M", "name": "process_name", "args": {"name": "x"}}]}')
            ran = self.run_tool(path)
        self.assertEqual((ran.returncode, ran.stderr), (1, f"{path}: no tasks\n"))


class GoalsTable(unittest.TestCase):
    """bars.py --markdown, and the document with its table."""

    MACHINES = {"4 x H200": "peers_x4.json", "2 x H200": "peers_x2.json", "2 x H100": "peers_h100_x2.json"}

    def run_bars(self, *arguments):
        return subprocess.run([sys.executable, str(BENCH / "bars.py"), *map(str, arguments)], capture_output=True,
                              text=True, check=False)

    def test_docs_have_the_table_of_the_committed_results(self):
        machines = [f"{name}={BENCH / 'results' / file}" for name, file in self.MACHINES.items()]
        ran = self.run_bars("--markdown", *machines)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        document = (DOCS / "performance.md").read_text()
        if f"\n{ran.stdout}\n" not in document:
            self.fail(f"docs/performance.md, Goals: not the table of bench/results, which is\n\n{ran.stdout}")

    def test_tables_have_the_figures_of_the_committed_results(self):
        document = (DOCS / "performance.md").read_text()
        self.assertEqual(len(tables.MARK.findall(document)), 3)
        for said, measured in zip(document.split("\n"), tables.rewritten(document).split("\n"), strict=True):
            self.assertEqual(said, measured, "run bench/tables.py docs/performance.md")
        with self.assertRaises(KeyError):
            tables.rewritten("<!-- table: peers_x4 -->\n| M N K | gemm |\n|---|---|\n| AG 1 2 3 | 4 |\n")
        text = "<!-- table: peers_x4 -->\n| M N K | gemm | said |\n|---|---|---|\n| AR 64 8192 8192 | **4** | **x** |\n\n| a |\n"
        gemm = tables.us(tables.rows_of("peers_x4")["AR 64 8192 8192"]["gemm_us"])
        self.assertEqual(tables.rewritten(text), text.replace("**4**", f"**{gemm}**"))

    def test_links_lead_to_headings(self):
        for name in sorted(path.name for path in DOCS.glob("*.md")):
            for file, anchor in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]*))?\)", (DOCS / name).read_text()):
                target = DOCS / (file or name)
                self.assertTrue(target.exists(), f"{name}: {file}")
                headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE) if anchor else []
                anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
                self.assertTrue(not anchor or anchor in anchors, f"{name}: no heading for #{anchor} in {target.name}")

    def test_a_column_for_each_machine(self):
        good = [row("AG", 1024, 100, free=100), row("AG", 2048, 105, free=100), row("RS", 64, 100)]
        bad = [row("AG", 1024, 104, free=100), row("AG", 2048, 102, free=100), row("RS", 64, 120), row("RS", 512, 100)]
        lines = bars.markdown_of({"one": good, "other": bad}).splitlines()
        cells = {line.split(" | ")[0].strip("| "): [cell.strip() for cell in line[1:-1].split("|")] for line in lines}
        self.assertEqual(cells["goal"][2:4], ["one", "other"])
        self.assertEqual({len(line) for line in cells.values()}, {6})
        self.assertEqual(cells["AG, M >= 1024: total / free, each row"][1:],
                         ["<= 1.03", "**1.050 missed**", "**1.040 missed**", "AG 2048 4096 2048",
                          "[AG 2048 4096 2048](#ag-2048-4096-2048), [AG 1024 4096 2048](#ag-1024-4096-2048)"])
        self.assertEqual(cells["RS, M <= 512: total / gemm, each row"][2:],
                         ["1.000", "**1.200 missed**", "RS 64 4096 2048", "[RS 64 4096 2048](#rs-64-4096-2048)"])
        self.assertEqual(cells["AR, M >= 1024: total / free, each row"][2:], ["not measured", "not measured", "", ""])
        self.assertEqual(cells["goals met"][2:4], ["5 of 6", "4 of 6"])

    def test_rows_without_a_value_miss_the_bar(self):
        lines = bars.markdown_of({"one": [row("RS", 1024, 100, free=100), row("RS", 2048, 100)]})
        self.assertIn("| **1.000 missed** | RS 1024 4096 2048 | [RS 2048 4096 2048](#rs-2048-4096-2048) |", lines)

    def test_a_bad_file_is_one_line(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            texts = {"no.json": "{", "list.json": "[1]", "empty.json": '{"rows": []}', "row.json": '{"rows": [1]}',
                     "text.json": json.dumps({"rows": [row("AG", 64, 100) | {"total_us": "100"}]}),
                     "other.json": json.dumps({"rows": [row("AG", 64, 100) | {"operator": "gemm"}]})}
            for file, text in texts.items():
                (folder / file).write_text(text)
            paths = [folder / "missing.json", folder, BENCH / "results" / "in_situ_x2.json"]
            for path in paths + [folder / file for file in texts]:
                for options in ((), ("--markdown",)):
                    ran = self.run_bars(*options, path)
                    self.assertEqual((ran.returncode, ran.stdout, ran.stderr.count("\n")), (2, "", 1), ran.stderr)
                    self.assertIn(path.name, ran.stderr)


def measured_row():
    """A row of peers.py in memory. Two of its contenders were measured with both GEMMs of cuBLAS."""
    times = {"ours: a": 90.0, "ours: b": 80.0, "comm": 30.0, "gemm": 72.0, "gemm, fastest candidate": 70.0,
             "sequential": 101.0, "sequential, fastest candidate": 102.0, "free": 75.0, "torch_fused": 95.0}
    return {"operator": "all_gather_gemm", "m": 64, "n": 4096, "k": 2048, "ranks": 4, "dtype": "bf16", "total_us": 80.0,
            "config": {}, "ours": [{"name": "ours: b", "config": {}}, {"name": "ours: a", "config": {"rounds": 2}}],
            "gemm_us": 70.0, "comm_us": 30.0, "free_us": 75.0, "sequential_us": 101.0, "peers": {"torch_fused": 95.0},
            "samples_us": {name: [us - 2, us - 1, us, us + 1.0000001, us + 2] for name, us in times.items()},
            "graphs": list(times), "rel_error": [0.001, 0.0], "ok": True, "errors": {}, "explain": "..."}


class ResultFiles(unittest.TestCase):
    def test_a_row_of_peers_has_quartiles_of_what_counts(self):
        want = {"operator": "all_gather_gemm", "m": 64, "n": 4096, "k": 2048, "ranks": 4, "config": {}, "total_us": 80,
                "gemm_us": 70, "comm_us": 30, "configs": 2, "num_samples": 5, "graphs": True, "rel_error": 0.001, "ok": True,
                "us": {"ours": [79, 80, 81], "comm": [29, 30, 31], "gemm": [69, 70, 71], "sequential": [100, 101, 102],
                       "free": [74, 75, 76], "torch_fused": [94, 95, 96]}}
        self.assertEqual(result_files.rounded(result_files.condensed(measured_row())), want)
        self.assertEqual(result_files.condensed(want), want)
        graphs = [name for name in measured_row()["graphs"] if name != "free"]
        some = result_files.condensed(measured_row() | {"graphs": graphs})
        self.assertEqual(some["graphs"], ["ours", "comm", "gemm", "sequential", "torch_fused"])
        self.assertNotIn("graphs", result_files.condensed(measured_row() | {"graphs": []}))
        self.assertEqual(result_files.condensed(some), some)

    def test_what_a_row_leaves_out_is_computed(self):
        row, whole = measured_row(), result_files.whole(result_files.condensed(measured_row()))
        for name in ("total_us", "gemm_us", "comm_us", "free_us", "sequential_us", "peers"):
            self.assertEqual(whole[name], row[name], name)
        self.assertEqual(bars.bars_of([whole]), bars.bars_of([row]))
        self.assertAlmostEqual(bars.overlap_of(whole), 1 - 10 / 31)
        self.assertAlmostEqual(bars.link_us_of(whole), 2 * 16 * 2048 * 3 / 389e3)
        failed = measured_row() | {"total_us": None, "ours": [], "errors": {"ours: a": "no"}, "ok": False}
        failed["samples_us"] = {name: us for name, us in failed["samples_us"].items() if "ours" not in name and name != "free"}
        whole = result_files.whole(result_files.condensed(failed | {"free_us": None}))
        self.assertEqual((whole["total_us"], whole["free_us"], whole["ok"]), (None, None, False))
        self.assertEqual(whole["errors"], {"ours: a": "no"})
        self.assertIsNone(bars.overlap_of(whole))
        nothing = result_files.whole(result_files.condensed(failed | {"samples_us": {}, "peers": {}, "graphs": []}))
        self.assertEqual((nothing["peers"], nothing["us"], "graphs" in nothing), ({}, {}, False))

    def test_samples_of_programs_become_quartiles(self):
        statistics = {"median": 3.0, "min": 1.0, "samples": [5.0, 1.0, 3.0, 4.0, 2.0]}
        host = {"fused_us": statistics, "fused_1_us": statistics | {"config": {}}, "ms": statistics, "fused_over_plain": 1.0}
        self.assertEqual(result_files.rounded(result_files.condensed(host)),
                         {"fused_1_us": {"config": {}, "quartiles_us": [2, 3, 4]}, "ms": [2, 3, 4], "num_samples": 5})
        gemm = result_files.condensed({"ours_us": [1.0], "cublaslt_us": [2.0], "ratio": 2.0})
        self.assertEqual(gemm, {"ours_us": [1.0] * 3, "cublaslt_us": [2.0] * 3, "num_samples": 1})
        self.assertEqual(result_files.condensed(gemm), gemm)
        self.assertEqual(result_files.rounded([123456.0, 0.0123456, math.inf, 1234567, 2.0]), [123460, 0.012346, None, 1234567, 2])

    def test_committed_files_are_small(self):
        paths = sorted((BENCH / "results").rglob("*"))
        self.assertLess(sum(path.stat().st_size for path in paths if path.is_file()), 300_000)
        for path in (path for path in paths if path.suffix == ".json"):
            text = path.read_text()
            self.assertEqual(text, result_files.text_of(json.loads(text)), f"run bench/result_files.py {path.name}")
            self.assertNotIn("samples_us", text, path.name)


class Candidates(unittest.TestCase):
    """The configs that peers.py measures, from the command."""

    def test_auto_measures_the_first_eight_of_distinct_configs(self):
        for kind in ("ag", "rs", "ar"):
            for m, ranks in ((64, 2), (512, 4), (1024, 8)):
                with self.subTest(kind=kind, m=m, ranks=ranks):
                    measured = candidates.candidates(TILEWIRE, kind, m, 8192, 8192, ranks)
                    all_of_them = candidates.candidates(TILEWIRE, kind, m, 8192, 8192, ranks, all_of_them=True)
                    self.assertEqual(len({candidates.name_of(config) for config in all_of_them}), len(all_of_them))
                    self.assertEqual(measured, all_of_them[:len(measured)])
                    self.assertTrue(6 <= len(measured) <= 8 < len(all_of_them), (len(measured), len(all_of_them)))
                    self.assertTrue(all(config.get("collective") != "library" for config in all_of_them))
        with self.assertRaisesRegex(ValueError, "3 GPUs"):
            candidates.candidates(TILEWIRE, "ag", 64, 64, 64, 3)


class Ablations(unittest.TestCase):
    def test_same_configs_are_measured_once(self):
        for small in (False, True):
            for _, shape in ablations.shapes(4, small, "tma"):
                configs, groups = ablations.configs_of(shape, ablations.TILES)
                texts = [json.dumps(ablations.meaning(one["schedule"], one["set"]), sort_keys=True) for one in configs]
                self.assertEqual(len(set(texts)), len(texts))
                known = {one["name"] for one in configs}
                self.assertEqual(len(known), len(configs))
                self.assertEqual(known, {name for group in groups.values() for _, name in group})


class Figures(unittest.TestCase):
    """Figures from results of ablations.py and the simulator on the host."""

    def test_from_measurement_to_figures(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            measured = subprocess.run(
                [sys.executable, str(BENCH / "ablations.py"), "--command", TILEWIRE, "--backend", "host", "--ranks",
                 "2", "--small", "--verify", "--iters", "1", "--json", str(folder / "ablations.json")],
                capture_output=True, text=True, check=False)
            self.assertEqual(measured.returncode, 0, measured.stdout + measured.stderr)
            result = json.loads((folder / "ablations.json").read_text())
            self.assertEqual(len(result["shapes"]), 3)
            self.assertEqual(result["errors"], [])
            self.assertTrue(all(row["ok"] for row in result["rows"]))
            self.check_rows(result)
            for words in ("rows of a copy, store", "accumulate", "two_stream", "order"):
                self.assertIn(words, measured.stdout)
            (folder / "peers.json").write_text(json.dumps(peers_result()))
            self.draw(folder)

    def check_rows(self, result):
        """Every bar is a row, or is refused."""
        for shape in result["shapes"]:
            same = lambda one, shape=shape: all(one[name] == shape[name] for name in ("operator", "m", "n", "k"))
            rows = {row["name"] for row in result["rows"] if same(row)}
            refused = {one["name"] for one in result["refused"] if same(one)}
            bars_of_shape = {bar["name"] for group in shape["groups"] for bar in group["bars"]}
            self.assertEqual(rows | refused, bars_of_shape)
            self.assertGreater(len(rows), 10, refused)

    @unittest.skipUnless(len(sys.argv) > 2, "without tilewire-studies")
    def test_t3(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            subprocess.run([STUDIES, "t3", "--models", "gpt-3", "--json", str(folder / "t3.json")], check=True,
                           capture_output=True)
            self.check_as_committed("t3_ring.json", json.loads((folder / "t3.json").read_text()),
                                    ("model", "tp", "layer"), ("gemm_ns", "rs_ns", "fused_ns", "fused_mca_ns"))
            self.check_figures(folder, ["plot_t3.py", str(folder / "t3.json"), "--compared"], 5)

    def test_all_of_t3_from_what_is_committed(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for ranks in ("x2", "x4"):
                now = subprocess.run([TILEWIRE, "sim", "--machine", "h200x4", "--json", "-", "--compare",
                                      str(BENCH / "results" / f"peers_{ranks}.json")], check=True, capture_output=True)
                self.check_as_committed(f"sim_peers_{ranks}.json", json.loads(now.stdout),
                                        ("operator", "m", "n", "k"), ("predicted_comm_us", "measured_comm_us"))
            self.check_figures(folder, ["plot_t3.py"], 9)
            first = {path.name: path.read_bytes() for path in (folder / "svg").iterdir()}
            self.check_figures(folder, ["plot_t3.py"], 9)
            for name, content in first.items():
                self.assertEqual(content, (folder / "svg" / name).read_bytes(), name)

    def check_as_committed(self, name, result, keys, values):
        """For each row of `result` the file has an equal row, within 1 %."""
        key_of = lambda row: tuple(row[key] for key in keys)
        committed = {key_of(row): row for row in json.loads((BENCH / "results" / name).read_text())["rows"]}
        self.assertGreater(len(result["rows"]), 0)
        for row in result["rows"]:
            for value in values:
                there = committed[key_of(row)][value]
                self.assertLess(abs(row[value] - there), 0.01 * there, f"{name} is old: {key_of(row)} {value}")

    def draw(self, folder):
        self.check_figures(folder, ["plots.py", "--peers", str(folder / "peers.json"), "--ablations",
                                    str(folder / "ablations.json")], 8)

    def check_figures(self, folder, command, count):
        if importlib.util.find_spec("matplotlib") is None:
            self.skipTest("no matplotlib")
        for form, magic in (("svg", b"<?xml"), ("png", b"\x89PNG")):
            drawn = subprocess.run(
                [sys.executable, str(BENCH / command[0]), *command[1:], "--out", str(folder / form), "--format", form],
                capture_output=True, text=True, check=False)
            self.assertEqual(drawn.returncode, 0, drawn.stdout + drawn.stderr)
            figures = sorted((folder / form).iterdir())
            self.assertEqual(len(figures), count, figures)
            for figure in figures:
                self.assertTrue(figure.read_bytes().startswith(magic), figure)
                self.assertLess(figure.stat().st_size, 400_000, figure)


if __name__ == "__main__":
    TILEWIRE = sys.argv.pop(1)
    STUDIES = sys.argv.pop(1) if len(sys.argv) > 1 else None
    unittest.main()
