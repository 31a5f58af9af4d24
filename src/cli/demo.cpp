// tilewire demo: overlap on this machine and on simulated GPUs, as a page of text and a page of timelines.
// Called by main; tools/try.sh ends with it.
#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/all_cores.hpp"
#include "cli/facts.hpp"
#include "cli/flag_files.hpp"
#include "cli/measure.hpp"
#include "cli/models.hpp"
#include "cli/options.hpp"
#include "cli/ranks.hpp"
#include "cli/report.hpp"
#include "cli/sim_rows.hpp"
#include "cli/traces.hpp"
#include "cli/verbs.hpp"
#include "core/text.hpp"
#include "operators/verify.hpp"
#include "tilewire/check.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/op.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire::cli {
namespace {

constexpr int kTurns = 31;
constexpr const char* kMachine = "h200x4";

struct Demo {
  Options options;  // of the ranks
  std::string out = "report.html";
};

// Short products: communication takes a large part of the time, so that CPU ranks show its overlap, too.
const Problem kProblem{.op = "gemm_reduce_scatter", .m = 4096, .n = 1024, .k = 64, .dtype = DType::fp32};

// One schedule, measured on CPU ranks.
struct Measured {
  Plan plan;
  double us = 0;
  Comparison comparison{};
  std::vector<ReportCall> calls{};  // on rank 0
};

// Append a traced call to a report.
void draw(std::vector<ReportCall>& calls, const std::string& title, const Plan& plan, const Trace& trace) {
  TraceFile file;
  file.add(title, plan, trace);
  std::ranges::move(report_calls(title, file.json()), std::back_inserter(calls));
}

// Of several calls, the trace of the one with the median time.
Trace typical_trace(Op& op, const RankTensors& tensors) {
  constexpr size_t kCalls = 9;
  std::vector<std::pair<int64_t, Trace>> traces;
  for (size_t call = 0; call < kCalls; ++call) {
    op.run_and_wait(tensors.inputs(), tensors.outputs());
    Trace trace = op.gather_trace();
    int64_t first = std::numeric_limits<int64_t>::max();
    int64_t last = 0;
    for (const TraceEvent& event : trace.events) {
      first = std::min(first, event.taken_ns);
      last = std::max(last, event.end_ns);
    }
    traces.emplace_back(last - first, std::move(trace));
  }
  std::ranges::sort(traces, {}, &std::pair<int64_t, Trace>::first);
  return std::move(traces[kCalls / 2].second);
}

std::vector<Measured> measure_on(Group& group) {
  const RankTensors tensors(group, kProblem);
  const ReadRow read = random_inputs(kProblem, group.team().num_ranks, 1);
  tensors.fill(read);
  const Expected expected(kProblem, group.team().num_ranks, group.team().rank, read);
  std::vector<Measured> measured;
  std::vector<Contender> contenders;
  for (const char* schedule : {"sequential", "fused"}) {
    Plan plan = make_plan(kProblem, group.team(), default_config(schedule, kProblem, group.team()));
    contenders.push_back(contender(group, schedule, plan));
    tensors.poison();
    group.barrier();
    contenders.back().program->run(tensors.inputs(), tensors.outputs(), {});
    Comparison comparison = verify(group, expected, tensors.results(), tolerance_of(kProblem, note_of(plan).config));
    measured.push_back({.plan = std::move(plan), .comparison = std::move(comparison)});
  }
  measure_in_turn(group, tensors, contenders, {.warmup = 2, .measured = kTurns}, [](const std::string&) {});
  for (size_t i = 0; i < measured.size(); ++i) {
    measured[i].us = median_us(contenders[i]);
    Op op = make_op(group, kProblem, note_of(measured[i].plan).config, {.trace = true});
    const Trace trace = typical_trace(op, tensors);
    if (group.team().rank != 0) continue;
    draw(measured[i].calls,
         fmt::format("{} on {} CPU ranks, {}", kProblem.op, group.team().num_ranks, contenders[i].name), op.plan(),
         trace);
  }
  return measured;
}

std::string shown_ms(double us) { return fmt::format("{:.2f} ms", us * 1e-3); }

std::string text_of(const std::vector<Measured>& measured, int ranks) {
  const Measured& plain = measured[0];
  const Measured& fused = measured[1];
  const nlohmann::json machine = machine_facts();
  double error = 0;
  int64_t tasks = 0;
  for (const Measured& each : measured) {
    error = std::max(error, each.comparison.rel_error());
    tasks += num_tasks(each.plan);
  }
  std::string text =
      fmt::format("Measured here: GEMM + ReduceScatter, M N K = {} {} {}, fp32, {} ranks on {}, {} cores\n", kProblem.m,
                  kProblem.n, kProblem.k, ranks, machine["cpu"].get<std::string>(), machine["cores"].get<int>());
  text += fmt::format("  without overlap   {:>9}   the GEMM, then copies, then sums over ranks\n", shown_ms(plain.us));
  text += fmt::format(
      "  with overlap      {:>9}   a tile leaves when it is finished, sums follow at once: {:.2f} x as fast\n",
      shown_ms(fused.us), plain.us / fused.us);
  text +=
      fmt::format("Checked: both results equal a reference in double; the largest relative error is {:.0e}.\n", error);
  text += fmt::format("Proven:  both plans, {} tasks: no deadlock, each contribution exactly once, no race.\n", tasks);
  return text +
         "CPU ranks copy and sum on the cores that multiply. GPUs have copy engines and links beside their SMs.\n";
}

struct Predicted {
  std::string text;
  std::vector<ReportCall> calls;
};

// Predict two layers of a model by the simulator.
Predicted predict() {
  constexpr int64_t kTokens = 8192;
  const Machine machine = load_machine(kMachine);
  const Model& model = find_model("llama3-70b");
  Options options{.ranks = num_devices(machine)};
  options.trace = "timelines";  // keeps the timelines
  std::vector<Problem> problems;
  for (const char* op : {"all_gather_gemm", "gemm_reduce_scatter"}) {
    const LayerShape shape = layer_shapes(model, op).back();
    problems.push_back({.op = op, .m = kTokens, .n = shape.n, .k = shape.k, .dtype = DType::bf16});
  }
  std::vector<std::vector<Simulated>> rows(problems.size());
  on_all_cores(problems.size(), "predictions", [&](size_t i) {
    rows[i] = simulate_operator(
        options, problems[i], {{.name = "sequential", .schedule = "sequential"}, {.name = "auto", .schedule = "auto"}},
        machine);
  });
  Predicted made{
      .text = fmt::format("Predicted for 4 x NVIDIA H200: the feed-forward layer of Llama 3 70B, {} tokens, bf16\n",
                          kTokens)};
  for (size_t i = 0; i < problems.size(); ++i) {
    const nlohmann::json& row = rows[i].back().row;
    const auto us = row["total_us"].get<double>();
    const auto sequential = row["sequential_us"].get<double>();
    made.text += fmt::format(
        "  {:<20} {:>9} without overlap, {:>9} with it: {:.2f} x, {:.0f} % of the communication hidden\n",
        problems[i].op, shown_ms(sequential), shown_ms(us), sequential / us, 100 * row["overlap"].get<double>());
    for (const Simulated& each : rows[i]) {
      draw(made.calls,
           fmt::format("{} on 4 simulated H200, {}", problems[i].op, each.row["schedule"].get<std::string>()),
           each.run.plan, each.run.simulation.trace);
    }
  }
  return made;
}

void demo_on_rank(Group& group, const Demo& demo) {
  std::vector<Measured> measured = measure_on(group);
  if (group.team().rank != 0) return;
  for (const Measured& each : measured) {
    require_proven(each.plan);
    if (!each.comparison.ok()) fail(ErrorKind::wrong_result, "{}", each.comparison.text());
  }
  std::vector<ReportCall> calls;
  for (Measured& each : measured) std::ranges::move(each.calls, std::back_inserter(calls));
  Predicted predicted = predict();
  std::ranges::move(predicted.calls, std::back_inserter(calls));
  const std::string summary = text_of(measured, group.team().num_ranks) + "\n" + predicted.text;
  write_file(demo.out, report_page(summary, calls));
  if (demo.out == "-") return;
  print(summary + fmt::format("\nTimelines of these calls: {} (open it in a browser)\n"
                              "Next: docs/guide.md; tilewire --help\n",
                              demo.out));
}

}  // namespace

void add_demo(CLI::App& app) {
  auto demo = std::make_shared<Demo>();
  demo->options.ranks = 2;
  CLI::App* verb = app.add_subcommand("demo", "A first run: overlap on CPU ranks and on simulated GPUs");
  verb->footer("Takes some ten seconds on two cores and needs no GPU.");
  verb->add_option("--ranks", demo->options.ranks, "CPU ranks (default: 2)")->type_name("N");
  verb->add_option(
          "--out", demo->out,
          "The page with the timelines, or - for standard output, then without the text (default: report.html)")
      ->type_name("FILE");
  verb->callback([demo, verb] {
    adopt_launcher(demo->options, verb->count("--ranks") > 0);
    check_files({{"--out", demo->out}}, {});
    run_on_ranks(demo->options, [&](Group& group) { demo_on_rank(group, *demo); });
  });
}

}  // namespace tilewire::cli
