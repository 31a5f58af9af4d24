// The work before the first call: making a plan, loading it, checking it; and the growth of the check with the plan.
// Run by bench/run.sh.
#include <chrono>
#include <vector>

#include "core/text.hpp"
#include "report.hpp"
#include "tilewire/check.hpp"
#include "tilewire/op.hpp"
#include "tilewire/spi/schedule.hpp"

namespace {

using namespace tilewire;
using nlohmann::json;

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

/// make_plan alone, for every combination of operator and schedule that is valid.
void time_plans(json& rows, int64_t size, int turns) {
  const Team team{.num_ranks = 8};
  for (const char* op : {"all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce"}) {
    const Problem problem{.op = op, .m = size, .n = size, .k = size};
    for (const Schedule& schedule : schedules()) {
      const Config config{.schedule = schedule.name, .tile_m = 128, .tile_n = 256};
      if (schedule.refuses(problem, team, config)) continue;
      std::vector<double> ms;
      int64_t tasks = 0;
      for (int turn = 0; turn < turns; ++turn) {
        const auto start = std::chrono::steady_clock::now();
        tasks = num_tasks(make_plan(problem, team, config));
        ms.push_back(ms_since(start));
      }
      rows.push_back({{"case", "make_plan"},
                      {"operator", op},
                      {"schedule", schedule.name},
                      {"m", size},
                      {"ranks", 8},
                      {"tasks", tasks},
                      {"ms", bench::statistics(ms)}});
    }
  }
}

/// make_op without the checker on CPU ranks; the slowest rank counts.
void time_make_op(json& rows, const std::string& op_name, int64_t size, int turns) {
  const std::string file = bench::temporary_file();
  const Problem problem{.op = op_name, .m = size, .n = size, .k = size};
  launch(8, {}, [&](Group& group) {
    std::vector<double> ms;
    for (int turn = 0; turn < turns; ++turn) {
      group.barrier();
      const auto start = std::chrono::steady_clock::now();
      const Op op = make_op(group, problem, Config{.schedule = "fused"}, {.check = false});
      group.barrier();
      ms.push_back(ms_since(start));
    }
    const json row{{"case", "make_op, 8 host ranks at once"},
                   {"operator", problem.op},
                   {"schedule", "fused"},
                   {"m", size},
                   {"ranks", 8},
                   {"ms", bench::statistics(ms)}};
    if (group.team().rank == 0) bench::append_line(file, row.dump());
  });
  for (const std::string& line : bench::take_lines(file)) rows.push_back(json::parse(line));
}

/// The check of plans of growing size: up to 8 ranks with 50,000 tasks in total, and larger ones.
void time_check(json& rows, bool quick) {
  const Team team{.num_ranks = 8};
  for (const char* op : {"all_gather_gemm", "gemm_reduce_scatter"}) {
    for (const int64_t m :
         {int64_t{4096}, int64_t{8192}, int64_t{16384}, int64_t{25600}, int64_t{51200}, int64_t{204800}}) {
      if (quick && m > 4096) break;
      const int64_t n = std::string(op) == "all_gather_gemm" ? 65536 : 8192;
      const Config config{.schedule = "fused", .tile_m = 128, .tile_n = 256};
      const Plan plan = make_plan({.op = op, .m = m, .n = n, .k = 4096}, team, config);
      const auto start = std::chrono::steady_clock::now();
      const CheckResult result = check(plan);
      const double ms = ms_since(start);
      require(result.ok(), "the plan is refused: {}", result.violations[0].text);
      rows.push_back({{"case", "check"},
                      {"operator", op},
                      {"schedule", "fused"},
                      {"m", m},
                      {"n", n},
                      {"ranks", 8},
                      {"tasks", num_tasks(plan)},
                      {"ms", bench::statistics({ms})}});
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Flags flags = bench::parse_flags(argc, argv);
  const int64_t size = flags.quick ? 1024 : 8192;
  json rows = json::array();
  time_plans(rows, size, flags.quick ? 1 : 15);
  for (const char* op : {"all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce"}) {
    time_make_op(rows, op, size, flags.quick ? 1 : 15);
  }
  time_check(rows, flags.quick);
  bench::write_report(flags, "make_op", rows);
}
