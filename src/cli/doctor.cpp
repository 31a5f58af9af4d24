// tilewire doctor: what this machine lacks for a backend, advice, and a trial run.
// Called by main.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/flag_files.hpp"
#include "cli/options.hpp"
#include "cli/ranks.hpp"
#include "cli/symptoms.hpp"
#include "cli/verbs.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "operators/tensors.hpp"
#include "operators/verify.hpp"
#include "tilewire/env.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/op.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire::cli {
namespace {

Wanted wanted_of(const Options& options) {
  return {.backend = options.backend,
          .ranks = options.ranks,
          .threads = options.threads,
          .arena_bytes = static_cast<int64_t>(options.arena_gib * (int64_t{1} << 30))};
}

/// Run a small operator on the ranks, and compare its result with the reference. Returns the failure, or nothing.
std::string trial(const Options& options) {
  const Problem problem{
      .op = "all_gather_gemm", .m = 32 * int64_t{options.ranks}, .n = 64 * int64_t{options.ranks}, .k = 64};
  try {
    static_cast<void>(available_backend(options.backend));
    run_on_ranks(options, [&](Group& group) {
      const RankTensors tensors(group, problem);
      const ReadRow inputs = random_inputs(problem, options.ranks, 1);
      tensors.fill(inputs);
      tensors.poison();
      const Config config = default_config("fused", problem, group.team());
      Op op = make_op(group, problem, config);
      op.run_and_wait(tensors.inputs(), tensors.outputs());
      const Expected expected(problem, options.ranks, group.team().rank, inputs, {});
      const Comparison got = verify(group, expected, tensors.results(), tolerance_of(problem, config));
      if (!got.ok()) fail(ErrorKind::wrong_result, "{}", got.text());
    });
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

const char* name_of(Health health) {
  return health == Health::ok ? "ok" : health == Health::warning ? "warning" : "missing";
}

std::string text_of(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{:<8} {:<28} {}\n", name_of(finding.health), finding.what, finding.seen);
    if (!finding.advice.empty()) text += fmt::format("{:<8} {:<28} -> {}\n", "", "", finding.advice);
  }
  return text;
}

nlohmann::json json_of(const std::vector<Finding>& findings) {
  nlohmann::json all = nlohmann::json::array();
  for (const Finding& finding : findings) {
    all.push_back({{"health", name_of(finding.health)},
                   {"what", finding.what},
                   {"seen", finding.seen},
                   {"advice", finding.advice}});
  }
  return all;
}

void examine(const Options& options) {
  require(options.ranks >= 1, "--ranks {}: want 1 or more", options.ranks);
  // NOTE: before this process initialises CUDA, as it can fork no ranks after that.
  const std::string failed = trial(options);
  std::vector<Finding> findings = findings_of(machine_state(options.backend == "cuda"), wanted_of(options));
  const std::string what = fmt::format("a product on {} ranks", options.ranks);
  findings.push_back(failed.empty() ? Finding{Health::ok, "trial", what + ", right", {}}
                                    : Finding{Health::missing, "trial", what, failed});
  std::vector<std::string> lacks;
  for (Finding& finding : findings) {
    // Facts are estimates: if the trial succeeded, nothing is missing.
    if (finding.health == Health::missing && failed.empty()) finding.health = Health::warning;
    if (finding.health == Health::missing) lacks.push_back(finding.what);
  }
  const auto place = env::place();
  const bool speaks = !place || place->rank == 0;
  if (speaks && !options.json.empty()) {
    const nlohmann::json json = {{"backend", options.backend},
                                 {"ranks", options.ranks},
                                 {"runs", lacks.empty()},
                                 {"findings", json_of(findings)}};
    write_file(options.json, json_text(json, 1) + "\n");
  }
  if (speaks && options.json != "-") print(text_of(findings));
  if (!lacks.empty())
    fail(ErrorKind::unsupported, "{} would not run here, missing: {}", options.backend, fmt::join(lacks, ", "));
}

}  // namespace

void add_doctor(CLI::App& app) {
  auto options = std::make_shared<Options>();
  options->ranks = 2;
  CLI::App* verb = app.add_subcommand("doctor", "Say what this machine lacks for a backend, and what to do about it");
  verb->footer(
      "Exit code 0 where the backend runs, 2 where something is missing.\nExample:\n  tilewire doctor --backend cuda "
      "--ranks 4");
  add_rank_flags(*verb, *options);
  add_json_flag(*verb, *options, "Write it as JSON to a file, or - for standard output (then nothing else)");
  verb->callback([options, verb] {
    adopt_launcher(*options, verb->count("--ranks") > 0);
    check_files({{"--json", options->json}}, {});
    examine(*options);
  });
}

}  // namespace tilewire::cli
