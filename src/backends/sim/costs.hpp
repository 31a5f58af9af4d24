// What a task costs on a machine: phases that take time alone and shares of compute units, memories and links.
// Used by the engine.
#pragma once

#include <optional>
#include <vector>

#include "backends/sim/block_cache.hpp"
#include "backends/sim/cache.hpp"
#include "backends/sim/flows.hpp"
#include "backends/sim/memory_controller.hpp"
#include "backends/sim/network.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/sim/sim.hpp"

namespace tilewire::sim {

/// First a delay, then a flow and accesses of memory, side by side; these `times` times.
struct Phase {
  double delay_ns = 0;
  double work_ns = 0;
  std::vector<Demand> demands{};
  std::vector<Access> accesses{};
  int64_t times = 1;
  int link = -1;                   ///< that serves this message alone, after those that came before it; -1 = none
  int64_t first_step = kNoInputs;  ///< each time reads Cost::inputs of the next step, from this one on

  static constexpr int64_t kNoInputs = -1;
};

/// What the inner loop of a tile reads from one matrix, in steps.
struct StepInput {
  int first_block = 0;  ///< in the cache, one for each step
  int64_t bytes = 0;    ///< of all steps
};

struct Cost {
  std::vector<Phase> phases{};
  std::vector<StepInput> inputs{};  ///< with a memory controller
  int64_t steps = 1;
  bool stores_last = false;       ///< the last phase goes on while the worker takes its next task
  bool pulls = false;             ///< data come to the rank from others
  double latency_ns = 0;          ///< from the end of the last phase until everything is where it belongs
  std::vector<Access> landing{};  ///< what is done there, before anybody is told
};

/// Resources are numbered: each device's compute units, each device's memory, each link.
class Costs {
 public:
  Costs(const Plan& plan, const Machine& machine);

  /// Called when the task begins, in order of time: it moves the caches, and counts bytes.
  [[nodiscard]] Cost of(const Task& task, const Lane& lane);
  /// What a tile's inner loop reads of the rank's own memory in one of its steps, since it is not in the cache.
  [[nodiscard]] Access inputs_of_step(const Cost& cost, int rank, int64_t step);
  /// A tile's inner loop has ended.
  void release_inputs(const Task& task, const Lane& lane);

  [[nodiscard]] const Network& network() const { return network_; }
  /// As Flows wants it.
  [[nodiscard]] std::vector<double> when_meeting() const;
  /// Of the way from one rank to another.
  [[nodiscard]] double latency_ns(int from, int to) const { return path(from, to).latency_ns; }
  /// Links and memories, but for `busy`.
  [[nodiscard]] const std::vector<int64_t>& link_bytes() const { return link_bytes_; }
  [[nodiscard]] const std::vector<MemoryLoad>& memory() const { return memory_; }
  /// By device: nanoseconds of all its compute units that products took.
  [[nodiscard]] const std::vector<double>& units_ns() const { return units_ns_; }
  [[nodiscard]] int memory_resource(int device) const { return num_devices_ + device; }
  [[nodiscard]] int link_resource(int edge) const { return 2 * num_devices_ + edge; }

 private:
  class Load;
  struct Path {
    std::vector<int> edges;
    double latency_ns = 0;
  };

  [[nodiscard]] int64_t bytes_of_region(const Region& region) const;
  [[nodiscard]] const Path& path(int from, int to) const;
  [[nodiscard]] double flops_per_ns(const Task& task) const;
  [[nodiscard]] double tile_efficiency(const GemmParams& gemm) const;
  [[nodiscard]] double issue_ns(const Task& task) const;
  /// Phases of something that is read, and worked on or sent, in so many steps: each step's data are read during the
  /// step before. With a memory controller; else one phase.
  static void add_steps(Cost& cost, const Load& load, double delay_ns, int64_t steps);
  void add_inner_loop(Cost& cost, const Load& load, const Task& task, int rank);
  [[nodiscard]] int64_t steps_of(const Task& task) const;
  void cache_results(const Task& task, int rank);
  Cost tile(const Task& task, const Lane& lane);
  Cost copy(const Task& task, const Lane& lane);
  Cost hop_by_hop(const Task& task, const Lane& lane);
  Cost moved_by_units(const Task& task, const Lane& lane);
  static Phase all_along(const Load& load, double delay_ns);
  Cost library_gemm(const Task& task, const Lane& lane);
  Cost library_collective(const Task& task, const Lane& lane);
  void read(Load& load, const Region& region, int rank, int64_t bytes, bool by_units);
  void write(Load& load, const Write& write, int rank, bool by_units);
  void cross(Load& load, int edge, int64_t bytes, double efficiency, int sender);
  void send(Load& load, int from, int to, int64_t bytes, double efficiency, int sender);

  const Plan& plan_;
  const Machine& machine_;
  Network network_;
  int num_devices_;
  mutable int64_t tile_m_ = 0, tile_n_ = 0;  ///< of the tile whose efficiency was looked up last
  mutable double tile_efficiency_ = 1;
  bool shares_units_ = true;                                     ///< tiles, with what else multiplies
  Stream stream_ = Stream::compute;                              ///< of the task at hand
  mutable std::vector<std::vector<std::optional<Path>>> paths_;  ///< [from][to]; found when first asked for
  std::vector<Cache> caches_;
  std::vector<BlockCache> block_caches_;  ///< with a memory controller, instead
  std::vector<int64_t> link_bytes_;
  std::vector<MemoryLoad> memory_;
  std::vector<double> units_ns_;
};

}  // namespace tilewire::sim
