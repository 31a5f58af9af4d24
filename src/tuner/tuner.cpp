// `auto`: measures candidates of all schedules once, and remembers the winner.
// Called by make_op where no config is given.
#include "tuner/tuner.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "core/caught.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "schedules/tiles.hpp"
#include "tilewire/json.hpp"
#include "tilewire/spi/backend.hpp"
#include "tilewire/spi/schedule.hpp"
#include "tuner/candidates.hpp"
#include "tuner/measure.hpp"
#include "tuner/shipped.hpp"
#include "tuner/winners.hpp"

namespace tilewire::tuner {
namespace {

using nlohmann::json;

constexpr int kMaxRounds = 9;
constexpr size_t kMaxFinalists = 3;
constexpr size_t kMaxFinalistsOnGpus = 6;  // which share their workspace, and of which few are measured
constexpr double kFinalistWithin = 1.25;   // of the best time after one look
constexpr double kLongCall = 0.05;         // of the budget: a call that needs no second look
constexpr double kBudgetS = 4;
constexpr double kQuickBudgetS = 1;
constexpr double kModelS = 1;  // most seconds of the model
constexpr double kQuickModelS = 0.2;

/// One config on its way through the selection.
struct Contender {
  Config config;
  std::string excluded;  ///< why it was not measured; empty = it was
  std::vector<double> us;
  std::unique_ptr<Program> program;
};

/// Seconds since the start, agreed by all ranks.
class Budget {
 public:
  Budget(Group& group, double seconds) : group_(group), us_(seconds * 1e6) {}

  [[nodiscard]] double us() const { return us_; }
  [[nodiscard]] static std::chrono::steady_clock::time_point now() { return std::chrono::steady_clock::now(); }
  /// What has passed since `begin` does not count.
  void leave_out(std::chrono::steady_clock::time_point begin) { start_ += now() - begin; }
  [[nodiscard]] bool spent() const {
    const auto passed = now() - start_;
    return largest(group_, std::chrono::duration<double, std::micro>(passed).count()) > us_;
  }

 private:
  Group& group_;
  double us_;
  std::chrono::steady_clock::time_point start_ = now();
};

/// All candidates in the order of rank 0, whose model is asked alone. The same on every rank, and so is an error of it.
std::vector<Predicted> agreed_candidates(Group& group, const Problem& problem, double most_s) {
  json mine = json::object();
  if (group.team().rank == 0) {
    try {
      mine["candidates"] = json::array();
      for (const Predicted& each : candidates(problem, group.team(), group.target(), most_s)) {
        mine["candidates"].push_back(
            {{"config", each.config}, {"exception", each.exception}, {"fastest", each.fastest}});
        if (each.us) mine["candidates"].back()["us"] = *each.us;
      }
    } catch (...) {
      mine = {{"error", caught_error().what()}};
    }
  }
  const json told = parse_json(group.all_gather(json_text(mine))[0], "candidates");
  if (told.contains("error")) fail(ErrorKind::internal, "candidates of rank 0: {}", told["error"].get<std::string>());
  std::vector<Predicted> list;
  for (const json& each : told.at("candidates")) {
    list.push_back({.config = each.at("config").get<Config>(),
                    .exception = each.at("exception").get<std::string>(),
                    .fastest = each.at("fastest").get<bool>()});
    if (each.contains("us")) list.back().us = each["us"].get<double>();
  }
  return list;
}

/// Why the config cannot run here, or nothing and its program is loaded. The same on every rank.
std::string load(Group& group, const Problem& problem, Contender& candidate) {
  std::string reason;
  try {
    const Plan plan = make_plan(problem, group.team(), candidate.config);
    // NOTE: what a process lacks, others may have.
    const std::string missing = first_text(group, fmt::format("{}", fmt::join(group.unsupported(plan), ", ")));
    if (!missing.empty()) return fmt::format("{} cannot do {}", group.backend(), missing);
    candidate.program = group.load(plan);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_input && error.kind() != ErrorKind::unsupported) throw;
    reason = error.what();
  }
  reason = first_text(group, reason);
  if (!reason.empty()) candidate.program.reset();
  return reason;
}

/// Whether candidates are measured as replays: those of small problems are used so, and eager calls of them would take
/// as long as the host takes to enqueue them. `us`: what a call took.
bool as_graphs(const Group& group, const Problem& problem, double us) {
  return on_gpus(group.team()) && wants_graphs(problem.m, us);
}

/// One look at a candidate, or why not. The first one is taken whatever the budget.
void look(Group& group, const Problem& problem, const RankTensors& tensors, Budget& budget, bool is_first,
          Contender& candidate) {
  if (!is_first && budget.spent()) {
    candidate.excluded = "the time for measuring was used up";
    return;
  }
  const bool graphs = as_graphs(group, problem, std::numeric_limits<double>::infinity());
  const auto begin = Budget::now();
  candidate.excluded = load(group, problem, candidate);
  // A library of collectives takes seconds to begin, once for a team.
  if (candidate.config.collective == Provider::library) budget.leave_out(begin);
  if (!candidate.excluded.empty()) return;
  candidate.us = {time_call(group, *candidate.program, tensors, graphs)};
  // A first call pays for page faults, so a short one does not count; nor does what the host took to enqueue it.
  if (candidate.us[0] < kLongCall * budget.us()) {
    candidate.us = {time_call(group, *candidate.program, tensors, as_graphs(group, problem, candidate.us[0]))};
  }
  candidate.program.reset();
}

/// One look at so many candidates that can run, each alone in memory, as long as the budget lasts. Those behind them
/// are dropped.
void screen(Group& group, const Problem& problem, const RankTensors& tensors, Budget& budget, size_t most,
            std::vector<Contender>& candidates) {
  size_t looks = 0;
  size_t tried = 0;
  for (; tried < candidates.size() && looks < most; ++tried) {
    look(group, problem, tensors, budget, looks == 0, candidates[tried]);
    if (candidates[tried].excluded.empty()) ++looks;
  }
  candidates.resize(tried);
}

/// The few best in turn, as long as the budget lasts.
void play_final(Group& group, const Problem& problem, const RankTensors& tensors, const Budget& budget,
                std::vector<Contender>& candidates) {
  std::vector<Contender*> finalists;
  for (Contender& candidate : candidates) {
    if (candidate.excluded.empty()) finalists.push_back(&candidate);
  }
  std::stable_sort(finalists.begin(), finalists.end(),
                   [](const Contender* x, const Contender* y) { return x->us[0] < y->us[0]; });
  const auto sequential = std::ranges::find_if(
      finalists, [](const Contender* candidate) { return candidate->config.schedule == "sequential"; });
  Contender* plain = sequential == finalists.end() ? nullptr : *sequential;  // the fastest
  const auto too_slow = [&](const Contender* x) { return x->us[0] > kFinalistWithin * finalists[0]->us[0]; };
  finalists.erase(std::find_if(finalists.begin(), finalists.end(), too_slow), finalists.end());
  finalists.resize(std::min(finalists.size(), on_gpus(group.team()) ? kMaxFinalistsOnGpus : kMaxFinalists));
  // What users run today is always measured as well as the winner: a noisy first look must not lose for it.
  if (plain != nullptr && std::ranges::find(finalists, plain) == finalists.end()) finalists.push_back(plain);
  if (finalists.size() < 2) return;
  for (Contender* finalist : finalists) {
    const std::string reason = load(group, problem, *finalist);
    if (!reason.empty()) return;
  }
  const bool graphs = as_graphs(group, problem, finalists[0]->us[0]);
  for (int round = 0; round < kMaxRounds && !budget.spent(); ++round) {
    for (Contender* finalist : finalists) finalist->us.push_back(time_call(group, *finalist->program, tensors, graphs));
  }
}

std::string table_of(std::span<const Timing> timings, const std::string& title) {
  if (timings.empty()) return "";
  std::string text = "\n " + title;
  for (const Timing& timing : timings) {
    text += fmt::format("\n  {:10.1f} us  {} ({} sample{})", timing.us, describe(timing.config), timing.samples,
                        timing.samples == 1 ? "" : "s");
  }
  return text;
}

/// Finalists, who are listed first, apart from those that had one look: a single look flatters.
std::string table_of(std::span<const Timing> timings) {
  const auto first_of_rest = std::ranges::find(timings, 1, &Timing::samples);
  const auto finalists = static_cast<size_t>(first_of_rest - timings.begin());
  if (finalists == 0) return table_of(timings, "one look each:");
  return table_of(timings.first(finalists), fmt::format("final, {} in turn:", finalists)) +
         table_of(timings.subspan(finalists), "first look only (one sample each, not compared):");
}

/// Measure, and say what won and what was left out.
Choice measure(Group& group, const Problem& problem, Tuning tuning, std::vector<Timing>& timings) {
  const bool quick = tuning == Tuning::quick;
  const std::vector<Predicted> all = agreed_candidates(group, problem, quick ? kQuickModelS : kModelS);
  std::vector<Contender> candidates;
  for (const Predicted& each : all) candidates.push_back({.config = each.config});
  {
    const RankTensors tensors(group, problem);
    tensors.fill(random_inputs(problem, group.team().num_ranks, 1));
    Budget budget(group, quick ? kQuickBudgetS : kBudgetS);
    screen(group, problem, tensors, budget, most_measured(all, tuning), candidates);
    play_final(group, problem, tensors, budget, candidates);
  }
  std::string excluded;
  for (const Contender& candidate : candidates) {
    if (candidate.excluded.empty()) {
      timings.push_back({candidate.config, median(candidate.us), std::ssize(candidate.us)});
    } else {
      excluded += fmt::format("\n  {}: {}", describe(candidate.config), candidate.excluded);
    }
  }
  if (timings.empty()) {
    fail(ErrorKind::unsupported, "no schedule can do {} on {}:{}", to_string(problem), group.backend(), excluded);
  }
  // NOTE: finalists first: a single look flatters.
  std::stable_sort(timings.begin(), timings.end(), [](const Timing& x, const Timing& y) {
    return x.samples != y.samples ? x.samples > y.samples : x.us < y.us;
  });
  const std::string chosen =
      candidates.size() < all.size() ? fmt::format(" ({} of {} candidates)", candidates.size(), all.size()) : "";
  std::string why = fmt::format("measured, medians of the slowest rank{}:{}", chosen, table_of(timings));
  if (!excluded.empty()) why += fmt::format("\nleft out:{}", excluded);
  return {timings[0].config, why};
}

/// Rank 0's look into the file, on every rank.
Recalled recall_together(Group& group, const Options& options, const json& key) {
  json found;
  if (group.team().rank == 0) {
    const Recalled recalled = recall(options.file, key, options.tuning);
    found["note"] = recalled.note;
    if (recalled.winner) found["winner"] = to_json(*recalled.winner);
  }
  found = parse_json(group.all_gather(json_text(found))[0], "a winner");
  Recalled result{.winner = {}, .note = found.at("note")};
  if (found.contains("winner")) result.winner = winner_from_json(found["winner"]);
  return result;
}

/// Why a remembered config does not do for this problem, which may differ in M; empty where it does.
std::string refused(const Group& group, const Problem& problem, const Config& config) {
  try {
    return fmt::format("{}", fmt::join(group.unsupported(make_plan(problem, group.team(), config)), ", "));
  } catch (const Error& error) {
    return error.what();
  }
}

/// A winner of the file, or nothing and a note that it cannot run.
std::optional<Choice> remembered(Group& group, const Problem& problem, const Options& options, const Winner& winner,
                                 const json& key, std::string& note) {
  const std::string reason = first_text(group, refused(group, problem, winner.config));
  if (!reason.empty()) {
    note = fmt::format("the remembered {} does not fit: {}", describe(winner.config), reason);
    return std::nullopt;
  }
  const std::string rows = winner.key == key ? "" : fmt::format(" for {} rows", shown(winner.key["problem"]["m"]));
  return Choice{winner.config, fmt::format("remembered from {}; measured then{}, medians of the slowest rank:{}",
                                           first_text(group, options.file), rows, table_of(winner.timings))};
}

/// The winner that tilewire ships for this machine, where there is one that can run.
std::optional<Choice> shipped(Group& group, const Problem& problem) {
  const ShippedWinner* row = find_shipped(group.target(), problem);
  // NOTE: targets name kinds of GPUs; an H200 NVL has other links than an H200.
  if (row == nullptr || row->hardware != group.hardware()) return std::nullopt;
  if (!first_text(group, refused(group, problem, row->config)).empty()) return std::nullopt;
  return Choice{row->config, fmt::format("shipped with tilewire: measured on {}, {:.1f} us", row->hardware, row->us)};
}

/// Without a measurement: Predicted::fastest that can run, or the fastest by the model, where there is one; else the
/// first candidate of `fused`; where the problem has no candidates, the plain schedule. NOTE: a library of collectives
/// takes seconds to begin, which nobody has asked for.
Choice unmeasured(Group& group, const Problem& problem) {
  std::vector<Predicted> all = agreed_candidates(group, problem, kQuickModelS);
  const size_t number = all.size();
  std::erase_if(all, [](const Predicted& each) {
    return (!each.us.has_value() && !each.fastest) || each.config.collective == Provider::library;
  });
  std::ranges::stable_sort(all, {},
                           [](const Predicted& each) { return std::pair(!each.fastest, each.us.value_or(0)); });
  for (const Predicted& each : all) {
    if (!first_text(group, refused(group, problem, each.config)).empty()) continue;
    return {each.config, each.fastest ? fmt::format("unmeasured: {}", each.exception)
                                      : fmt::format("unmeasured: the fastest of {} candidates by the model, {:.1f} us",
                                                    number, *each.us)};
  }
  const Team& team = group.team();
  const std::vector<Config> fused = find_schedule("fused").candidates(problem, team);
  const Config config = fused.empty() ? default_config("sequential", problem, team) : fused.front();
  return {config, fmt::format("unmeasured: the first candidate of {}", config.schedule)};
}

}  // namespace

std::string describe(const Config& config) {
  json knobs = config;
  knobs.erase("schedule");
  return knobs.empty() ? config.schedule : fmt::format("{} {}", config.schedule, json_text(knobs));
}

Choice choose(Group& group, const Problem& problem, const Options& options) {
  const Team& team = group.team();
  const json key = key_of(group.backend(), machine_name(group.hardware()), team.num_ranks, problem, on_gpus(team));
  const bool again = options.tuning == Tuning::again;
  Recalled recalled = recall_together(group, options, key);
  if (again) recalled.winner.reset();
  std::string note = recalled.note;
  // A winner of the same key, a shipped one, a winner of other rows, a measurement or the model: the first that can
  // run.
  const bool same = recalled.winner && recalled.winner->key == key;
  std::optional<Choice> choice;
  if (same) choice = remembered(group, problem, options, *recalled.winner, key, note);
  if (!choice && !again) choice = shipped(group, problem);
  if (!choice && recalled.winner && !same) choice = remembered(group, problem, options, *recalled.winner, key, note);
  if (!choice && options.tuning == Tuning::off) choice = unmeasured(group, problem);
  if (!choice) {
    Winner winner{.key = key, .config = {}, .timings = {}, .quick = options.tuning == Tuning::quick};
    choice = measure(group, problem, options.tuning, winner.timings);
    winner.config = choice->config;
    if (team.rank == 0) {
      if (const auto failure = remember(options.file, winner)) note += (note.empty() ? "" : "; ") + *failure;
    }
  }
  note = first_text(group, note);
  if (!note.empty()) choice->why += fmt::format("\nnote: {}", note);
  return *choice;
}

}  // namespace tilewire::tuner
