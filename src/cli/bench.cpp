// tilewire bench: times of schedules, in turn, each result verified.
// Called by main.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/facts.hpp"
#include "cli/measure.hpp"
#include "cli/options.hpp"
#include "cli/ranks.hpp"
#include "cli/traces.hpp"
#include "cli/verbs.hpp"
#include "core/text.hpp"
#include "operators/verify.hpp"
#include "tilewire/env.hpp"
#include "tilewire/json.hpp"
#include "tilewire/op.hpp"
#include "tilewire/operator.hpp"
#include "tilewire/schedule.hpp"
#include "tuner/tuner.hpp"

namespace tilewire::cli {
namespace {

struct Bench {
  Options options;
  Turns turns;
};

nlohmann::json config_json(const Config& config) {
  nlohmann::json json = config;
  json["schedule"] = config.schedule;
  return json;
}

// One line of the result.
struct Row {
  std::string schedule;  // as asked for: a name, or "auto"
  Plan plan;
  Comparison comparison;
};

// What a row is compared with: the fastest of each list of contenders.
struct Yardsticks {
  std::vector<size_t> gemm;           // the GEMM alone
  std::vector<size_t> communication;  // the rest alone
  std::vector<size_t> sequential;
  std::vector<size_t> free;  // the GEMM beside the same bytes, with no dependence; on devices only
};

// Everything about one problem that its rows share.
struct Case {
  Case(Group& g, const Bench& b, const Problem& p) : group(g), bench(b), problem(p), tensors(g, p) {}

  Group& group;
  const Bench& bench;
  Problem problem;
  RankTensors tensors;
  std::vector<Row> rows;
  std::vector<Contender> contenders;                // of the rows, in their order, then others
  std::map<size_t, Config> configs;                 // of contenders that are `sequential`
  std::shared_ptr<const RankTensors> gemm_tensors;  // where the GEMM alone has its own
  Yardsticks yardsticks;
  std::vector<std::string> notes;  // schedules that refused, and why
};

bool on_device(const Group& group) {
  const auto& devices = group.team().devices;
  return !devices.empty() && devices[0].sms > 0;
}

std::string title(const Problem& problem) {
  return fmt::format("{} {}x{}x{}", problem.op, problem.m, problem.n, problem.k);
}

// "sequential" with those knobs of the command line that it takes.
Plan sequential_plan(Case& c) {
  const Team& team = c.group.team();
  const auto [config, left_out] = config_taken(c.bench.options, "sequential", c.problem, team);
  if (!left_out.empty()) {
    c.notes.push_back(fmt::format("gemm us, comm us and seq us are without --set {}", fmt::join(left_out, ", ")));
  }
  return make_plan(c.problem, team, config);
}

Plan plan_of(Case& c, const std::string& schedule) {
  const Team& team = c.group.team();
  if (schedule != "auto") return make_plan(c.problem, team, config_of(c.bench.options, schedule, c.problem, team));
  const tuner::Choice choice = tuner::choose(c.group, c.problem, {.file = env::tuner_file()});
  c.notes.push_back(fmt::format("auto: {}: {}", tuner::describe(choice.config), choice.why));
  return make_plan(c.problem, team, choice.config);
}

void add_rows(Case& c) {
  const bool all = c.bench.options.schedule == "all";
  for (const std::string& schedule : schedules_of(c.bench.options)) {
    try {
      Plan plan = plan_of(c, schedule);
      c.contenders.push_back(contender(c.group, schedule, plan));
      c.rows.push_back({schedule, std::move(plan), {}});
    } catch (const Error& error) {
      if (!all || error.kind() != ErrorKind::unsupported) throw;
      c.notes.push_back(error.what());
    }
  }
  if (c.rows.empty()) fail(ErrorKind::unsupported, "no schedule can do this: {}", fmt::join(c.notes, "; "));
}

// The contender that runs `sequential` with this plan: a row's, where one is the same.
size_t sequential_contender(Case& c, const Plan& plan) {
  const auto same = std::ranges::find(c.rows, plan.config, [](const Row& row) { return row.plan.config; });
  if (same != c.rows.end()) return static_cast<size_t>(same - c.rows.begin());
  c.contenders.push_back(contender(c.group, "sequential", plan));
  return c.contenders.size() - 1;
}

// A plan on a device whose GEMM finds the caller's data: that of `sequential`, or for a gather one of its own.
Plan gemm_yardstick(Case& c, const Plan& sequential) {
  const int ranks = c.group.team().num_ranks;
  if (c.problem.op != "all_gather_gemm" || c.problem.m == 0) return sequential;
  const Problem problem = gemm_of_gather(c.problem, ranks);
  if (!c.gemm_tensors) {
    auto tensors = std::make_shared<RankTensors>(c.group, problem);
    tensors->fill(random_inputs(problem, ranks, c.bench.options.seed));
    c.gemm_tensors = std::move(tensors);
  }
  Config config{.schedule = "sequential", .tile_m = sequential.config.tile_m, .tile_n = sequential.config.tile_n};
  config.cluster_m = sequential.config.cluster_m;
  config.cluster_n = sequential.config.cluster_n;
  config.group_m = sequential.config.group_m;
  config.compute = sequential.config.compute;
  return make_plan(problem, c.group.team(), config);
}

// `sequential` without its GEMM, and whole.
void add_collective_yardsticks(Case& c, const Plan& sequential) {
  c.contenders.push_back(contender(c.group, "communication alone", communication_only(sequential)));
  c.yardsticks.communication.push_back(c.contenders.size() - 1);
  c.yardsticks.sequential.push_back(sequential_contender(c, sequential));
  c.configs[c.yardsticks.sequential.back()] = sequential.config;
}

// `sequential` and its parts.
void add_yardsticks(Case& c, const Plan& sequential) {
  const auto add = [&](std::vector<size_t>& list, const char* name, const Plan& plan) {
    c.contenders.push_back(contender(c.group, name, plan));
    list.push_back(c.contenders.size() - 1);
  };
  const Plan gemm = gemm_only(on_device(c.group) ? gemm_yardstick(c, sequential) : sequential);
  add(c.yardsticks.gemm, "gemm alone", gemm);
  c.contenders.back().tensors = c.gemm_tensors;
  add_collective_yardsticks(c, sequential);
  if (!on_device(c.group) || num_tasks(gemm) == 0) return;
  const int64_t bytes = find_operator(c.problem.op).least_bytes(c.problem, c.group.team().num_ranks);
  add(c.yardsticks.free, "free", beside_exchange(gemm, bytes / c.group.team().num_ranks));
  c.contenders.back().tensors = c.gemm_tensors;
}

// The same with calls of the vendor's libraries, where they can be called. NOTE: what the library sums in an order of
// its own is measured for problems that do not allow it, too: users run it.
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
    progress.show(fmt::format("{}: verifying {}", title(c.problem), row.schedule));
    c.tensors.poison();
    c.group.barrier();
    if (c.contenders[i].program) c.contenders[i].program->run(c.tensors.inputs(), c.tensors.outputs(), {});
    const double tolerance = tolerance_of(c.problem, row.plan.config);
    row.comparison = verify(c.group, expected, c.tensors.results(), tolerance);
    if (!row.comparison.ok()) c.notes.push_back(fmt::format("{}: {}", row.schedule, row.comparison.text()));
  }
}

// Which of some contenders has the smallest median.
size_t fastest(const Case& c, const std::vector<size_t>& list) {
  return *std::ranges::min_element(list, {}, [&](size_t index) { return median_us(c.contenders[index]); });
}

nlohmann::json row_json(const Case& c, size_t index) {
  const Row& row = c.rows[index];
  const auto least = [&](const std::vector<size_t>& list) { return median_us(c.contenders[fastest(c, list)]); };
  const double total = median_us(c.contenders[index]);
  const double gemm = least(c.yardsticks.gemm);
  const size_t plain = fastest(c, c.yardsticks.sequential);
  const double sequential = median_us(c.contenders[plain]);
  nlohmann::json json = {{"operator", c.problem.op},
                         {"schedule", row.schedule},
                         {"m", c.problem.m},
                         {"n", c.problem.n},
                         {"k", c.problem.k},
                         {"ranks", c.group.team().num_ranks},
                         {"dtype", to_string(c.problem.dtype)},
                         {"total_us", total},
                         {"gemm_us", gemm},
                         {"comm_us", least(c.yardsticks.communication)},
                         {"sequential_us", sequential},
                         {"overlap", overlap_efficiency(total, gemm, sequential)},
                         {"rel_error", nullptr},
                         {"ok", nullptr},
                         {"samples_us", c.contenders[index].samples_us},
                         {"config", config_json(row.plan.config)},
                         {"sequential_config", config_json(c.configs.at(plain))}};
  if (on_device(c.group)) {
    const auto link = link_us(c.problem, c.group.team());
    json["link_us"] = link ? nlohmann::json(*link) : nlohmann::json();
    json["free_us"] = c.yardsticks.free.empty() ? nlohmann::json() : nlohmann::json(least(c.yardsticks.free));
  }
  if (c.bench.options.verify) {
    json["rel_error"] = row.comparison.rel_error();
    json["ok"] = row.comparison.ok();
  }
  return json;
}

std::string table_head(bool device) {
  const std::string limits = device ? fmt::format("{:>9} {:>9} {:>7} ", "link us", "free us", "/ free") : "";
  return fmt::format("{:<20} {:<11} {:>6} {:>6} {:>6} {:>11} {:>11} {:>11} {:>11} {:>8} {:>7} {}{:>9}  {}\n",
                     "operator", "schedule", "m", "n", "k", "total us", "gemm us", "comm us", "seq us", "speedup",
                     "overlap", limits, "error", "ok");
}

// What is known on devices only.
std::string limits_text(const nlohmann::json& row) {
  if (!row.contains("free_us")) return "";
  const auto text = [](const nlohmann::json& us) {
    return us.is_null() ? std::string("-") : fmt::format("{:.1f}", us.get<double>());
  };
  const double free = row["free_us"].is_null() ? 0 : row["free_us"].get<double>();
  const std::string ratio = free > 0 ? fmt::format("{:.2f}", row["total_us"].get<double>() / free) : "-";
  return fmt::format("{:>9} {:>9} {:>7} ", text(row["link_us"]), text(row["free_us"]), ratio);
}

std::string table_line(const nlohmann::json& row) {
  const double total = row["total_us"];
  const double sequential = row["sequential_us"];
  const double hidden = row["overlap"];
  const std::string overlap = std::isfinite(hidden) ? fmt::format("{:.2f}", hidden) : "-";
  const std::string error = row["rel_error"].is_number() ? fmt::format("{:.1e}", row["rel_error"].get<double>()) : "-";
  const std::string ok = row["ok"].is_null() ? "not verified" : row["ok"].get<bool>() ? "ok" : "WRONG";
  return fmt::format(
      "{:<20} {:<11} {:>6} {:>6} {:>6} {:>11.1f} {:>11.1f} {:>11.1f} {:>11.1f} {:>7.2f}x {:>7} "
      "{}{:>9}  {}\n",
      row["operator"].get<std::string>(), row["schedule"].get<std::string>(), row["m"].get<int64_t>(),
      row["n"].get<int64_t>(), row["k"].get<int64_t>(), total, row["gemm_us"].get<double>(),
      row["comm_us"].get<double>(), sequential, total > 0 ? sequential / total : 1.0, overlap, limits_text(row), error,
      ok);
}

// The second of two traced calls, so that first touches are not in it.
void add_traces(Case& c, TraceFile& file) {
  for (const Row& row : c.rows) {
    Op op = make_op(c.group, c.problem, row.plan.config, {.trace = true});
    op.run(c.tensors.inputs(), c.tensors.outputs());
    op.run(c.tensors.inputs(), c.tensors.outputs());
    const Trace trace = op.gather_trace();
    if (c.group.team().rank == 0) file.add(title(c.problem) + " " + row.schedule, row.plan, trace);
  }
}

// What all problems add to.
struct Outcome {
  bool ok = true;
  TraceFile traces;
};

// Measure one problem; returns its rows, and prints them on rank 0.
nlohmann::json bench_problem(Group& group, const Bench& bench, const Problem& problem, Outcome& outcome) {
  Progress progress(group.team().rank);
  progress.show(title(problem));
  Case c(group, bench, problem);
  add_rows(c);
  verify_rows(c, progress);
  add_yardsticks(c, sequential_plan(c));
  if (on_device(group)) add_library_yardsticks(c);
  measure_in_turn(group, c.tensors, c.contenders, bench.turns,
                  [&](const std::string& what) { progress.show(title(problem) + ": " + what); });
  if (!bench.options.trace.empty()) add_traces(c, outcome.traces);
  progress.show("");
  nlohmann::json rows = nlohmann::json::array();
  for (size_t i = 0; i < c.rows.size(); ++i) {
    rows.push_back(row_json(c, i));
    outcome.ok = outcome.ok && c.rows[i].comparison.ok();
  }
  if (group.team().rank != 0 || bench.options.json == "-") return rows;
  std::string text;
  for (const nlohmann::json& row : rows) text += table_line(row);
  for (const std::string& note : c.notes) text += "  " + note + "\n";
  print(text);
  return rows;
}

void bench_on_rank(Group& group, const Bench& bench, const std::vector<Problem>& problems) {
  const Options& options = bench.options;
  const bool prints = group.team().rank == 0;
  nlohmann::json result = {{"machine", machine_facts()}, {"rows", nlohmann::json::array()}};
  if (prints && options.json != "-") {
    print(fmt::format("{} ranks ({}), {}, {} on {} cores, {}\n", group.team().num_ranks, group.backend(),
                      to_string(problems.front().dtype), result["machine"]["cpu"].get<std::string>(),
                      result["machine"]["cores"].get<int>(), result["machine"]["gemm"].get<std::string>()) +
          table_head(on_device(group)));
  }
  Outcome outcome;
  for (const Problem& problem : problems) {
    for (auto& row : bench_problem(group, bench, problem, outcome)) result["rows"].push_back(row);
  }
  if (prints && !options.json.empty()) write_file(options.json, result.dump(1) + "\n");
  if (prints && !options.trace.empty()) {
    outcome.traces.write(options.trace);
    if (options.json != "-") {
      print(outcome.traces.summary() + fmt::format("trace in {}: open it in ui.perfetto.dev\n", options.trace));
    }
  }
  if (!outcome.ok) fail(ErrorKind::wrong_result, "a result differs from the reference by more than its tolerance");
}

constexpr const char* kFooter = R"(Columns:
  total us  median over the iterations of the slowest rank
  gemm us   the GEMM tasks of `sequential` alone
  comm us   `sequential` without its GEMM
            on GPUs the faster of copy engines with our sums and, where it can do it, NCCL
  seq us    `sequential`, measured in turn with the others; on GPUs the fastest of our tiles, cuBLASLt's GEMM, and
            cuBLASLt's GEMM with NCCL. gemm us is the faster of the two GEMMs
  speedup   seq / total
  overlap   1 - (total - gemm) / (seq - gemm): 0 = nothing hidden, 1 = all of it
  link us   on GPUs: the bytes that a rank must send at the peak of its links
  free us   on GPUs: the GEMM beside copies of these bytes that have nothing to do with it
  error     |out - reference| / |reference|
With --trace a table of every lane follows: the time in which its workers were busy and waiting, all
together, and its span; there overlap is the share of the time of the other tasks in which a GEMM task of the
same rank ran too.
Every result is verified against the reference in double unless --no-verify is given; one that is
wrong makes the exit code 1.

Examples:
  tilewire bench all_gather_gemm gemm_reduce_scatter --model llama3-70b --tokens 512
  tilewire bench gemm_all_reduce -m 1024 -n 8192 -k 8192 --schedule fused --set tile_m=64 --trace t.json
  tilewire bench gemm_reduce_scatter --shapes shapes.json --dtype fp32 --ranks 2 --json result.json
  mpirun -n 4 tilewire bench all_reduce -m 64 -n 8192)";

}  // namespace

void add_bench(CLI::App& app) {
  auto bench = std::make_shared<Bench>();
  Options& options = bench->options;
  CLI::App* verb =
      app.add_subcommand("bench", "Time schedules of operators, verified, in turn with the sequential one");
  verb->footer(kFooter);
  add_operators(*verb, options, true)->required();
  add_problem_flags(*verb, options);
  add_schedule_flags(*verb, options, "all");
  add_rank_flags(*verb, options);
  add_verify_flag(*verb, options, true);
  verb->add_option("--iters", bench->turns.measured, "Measured iterations (default: 5)")->type_name("N");
  verb->add_option("--warmup", bench->turns.warmup, "Iterations before them (default: 1)")->type_name("N");
  add_json_flag(*verb, options, "Write {machine, rows} to a file, or - for standard output (then without the table)");
  verb->add_option("--trace", options.trace, "Write a Chrome trace of one call of each row, side by side")
      ->type_name("FILE");
  verb->callback([bench, verb] {
    adopt_launcher(bench->options, verb->count("--ranks") > 0);
    check_names(bench->options);
    require(bench->turns.measured > 0, "--iters {}: want at least 1", bench->turns.measured);
    require(bench->turns.warmup >= 0, "--warmup {}: want at least 0", bench->turns.warmup);
    const std::vector<Problem> problems = problems_of(bench->options);
    if (is_first_process()) {
      check_writable(bench->options.json);
      check_writable(bench->options.trace);
    }
    run_on_ranks(bench->options, [&](Group& group) { bench_on_rank(group, *bench, problems); });
  });
}

}  // namespace tilewire::cli
