// Prints a hash of every rank's tables for many plans, or, with the number of a line, its tables as text: if two builds
// print
// the same, they make the same tables. Needs no GPU. Run by hand; `--few`: a fifth of the plans.
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cuda/table_text.hpp"
#include "schedules/variants.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire::cuda {
namespace {

uint64_t hash_text(const std::string& text) {
  uint64_t hash = 14695981039346656037U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash;
}

struct Case {
  std::string name;
  Problem problem;
  Team team;
  Config config;
};

Team team_of_gpus(int ranks) {
  Team team{.num_ranks = ranks};
  team.devices.assign(static_cast<size_t>(ranks), {.copy_engines = 3, .sms = 132});
  return team;
}

std::vector<Case> all_cases() {
  constexpr std::array kOps{"all_gather_gemm", "gemm_reduce_scatter",  "gemm_all_reduce",
                            "gemm_all_to_all", "gemm_all_to_all_rows", "all_reduce"};
  std::vector<Case> cases;
  const auto add = [&](const char* from, const Problem& problem, const Team& team, const Config& config) {
    cases.push_back({fmt::format("{} {} {} ranks {}", from, to_string(problem), team.num_ranks, to_string(config)),
                     problem, team, config});
  };
  // The configs that `auto` tries for shapes of models.
  constexpr std::array<std::array<int64_t, 3>, 12> kShapes{{{8192, 8192, 8192},
                                                            {4096, 12288, 6144},
                                                            {2048, 10240, 8192},
                                                            {1024, 8192, 28672},
                                                            {512, 12288, 12288},
                                                            {300, 10240, 8192},
                                                            {144, 8192, 28672},
                                                            {64, 8192, 8192},
                                                            {1, 8192, 8192},
                                                            {1500, 4096, 11008},
                                                            {600, 8192, 3584},
                                                            {1000, 1000, 1000}}};
  for (const char* op : kOps) {
    for (const auto& [m, n, k] : kShapes) {
      for (const int ranks : {1, 2, 4}) {
        const Problem problem{.op = op, .m = m, .n = n, .k = k, .dtype = DType::bf16, .reduction = Reduction::any};
        const Team team = team_of_gpus(ranks);
        for (const Schedule& schedule : schedules()) {
          if (schedule.refuses(problem, team, {.schedule = schedule.name})) continue;
          for (const Config& config : schedule.candidates(problem, team)) add("auto", problem, team, config);
        }
      }
    }
  }
  // Every knob of small problems, with types, layouts, epilogues and tensors in the arena.
  for (const char* op : kOps) {
    for (const int ranks : {1, 2, 3, 4}) {
      Problem problem{.op = op, .m = 520, .n = 776, .k = 640, .dtype = DType::bf16, .reduction = Reduction::any};
      for (const int kind : {0, 1, 2, 3}) {
        if (kind == 1) problem.b_layout = BLayout::kn, problem.epilogue = {{EpilogueKind::bias}};
        if (kind == 2) problem.dtype = DType::fp16, problem.out_dtype = DType::fp32, problem.epilogue.clear();
        if (kind == 3) problem.dtype = DType::fp32, problem.epilogue = {{EpilogueKind::relu}};
        if (op == std::string("all_reduce")) problem.epilogue.clear(), problem.b_layout = BLayout::nk;
        const Team team = team_of_gpus(ranks);
        Config base{.tile_m = 128, .tile_n = kind == 0 ? 256 : 128, .chunk_rows = 64};
        base.cluster_m = kind == 0 ? 2 : 1;
        for (const Config& config : all_variants(problem, team, base)) add("all", problem, team, config);
      }
    }
  }
  return cases;
}

int main_of(int argc, char** argv) {
  const bool few = argc > 1 && std::strcmp(argv[1], "--few") == 0;
  const long wanted = argc > 1 && !few ? std::atol(argv[1]) : -1;
  const std::vector<Case> cases = all_cases();
  for (long i = 0; i < std::ssize(cases); i += few ? 5 : 1) {
    if (wanted >= 0 && i != wanted) continue;
    const Case& one = cases[static_cast<size_t>(i)];
    std::string text;
    try {
      const Plan plan = make_plan(one.problem, one.team, one.config);
      for (int rank = 0; rank < one.team.num_ranks; ++rank) {
        text += tables_text(plan, rank, true, false);
        if (i % 4 == 0) text += tables_text(plan, rank, i % 8 == 0, i % 16 == 0);
      }
    } catch (const std::exception& error) {
      text = fmt::format("no tables: {}\n", error.what());
    }
    const bool none = text.starts_with("no tables");
    fmt::print("{} {:016x} {}{}\n", i, none ? 0 : hash_text(text), none ? text.substr(0, text.size() - 1) + " " : "",
               one.name);
    if (wanted >= 0) fmt::print("{}", text);
  }
  return 0;
}

}  // namespace

}  // namespace tilewire::cuda

int main(int argc, char** argv) { return tilewire::cuda::main_of(argc, argv); }
