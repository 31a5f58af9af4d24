// tilewire bench: times schedules, interleaved with each other, and verifies each result.
// Called by main.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/bench_table.hpp"
#include "cli/counted.hpp"
#include "cli/entries.hpp"
#include "cli/facts.hpp"
#include "cli/flag_files.hpp"
#include "cli/measure.hpp"
#include "cli/options.hpp"
#include "cli/ranks.hpp"
#include "cli/traces.hpp"
#include "cli/verbs.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "operators/verify.hpp"
#include "schedules/tiles.hpp"
#include "tilewire/env.hpp"
#include "tilewire/json.hpp"
#include "tilewire/op.hpp"
#include "tilewire/spi/backend.hpp"
#include "tilewire/spi/operator.hpp"
#include "tilewire/spi/schedule.hpp"
#include "tuner/measure.hpp"
#include "tuner/tuner.hpp"

namespace tilewire::cli {
namespace {

struct Bench {
  Options options;
  Turns turns;
  std::vector<Entry> entries{};  // rows of each problem
};

// One line of the result.
struct Row {
  Entry entry;
  Plan plan;
  Comparison comparison;
  std::optional<double> enqueue_us;  // host time of an enqueue without graph replay
  std::optional<size_t> traced;      // index of the contender whose calls are traced
};

// The baselines of a row; of each list of contenders the fastest one counts.
struct Yardsticks {
  std::vector<size_t> gemm;           // the GEMM alone
  std::vector<size_t> communication;  // the communication alone
  std::vector<size_t> sequential;
  std::vector<size_t> free;  // the GEMM and the same bytes at once, independent of each other; on devices only
};

// One problem, and all that its rows share.
struct Case {
  Case(Group& g, const Bench& b, const Problem& p) : group(g), bench(b), problem(p), tensors(g, p) {}

  Group& group;
  const Bench& bench;
  Problem problem;
  RankTensors tensors;
  std::vector<Row> rows;
  std::vector<Contender> contenders;                // those of the rows, in their order, then the baselines
  std::map<size_t, Config> configs;                 // of contenders with the schedule `sequential`
  std::shared_ptr<const RankTensors> gemm_tensors;  // of the GEMM alone, if it has its own
  Yardsticks yardsticks;
  std::vector<std::string> notes;
  std::vector<std::pair<std::string, std::string>> refused;  // rows that were refused, and why
  bool graphs = false;
};

std::string title(const Problem& problem) {
  return fmt::format("{} {}x{}x{}", problem.op, problem.m, problem.n, problem.k);
}

// The plan of `sequential` with those knobs of the command line that it accepts.
Plan sequential_plan(Case& c) {
  const Team& team = c.group.team();
  const auto [config, left_out] = config_taken(c.bench.options, "sequential", c.problem, team);
  if (!left_out.empty()) {
    c.notes.push_back(fmt::format("gemm us, comm us and seq us are without --set {}", fmt::join(left_out, ", ")));
  }
  return make_plan(c.problem, team, config);
}

Plan plan_of(Case& c, const Entry& entry) {
  const Team& team = c.group.team();
  if (entry.schedule != "auto") return make_plan(c.problem, team, config_of(c.bench.options, entry, c.problem, team));
  const tuner::Choice choice =
      tuner::choose(c.group, c.problem, {.file = env::tuner_file(), .tuning = c.bench.options.tuning});
  c.notes.push_back(fmt::format("auto: {}: {}", tuner::describe(choice.config), choice.why));
  return make_plan(c.problem, team, choice.config);
}

void add_rows(Case& c) {
  for (const Entry& entry : c.bench.entries) {
    try {
      Plan plan = plan_of(c, entry);
      c.contenders.push_back(contender(c.group, entry.name, plan));
      c.rows.push_back({entry, std::move(plan), {}, {}, {}});
    } catch (const Error& error) {
      if (!entry.may_be_refused || error.kind() != ErrorKind::unsupported) throw;
      c.refused.emplace_back(entry.name, error.what());
      c.notes.push_back(c.bench.options.configs.empty() ? error.what() : entry.name + ": " + error.what());
    }
  }
  const bool listed = !c.bench.options.configs.empty();  // another problem may accept them
  if (c.rows.empty() && !listed) fail(ErrorKind::unsupported, "no schedule can do this: {}", fmt::join(c.notes, "; "));
}

// The contender that runs `sequential` with this plan: a row with the same plan, or else a new one.
size_t sequential_contender(Case& c, const Plan& plan) {
  const auto same = std::ranges::find(c.rows, plan, &Row::plan);
  if (same != c.rows.end()) return static_cast<size_t>(same - c.rows.begin());
  c.contenders.push_back(contender(c.group, "sequential", plan));
  return c.contenders.size() - 1;
}

// The plan whose GEMM is timed alone: `sequential`'s, but for a gather one whose A is a caller's input
// (gemm_of_gather).
Plan gemm_yardstick(Case& c, const Plan& sequential) {
  const int ranks = c.group.team().num_ranks;
  if (structure_of(c.problem).before != Collective::all_gather || c.problem.m == 0) return sequential;
  const Problem problem = gemm_of_gather(c.problem, ranks);
  if (!c.gemm_tensors) {
    auto tensors = std::make_shared<RankTensors>(c.group, problem);
    tensors->fill(random_inputs(problem, ranks, c.bench.options.seed));
    c.gemm_tensors = std::move(tensors);
  }
  return make_plan(problem, c.group.team(), same_tiles(note_of(sequential).config));
}

// Add the communication of `sequential` alone, and all of `sequential`.
void add_collective_yardsticks(Case& c, const Plan& sequential) {
  c.contenders.push_back(contender(c.group, "communication alone", communication_only(sequential)));
  c.yardsticks.communication.push_back(c.contenders.size() - 1);
  c.yardsticks.sequential.push_back(sequential_contender(c, sequential));
  c.configs[c.yardsticks.sequential.back()] = note_of(sequential).config;
}

// Add `sequential` and its parts as baselines.
void add_yardsticks(Case& c, const Plan& sequential) {
  const auto add = [&](std::vector<size_t>& list, const char* name, const Plan& plan) {
    c.contenders.push_back(contender(c.group, name, plan));
    list.push_back(c.contenders.size() - 1);
  };
  const Plan gemm = gemm_only(on_gpus(c.group.team()) ? gemm_yardstick(c, sequential) : sequential);
  add(c.yardsticks.gemm, "gemm alone", gemm);
  c.contenders.back().tensors = c.gemm_tensors;
  add_collective_yardsticks(c, sequential);
  if (!on_gpus(c.group.team()) || num_tasks(gemm) == 0) return;
  const int64_t bytes = find_operator(c.problem.op).least_bytes(c.problem, c.group.team().num_ranks);
  add(c.yardsticks.free, "free", beside_exchange(gemm, bytes / c.group.team().num_ranks));
  c.contenders.back().tensors = c.gemm_tensors;
}

// Add the same with calls of the vendor's libraries, if these can be called. NOTE: a library that sums in an order of
// its own is a baseline even if the problem does not allow that, since users run it.
void add_library_yardsticks(Case& c) {
  Problem problem = c.problem;
  problem.reduction = Reduction::any;
  for (const Config& config : find_schedule("sequential").candidates(problem, c.group.team())) {
    const bool collective = config.collective == Provider::library;
    if (config.compute != Provider::library && !collective) continue;
    const char* name = collective ? "NCCL" : "cuBLASLt";
    try {
      const Plan plan = make_plan(collective ? problem : c.problem, c.group.team(), config);
      collective ? add_collective_yardsticks(c, plan) : add_yardsticks(c, plan);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unsupported) throw;
      c.notes.push_back(fmt::format("without {}: {}", name, error.what()));
    }
  }
}

// Time the calls of each row once more with tracing: the difference is the cost of tracing.
void add_traced(Case& c) {
  for (Row& row : c.rows) {
    try {
      Contender traced = contender(c.group, row.entry.name + ", traced", row.plan);
      traced.traced = true;
      row.traced = c.contenders.size();
      c.contenders.push_back(std::move(traced));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unsupported) throw;
      c.notes.push_back(fmt::format("{} is not timed traced: {}", row.entry.name, error.what()));
    }
  }
}

void verify_rows(Case& c, Progress& progress) {
  const Options& options = c.bench.options;
  const Team& team = c.group.team();
  const ReadRow read = random_inputs(c.problem, team.num_ranks, options.seed);
  progress.show(title(c.problem) + ": inputs");
  c.tensors.fill(read);
  if (!options.verify) return;
  progress.show(title(c.problem) + ": reference");
  const Expected expected(c.problem, team.num_ranks, team.rank, read, {.seed = options.seed});
  for (size_t i = 0; i < c.rows.size(); ++i) {
    Row& row = c.rows[i];
    progress.show(fmt::format("{}: verifying {}", title(c.problem), row.entry.name));
    c.tensors.poison();
    c.group.barrier();
    if (c.contenders[i].program) c.contenders[i].program->run(c.tensors.inputs(), c.tensors.outputs(), {});
    const Tolerance tolerance = tolerance_of(c.problem, note_of(row.plan).config);
    row.comparison = verify(c.group, expected, c.tensors.results(), tolerance);
    if (!row.comparison.ok()) c.notes.push_back(fmt::format("{}: {}", row.entry.name, row.comparison.text()));
  }
}

void measure(Case& c, Progress& progress) {
  c.graphs = choose_graphs(c.group, c.tensors, c.contenders, c.rows.size(), c.problem.m);
  if (c.graphs) c.notes.push_back("calls are replays of graphs");
  measure_in_turn(c.group, c.tensors, c.contenders, c.bench.turns,
                  [&](const std::string& what) { progress.show(title(c.problem) + ": " + what); });
  for (size_t i = 0; c.graphs && i < c.rows.size(); ++i) {
    c.rows[i].enqueue_us = eager_enqueue_us(c.group, c.contenders[i], c.tensors);
  }
}

// The contender of a list with the smallest median.
size_t fastest(const Case& c, const std::vector<size_t>& list) {
  return *std::ranges::min_element(list, {}, [&](size_t index) { return median_us(c.contenders[index]); });
}

// The smallest median of a list of contenders.
double least(const Case& c, const std::vector<size_t>& list) { return median_us(c.contenders[fastest(c, list)]); }

nlohmann::json or_null(const std::optional<double>& value) { return value ? nlohmann::json(*value) : nlohmann::json(); }

void add_device_fields(const Case& c, size_t index, nlohmann::json& json) {
  const std::vector<double>& enqueue_us = c.contenders[index].enqueue_us;
  std::optional<double> as_measured;
  if (!enqueue_us.empty()) as_measured = tuner::median(enqueue_us);
  json["link_us"] = or_null(link_us(c.problem, c.group.team()));
  std::optional<double> free;
  if (!c.yardsticks.free.empty()) free = least(c, c.yardsticks.free);
  json["free_us"] = or_null(free);
  json["total_over_free"] = free ? nlohmann::json(median_us(c.contenders[index]) / *free) : nlohmann::json();
  json["graphs"] = c.graphs;
  json["enqueue_us"] = or_null(c.graphs ? c.rows[index].enqueue_us : as_measured);
  json["replay_enqueue_us"] = c.graphs ? or_null(as_measured) : nlohmann::json();
}

nlohmann::json row_json(const Case& c, size_t index) {
  const Row& row = c.rows[index];
  const double total = median_us(c.contenders[index]);
  const double gemm = least(c, c.yardsticks.gemm);
  const size_t plain = fastest(c, c.yardsticks.sequential);
  const double sequential = median_us(c.contenders[plain]);
  nlohmann::json json = sizes_json(c.problem);
  json.update({{"schedule", row.entry.schedule},
               {"ranks", c.group.team().num_ranks},
               {"dtype", to_string(c.problem.dtype)},
               {"total_us", total},
               {"gemm_us", gemm},
               {"comm_us", least(c, c.yardsticks.communication)},
               {"sequential_us", sequential},
               {"ect_us", total - gemm},
               {"overlap", overlap_efficiency(total, gemm, sequential)},
               {"rel_error", nullptr},
               {"ok", nullptr},
               {"samples_us", c.contenders[index].samples_us},
               {"config", config_json(note_of(row.plan).config)},
               {"sequential_config", config_json(c.configs.at(plain))}});
  if (!c.bench.options.configs.empty()) json["name"] = row.entry.name;
  if (row.traced) json["traced_us"] = median_us(c.contenders[*row.traced]);
  if (on_gpus(c.group.team())) add_device_fields(c, index, json);
  if (c.bench.options.verify) {
    json["rel_error"] = row.comparison.rel_error();
    json["ok"] = row.comparison.ok();
  }
  return json;
}

// Trace the second of two calls, since the first one touches memory for the first time.
void add_traces(Case& c, TraceFile& file) {
  for (const Row& row : c.rows) {
    Op op = make_op(c.group, c.problem, note_of(row.plan).config, {.trace = true});
    op.run_and_wait(c.tensors.inputs(), c.tensors.outputs());
    op.run_and_wait(c.tensors.inputs(), c.tensors.outputs());
    const Trace trace = op.gather_trace();
    if (c.group.team().rank == 0) file.add(title(c.problem) + " " + row.entry.name, op.plan(), trace);
  }
}

// The results of all problems.
struct Outcome {
  bool ok = true;
  TraceFile traces;
  nlohmann::json rows = nlohmann::json::array();
  nlohmann::json refused = nlohmann::json::array();
  TablePrinter printer;
};

size_t name_width(const Bench& bench) {
  size_t width = 11;
  for (const Entry& entry : bench.entries) width = std::max(width, entry.name.size());
  return width;
}

// Add the rows and refusals of a measured problem; rank 0 prints them.
void report(const Case& c, Outcome& outcome) {
  std::string text;
  for (size_t i = 0; i < c.rows.size(); ++i) {
    outcome.rows.push_back(row_json(c, i));
    outcome.ok = outcome.ok && c.rows[i].comparison.ok();
    text += table_line(outcome.rows.back(), name_width(c.bench));
  }
  for (const auto& [name, reason] : c.refused) {
    nlohmann::json& refused = outcome.refused.emplace_back(sizes_json(c.problem));
    refused["name"] = name;
    refused["reason"] = reason;
  }
  for (const std::string& note : c.notes) text += "  " + note + "\n";
  if (c.group.team().rank == 0 && c.bench.options.json != "-") outcome.printer.print(text);
}

void bench_problem(Group& group, const Bench& bench, const Problem& problem, Outcome& outcome) {
  Progress progress(group.team().rank);
  progress.show(title(problem));
  Case c(group, bench, problem);
  add_rows(c);
  verify_rows(c, progress);
  add_yardsticks(c, sequential_plan(c));
  if (on_gpus(group.team())) add_library_yardsticks(c);
  if (!bench.options.trace.empty()) add_traced(c);
  measure(c, progress);
  if (!bench.options.trace.empty()) add_traces(c, outcome.traces);
  progress.show("");
  report(c, outcome);
}

void bench_on_rank(Group& group, const Bench& bench, const std::vector<Problem>& problems) {
  const Options& options = bench.options;
  const bool prints = group.team().rank == 0;
  nlohmann::json result = {{"machine", machine_facts()}};
  if (on_gpus(group.team())) result["machine"]["cuda"] = gpu_facts(cuda::cuda_facts());
  Outcome outcome;
  if (prints && options.json != "-") {
    outcome.printer.print(
        fmt::format("{} ({}), {}, {} on {} cores, {}\n", counted(group.team().num_ranks, "rank"), group.backend(),
                    to_string(problems.front().dtype), result["machine"]["cpu"].get<std::string>(),
                    result["machine"]["cores"].get<int>(), result["machine"]["gemm"].get<std::string>()) +
        table_head(on_gpus(group.team()), name_width(bench)));
  }
  for (const Problem& problem : problems) bench_problem(group, bench, problem, outcome);
  result["rows"] = outcome.rows;
  result["refused"] = outcome.refused;
  if (prints && !options.json.empty()) write_file(options.json, json_text(result, 1) + "\n");
  if (prints && !options.trace.empty()) {
    outcome.traces.write(options.trace);
    if (options.json != "-") {
      outcome.printer.print(outcome.traces.summary() +
                            fmt::format("trace in {}: open it in ui.perfetto.dev\n", options.trace));
    }
  }
  outcome.printer.finish();
  if (outcome.rows.empty()) fail(ErrorKind::unsupported, "every config was refused");
  if (!outcome.ok) fail(ErrorKind::wrong_result, "a result differs from the reference by more than its tolerance");
}

}  // namespace

void add_bench(CLI::App& app) {
  auto bench = std::make_shared<Bench>();
  Options& options = bench->options;
  CLI::App* verb =
      app.add_subcommand("bench", "Time schedules of operators, verified, in turn with the sequential one");
  verb->footer(kBenchFooter);
  add_operators(*verb, options, true)->required();
  add_problem_flags(*verb, options);
  add_schedule_flags(*verb, options, "all");
  add_configs_flag(*verb, options);
  add_rank_flags(*verb, options);
  add_seed_flag(*verb, options);
  add_verify_flag(*verb, options, true);
  verb->add_option("--iters", bench->turns.measured, "Measured iterations (default: 5)")->type_name("N");
  verb->add_option("--warmup", bench->turns.warmup, "Iterations before them (default: 1)")->type_name("N");
  add_json_flag(*verb, options,
                "Write {machine, rows, refused} to a file, or - for standard output (then without the table)");
  verb->add_option("--trace", options.trace, "Write a Chrome trace of one call of each row, side by side")
      ->type_name("FILE");
  verb->callback([bench, verb] {
    adopt_launcher(bench->options, verb->count("--ranks") > 0);
    check_names(bench->options);
    require(bench->options.configs.empty() || verb->count("--schedule") == 0, "--schedule: --configs names schedules");
    bench->entries = entries_of(bench->options);
    require(bench->turns.measured > 0, "--iters {}: want at least 1", bench->turns.measured);
    require(bench->turns.warmup >= 0, "--warmup {}: want at least 0", bench->turns.warmup);
    const std::vector<Problem> problems = problems_of(bench->options);
    check_files({{"--json", bench->options.json}, trace_file(bench->options), tuner_file(bench->options)},
                input_files(bench->options));
    run_on_ranks(bench->options, [&](Group& group) { bench_on_rank(group, *bench, problems); });
  });
}

}  // namespace tilewire::cli
