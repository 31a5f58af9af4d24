// Which configs `auto` measures. The model is the simulator, with the plan as it is lowered for the team's GPUs: on
// 1,477 measured configs of 159 rows it is 1.14 x off in the geometric mean (docs/decisions.md, Tuner).
// Called by the tuner and the command line.
#include "tuner/candidates.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "core/parallel_for.hpp"
#include "lower/fix_groups.hpp"
#include "lower/kernel_limits.hpp"
#include "schedules/knobs.hpp"
#include "schedules/task_limit.hpp"
#include "tilewire/error.hpp"
#include "tilewire/sim/sim.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire::tuner {
namespace {

constexpr size_t kMostMeasured = 8;
constexpr size_t kMostMeasuredQuickly = 4;  // and the exceptions
constexpr size_t kMostMeasuredQuicklyWithoutModel = 6;
constexpr int64_t kMostTasks = 100'000;  // of a plan that is simulated

/// What the model gets wrong.
struct Exception {
  const char* row;  ///< that shows it
  bool (*holds)(const Problem& problem, const Team& team, const Config& config);
  bool fastest = false;  ///< Predicted::fastest
};

/// A one-shot all-reduce by LL data of at most so many bytes as were measured, with those of all peers.
bool is_short_one_shot(const Problem& problem, const Team& team, const Config& config) {
  constexpr int64_t kMostBytes = 1 << 20;
  return config.algorithm == Algorithm::one_shot && config.transport == Transport::ll &&
         (team.num_ranks - 1) * problem.m * problem.n * bytes_of(out_dtype_of(problem)) <= kMostBytes;
}

/// Whether the GEMV kernel reads B as fast as the library does: [K, N] of 16-bit types it does not.
bool suits_gemv(const Problem& problem) {
  return problem.m <= kMostGemvRows && (problem.b_layout == BLayout::nk || problem.dtype == DType::fp32);
}

/// Whether the GEMV kernel is the fastest for a rank alone; all other tiles with swiglu_pairs, or of fp32, are slow.
/// NOTE: cuBLAS itself is as fast for 16 rows, but a call of it through a plan of one rank takes 18 us more.
bool is_fastest_alone(const Problem& problem, const Team& team) {
  if (team.num_ranks > 1 || problem.m > kMostGemvRows) return false;
  if (joins_columns(problem.epilogue)) return true;
  const bool nk = problem.b_layout == BLayout::nk;
  if (problem.dtype == DType::fp32) return !problem.allow_tf32 && (nk || problem.m > 1);
  return nk;
}

constexpr Exception kExceptions[] = {
    // The model has no kernels for few rows. NOTE: measured on 2 GPUs; of more data two phases may be faster.
    {"GEMM + AllReduce 16 8192 8192 on 2 x H200: 21.1 us, earlier tiles 31.7, predicted 31.5",
     [](const Problem& problem, const Team& team, const Config& config) {
       return multiplies(problem) && suits_gemv(problem) && config.tile_m == kMostGemvRows &&
              is_short_one_shot(problem, team, config);
     },
     true},
    {"AllReduce 16 8192 on 2 x H200: 8.2 us, other tiles 12.9; with RMSNorm 10.1 and 45",
     [](const Problem& problem, const Team& team, const Config& config) {
       return !multiplies(problem) && config.tile_m == 1 && is_short_one_shot(problem, team, config);
     },
     true},
    {"GEMM + AllReduce 64 8192 8192 on 2 x H200: 28.0 us, tiles 30.1; with RMSNorm 31.5 and 50",
     [](const Problem& problem, const Team& team, const Config& config) {
       return multiplies(problem) && !suits_gemv(problem) && problem.m <= 64 && config.compute == Provider::library &&
              is_short_one_shot(problem, team, config);
     },
     true},
    {"GEMM 4 4096 4096 on one H200: 10.9 us, cuBLAS 12.5",
     [](const Problem& problem, const Team& team, const Config& config) {
       return multiplies(problem) && team.num_ranks == 1 && config.tile_m == kMostGemvRows;
     }},
    {"GEMM 1 14336 8192 with swiglu_pairs on one H200: 115 us, other tiles 5667; 1 8192 4096 of fp32: 36, cuBLAS 45; 1 "
     "28672 8192: 114, cuBLASLt by a plan 133, other tiles 130",
     [](const Problem& problem, const Team& team, const Config& config) {
       return multiplies(problem) && config.tile_m == kMostGemvRows && is_fastest_alone(problem, team);
     },
     true},
    // One wave of narrow tiles.
    {"GEMM + AllToAll 1024 4096 14336 on 2 x H200: 88.5 us, other tiles 101, predicted 127 and 121",
     [](const Problem& problem, const Team&, const Config& config) {
       const bool of_one_wave = problem.m > 512 && problem.m <= 1024;
       return exchanges(problem) && of_one_wave && config.rounds == 1 && config.schedule == "fused" &&
              config.tile_n == 128 && config.cluster_m == 1 && config.cluster_split_k == 1 &&
              config.transport == Transport::tma;
     }},
    // Few rows: tiles, and above all tiles that share K, are predicted too fast beside one GEMM of the library.
    {"GEMM + AllReduce 32 4096 14336 on 4 x H200: 27.1 us, tiles 34.6, predicted 27.5 and 23.2",
     [](const Problem& problem, const Team&, const Config& config) {
       constexpr int64_t kMostRows = 1024;
       return !gathers(problem) && problem.m < kMostRows && config.compute == Provider::library &&
              config.collective == Provider::tiles && config.transport == Transport::store;
     }},
    // Sums of many short rounds are cheaper in tiles than their simulated addends.
    {"GEMM + ReduceScatter 8192 8192 8192 on 4 x H200: 402 us, predicted 533",
     [](const Problem& problem, const Team& team, const Config& config) {
       constexpr int kManyRounds = 16;
       return scatters(problem) && team.num_ranks > 2 && config.rounds >= kManyRounds &&
              config.algorithm == Algorithm::direct;
     }},
};

/// Sequential, then the first choice of each schedule, then the second of each, and so on.
std::vector<Predicted> listed(const Problem& problem, const Team& team) {
  std::vector<std::vector<Candidate>> lists;
  for (const Schedule& schedule : schedules()) lists.push_back(schedule.named_candidates(problem, team));
  std::vector<Predicted> all;
  const auto add = [&](const Candidate& candidate) {
    if (std::ranges::find(all, candidate.config, &Predicted::config) == all.end())
      all.push_back({.config = candidate.config, .way = candidate.way});
  };
  const std::vector<Candidate> plain = find_schedule("sequential").named_candidates(problem, team);
  add(plain.empty() ? Candidate{.config = {.schedule = "sequential"}} : plain.front());
  for (size_t place = 0, longest = 1; place < longest; ++place) {
    for (const std::vector<Candidate>& list : lists) {
      longest = std::max(longest, list.size());
      if (place < list.size()) add(list[place]);
    }
  }
  return all;
}

/// Nothing where the plan cannot be made or is too large.
std::optional<double> predicted_us(const Problem& problem, const Team& team, const Config& config, const Target& target,
                                   const Machine& machine) {
  try {
    const TaskLimit limit(kMostTasks);
    const Plan plan = lower(fix_groups(make_plan(problem, team, config)), target).plan;
    return simulate(plan, machine).total_ns * 1e-3;
  } catch (const Error&) {
    return std::nullopt;  // a schedule refuses the problem, or the plan is too large
  }
}

/// In the list's order, until the time is spent.
void predict(std::vector<Predicted>& list, const Problem& problem, const Team& team, const Target& target,
             const Machine& machine, double most_s) {
  const auto start = std::chrono::steady_clock::now();
  parallel_for(list.size(), [&](size_t i) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    if (passed.count() <= most_s) list[i].us = predicted_us(problem, team, list[i].config, target, machine);
  });
}

/// Where there is no prediction, later than all.
double us_of(const Predicted& each) { return each.us.value_or(std::numeric_limits<double>::infinity()); }

/// Ahead of all: what users run without tilewire, the first GEMM of the library and then an exchange, by tilewire or by
/// the library, and the first of the other kind, too, where it is not far behind the fastest. Without a GEMM of the
/// library the first of `sequential`.
void put_baselines_first(std::vector<Predicted>& list) {
  constexpr double kNotFar = 1.25;  // times the fastest
  const double least = us_of(*std::ranges::min_element(list, {}, us_of));
  const auto is_plain = [](const Predicted& each) { return each.config.schedule == "sequential"; };
  const auto is_baseline = [&](const Predicted& each) {
    return is_plain(each) && each.config.compute == Provider::library;
  };
  auto first = std::ranges::find_if(list, is_baseline);
  if (first == list.end()) first = std::ranges::find_if(list, is_plain);
  std::rotate(list.begin(), first, first + 1);
  const auto other = std::find_if(list.begin() + 1, list.end(), [&](const Predicted& each) {
    return is_baseline(each) && each.config.collective != list.front().config.collective;
  });
  if (other != list.end() && us_of(*other) <= kNotFar * least) std::rotate(list.begin() + 1, other, other + 1);
}

}  // namespace

std::optional<Machine> model_of(const Target& target) {
  // NOTE: ranks that share a GPU, or have a part of its SMs, are no such machine; nor are cards of fewer SMs, which
  // have other links.
  constexpr int kSms = 132;
  if (target.sms != kSms || !target.streams || !target.whole_gpu || target.ranks < 1) return std::nullopt;
  const bool h200 = target.name.starts_with("h200x");
  if (!h200 && !target.name.starts_with("h100x")) return std::nullopt;
  Machine machine = load_machine("h200x4");
  constexpr double kOfH100 = 3.35 / 4.8;  // memory bandwidth, by the data sheets
  if (!h200) machine.memory.bandwidth_GBps *= kOfH100;
  machine.links.dims = {std::max(target.ranks, 2)};
  machine.compute.units = target.sms;
  return machine;
}

std::vector<Predicted> candidates(const Problem& problem, const Team& team, const Target& target, double most_s) {
  std::vector<Predicted> list = listed(problem, team);
  for (Predicted& each : list) {
    for (const Exception& exception : kExceptions) {
      if (!exception.holds(problem, team, each.config)) continue;
      each.exception = exception.row;
      each.fastest = exception.fastest;
    }
  }
  const std::optional<Machine> machine = model_of(target);
  if (!machine) return list;
  predict(list, problem, team, target, *machine, most_s);
  std::ranges::stable_sort(list, {},
                           [](const Predicted& each) { return std::pair(each.exception.empty(), us_of(each)); });
  put_baselines_first(list);
  return list;
}

size_t most_measured(const std::vector<Predicted>& list, Tuning tuning) {
  const bool has_model = std::ranges::any_of(list, [](const Predicted& each) { return each.us.has_value(); });
  const auto exceptions =
      static_cast<size_t>(std::ranges::count_if(list, [](const Predicted& each) { return !each.exception.empty(); }));
  const size_t quickly = has_model ? kMostMeasuredQuickly + exceptions : kMostMeasuredQuicklyWithoutModel;
  const size_t most = tuning == Tuning::quick ? quickly : has_model ? kMostMeasured : list.size();
  return std::min(most, list.size());
}

}  // namespace tilewire::tuner
