// Peak memory of a rank against its inputs, outputs and announced workspace; also the peers' pages that it touches,
// which
// the system counts in its peak, too. Run by bench/run.sh.
#include <fstream>
#include <sstream>
#include <vector>

#include "core/text.hpp"
#include "operators/tensors.hpp"
#include "report.hpp"
#include "tilewire/op.hpp"
#include "tilewire/spi/schedule.hpp"

namespace {

using namespace tilewire;
using nlohmann::json;

constexpr int64_t kAllowance = int64_t{64} << 20;

/// A field in kB of a file in /proc, in bytes.
int64_t proc_bytes(const char* file, const std::string& field) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t kilobytes = 0;
    if (words >> name >> kilobytes && name == field + ":") return kilobytes * 1024;
  }
  fail(ErrorKind::unsupported, "{} has no {}", file, field);
}

int64_t caller_bytes(const Plan& plan, int rank) {
  int64_t bytes = 0;
  for (const Buffer& buffer : plan.buffers) {
    const Shape shape = memory_shape_on(buffer, rank);
    const bool caller = buffer.scope == Scope::input || buffer.scope == Scope::output;
    if (caller) bytes += shape.rows * shape.cols * bytes_of(buffer.dtype);
  }
  return bytes;
}

void measure(Group& group, const Problem& problem, const Config& config, const std::string& file) {
  const int rank = group.team().rank;
  Op op = make_op(group, problem, config, {.check = false});
  const RankTensors tensors(group, problem);
  tensors.fill(random_inputs(problem, group.team().num_ranks, 1));
  tensors.poison();
  for (int call = 0; call < 3; ++call) op.run_and_wait(tensors.inputs(), tensors.outputs());
  group.barrier();
  const Plan& plan = op.plan();
  const int64_t told = caller_bytes(plan, rank) + symmetric_bytes(plan) + local_bytes(plan);
  const int64_t peak = proc_bytes("/proc/self/status", "VmHWM");
  const int64_t pss = proc_bytes("/proc/self/smaps_rollup", "Pss");
  const auto all = group.all_gather(fmt::format("{} {} {} {}", told, peak, pss, peer_bytes(plan, rank)));
  group.barrier();
  if (rank != 0) return;
  json row{{"operator", problem.op},  {"config", config}, {"m", problem.m},
           {"n", problem.n},          {"k", problem.k},   {"ranks", group.team().num_ranks},
           {"tasks", num_tasks(plan)}};
  for (const std::string& text : all) {
    std::istringstream words(text);
    int64_t mine[4] = {};
    words >> mine[0] >> mine[1] >> mine[2] >> mine[3];
    row["told_bytes"].push_back(mine[0]);
    row["vmhwm_bytes"].push_back(mine[1]);
    row["pss_bytes"].push_back(mine[2]);
    row["peer_bytes"].push_back(mine[3]);
    row["within"].push_back(mine[1] <= mine[0] + kAllowance);
  }
  bench::append_line(file, row.dump());
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Flags flags = bench::parse_flags(argc, argv);
  const std::string file = bench::temporary_file();
  const int64_t m = flags.quick ? 256 : 4096;
  for (const int ranks : {2, 4}) {
    for (const char* op : {"all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce"}) {
      const Problem problem{.op = op, .m = m, .n = m, .k = 512};
      for (const Schedule& schedule : schedules()) {
        const Config config{.schedule = schedule.name};
        if (schedule.refuses(problem, Team{.num_ranks = ranks}, config)) continue;
        launch(ranks, {}, [&](Group& group) { measure(group, problem, config, file); });
      }
    }
  }
  json rows = json::array();
  for (const std::string& line : bench::take_lines(file)) rows.push_back(json::parse(line));
  bench::write_report(flags, "memory", rows);
}
