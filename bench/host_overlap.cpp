// Fused against sequential with the same tiles, and against one call of the GEMM library with as many threads as the
// machine has cores; interleaved on the same ranks. Run by bench/run.sh.
#include <algorithm>
#include <chrono>
#include <vector>

#include "backends/host/gemm.hpp"
#include "cli/measure.hpp"
#include "core/machine.hpp"
#include "core/text.hpp"
#include "operators/tensors.hpp"
#include "report.hpp"
#include "tilewire/spi/schedule.hpp"
#include "tuner/measure.hpp"

namespace {

using namespace tilewire;
using nlohmann::json;

/// The product of the whole problem, by one call of the library on rank 0 while the other ranks sleep.
class PlainCall {
 public:
  PlainCall(const Problem& problem, int rank) : threads_(usable_cores()), gemm_(threads_) {
    if (rank != 0) return;
    // NOTE: without bf16 instructions the library's call ends in fp32.
    const DType out = gemm_.stores(problem.dtype, problem.dtype) ? problem.dtype : DType::fp32;
    const auto bytes = [&](int64_t elements) { return static_cast<size_t>(elements * bytes_of(problem.dtype)); };
    memory_ = {std::vector<std::byte>(bytes(problem.m * problem.k)),
               std::vector<std::byte>(bytes(problem.n * problem.k)),
               std::vector<std::byte>(static_cast<size_t>(problem.m * problem.n * bytes_of(out)))};
    const ReadRow read = random_inputs(problem, 1, 1);
    fill_rows(read, 0, 0, make_tensor(memory_[0].data(), problem.dtype, problem.m, problem.k));
    fill_rows(read, 1, 0, make_tensor(memory_[1].data(), problem.dtype, problem.n, problem.k));
    product_ = {.m = problem.m,
                .n = problem.n,
                .k = problem.k,
                .a = {memory_[0].data(), problem.dtype, problem.k, false},
                .b = {memory_[1].data(), problem.dtype, problem.k, true},
                .c = memory_[2].data(),
                .c_dtype = out,
                .c_stride = problem.n};
  }

  /// Microseconds; the same on all ranks. Collective.
  double time(Group& group) {
    group.barrier();
    const auto start = std::chrono::steady_clock::now();
    if (group.team().rank == 0) gemm_.multiply(product_);
    return tuner::largest(group,
                          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }

 private:
  int threads_;
  host::Gemm gemm_;
  std::vector<std::vector<std::byte>> memory_;
  host::Product product_;
};

/// Configs with one worker per rank, and the same tiles for every schedule.
std::vector<Config> configs(const Problem& problem, const Team& team, const Shape& tile) {
  std::vector<Config> all;
  for (const char* name : {"sequential", "fused"}) {
    for (Config config : find_schedule(name).candidates(problem, team)) {
      config.tile_m = tile.rows;
      config.tile_n = tile.cols;
      config.tile_workers = 1;
      all.push_back(config);
    }
  }
  return all;
}

/// What one rank measures of one problem; rank 0 writes the row.
void measure(Group& group, const Problem& problem, const Shape& tile, int turns, const std::string& file) {
  const RankTensors tensors(group, problem);
  tensors.fill(random_inputs(problem, group.team().num_ranks, 1));
  PlainCall plain(problem, group.team().rank);
  std::vector<cli::Contender> contenders;
  const std::vector<Config> all = configs(problem, group.team(), tile);
  for (const Config& config : all) {
    contenders.push_back(cli::contender(group, config.schedule, make_plan(problem, group.team(), config)));
  }
  std::vector<double> plain_us;
  static_cast<void>(plain.time(group));
  for (int turn = 0; turn < turns; ++turn) {
    cli::measure_in_turn(group, tensors, contenders, {.warmup = turn == 0, .measured = 1}, [](const std::string&) {});
    plain_us.push_back(plain.time(group));
  }
  if (group.team().rank != 0) return;
  json row{{"operator", problem.op},
           {"dtype", to_string(problem.dtype)},
           {"ranks", group.team().num_ranks},
           {"m", problem.m},
           {"n", problem.n},
           {"k", problem.k},
           {"plain_us", bench::statistics(plain_us)}};
  std::vector<double> best;
  for (size_t i = 0; i < all.size(); ++i) {
    json entry = bench::statistics(contenders[i].samples_us);
    entry["config"] = all[i];
    const bool fused = all[i].schedule == "fused";
    const std::string name = fused ? fmt::format("fused_{}_us", i) : "sequential_us";
    if (fused && (!row.contains("fused_us") || entry["median"] < row["fused_us"]["median"])) row["fused_us"] = entry;
    row[name] = entry;
  }
  const double fused = row["fused_us"]["median"];
  const double sequential = row["sequential_us"]["median"];
  const double library = row["plain_us"]["median"];
  row["fused_over_sequential"] = fused / sequential;
  row["fused_over_plain"] = fused / library;
  row["sequential_over_plain"] = sequential / library;
  bench::append_line(file, row.dump());
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Flags flags = bench::parse_flags(argc, argv);
  const Shape tile{512, 512};
  const int turns = flags.quick ? 1 : 9;
  const std::string file = bench::temporary_file();
  for (const int ranks : {2, 4}) {
    for (const char* op : {"all_gather_gemm", "gemm_reduce_scatter"}) {
      for (const DType dtype : {DType::fp32, DType::bf16}) {
        const int64_t scale = flags.quick ? 8 : 1;
        const Problem problem{.op = op, .m = 2048 / scale, .n = 4096 / scale, .k = 4096 / scale, .dtype = dtype};
        fmt::print(stderr, "{} {} on {} ranks\n", op, to_string(dtype), ranks);
        launch(ranks, {}, [&](Group& group) { measure(group, problem, tile, turns, file); });
      }
    }
  }
  json rows = json::array();
  for (const std::string& line : bench::take_lines(file)) rows.push_back(json::parse(line));
  bench::write_report(flags, "host_overlap", rows);
}
