// Moves tiles that tensor cores do not take to lanes of their own, so that all other tiles stay on tensor cores.
// Listed in lower.cpp.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/gemm_tasks.hpp"
#include "core/text.hpp"
#include "lower/passes.hpp"
#include "lower/tensor_cores.hpp"
#include "tilewire/print.hpp"

namespace tilewire::lowering {
namespace {

/// "bf16 nk tiles of 128 x 128".
std::string kernel_name(const Plan& plan, const Task& tile) {
  return fmt::format("{} {} tiles of {} x {}", to_string(plan.buffers[tile.reads[0].buffer].dtype),
                     to_string(tile.gemm.b_layout), tile.gemm.tile_m, tile.gemm.tile_n);
}

bool may_hold_tiles(const Lane& lane) { return lane.kernel == 0 && !is_serial(lane.engine); }

/// A tile of the kernel with the most tensor-core work, or null; and whether that kernel makes all tiles.
struct Most {
  const Task* tile = nullptr;
  bool all = false;
};

Most kernel_of_most(const Plan& plan) {
  std::map<decltype(kernel_of(plan, Task{})), std::pair<double, const Task*>> kernels;
  bool slow = false;
  for (const Lane& lane : plan.lanes) {
    if (!may_hold_tiles(lane)) continue;
    for (const Task& task : lane.tasks) {
      if (!is_gemm_tile(task)) continue;
      if (slow_tile(plan, task)) {
        slow = true;
        continue;
      }
      auto& [work, first] = kernels[kernel_of(plan, task)];
      work += multiply_adds(task);
      if (first == nullptr) first = &task;
    }
  }
  const auto most = std::ranges::max_element(kernels, {}, [](const auto& kernel) { return kernel.second.first; });
  if (most == kernels.end()) return {};
  return {most->second.second, !slow && kernels.size() == 1};
}

/// The tiles that were moved, and the reason of the first one.
struct Parted {
  int64_t tiles = 0;
  double work = 0;
  double of_work = 0;
  std::string reason{};
};

/// Move the tiles of a lane that the kernel of `like` does not make to a new lane.
Lane part(const Plan& plan, Lane& lane, const Task& like, int kernel, Parted& parted) {
  Lane slow{.rank = lane.rank, .engine = lane.engine, .name = lane.name + "_slow", .kernel = kernel};
  std::vector<Task> fast;
  const auto key = kernel_of(plan, like);
  for (Task& task : lane.tasks) {
    std::optional<std::string> reason;
    if (is_gemm_tile(task)) {
      reason = slow_tile(plan, task);
      if (!reason && kernel_of(plan, task) != key)
        reason = fmt::format("{} beside {}", kernel_name(plan, task), kernel_name(plan, like));
      parted.of_work += multiply_adds(task);
    }
    if (!reason) {
      fast.push_back(std::move(task));
      continue;
    }
    if (parted.tiles++ == 0) parted.reason = *reason;
    parted.work += multiply_adds(task);
    slow.tasks.push_back(std::move(task));
  }
  lane.tasks = std::move(fast);
  return slow;
}

}  // namespace

std::string part_slow_tiles(Plan& plan, const Target& target) {
  if (!target.streams) return "ranks share a GPU, where a call is one kernel";
  const Most most = kernel_of_most(plan);
  if (most.tile == nullptr) return "no tiles that tensor cores take";
  if (most.all) return "tensor cores take all tiles";
  const Task like = *most.tile;
  std::vector<int> kernels(plan.team.num_ranks, 0);
  for (const Lane& lane : plan.lanes) kernels[lane.rank] = std::max(kernels[lane.rank], lane.kernel);
  Parted parted;
  const size_t lanes = plan.lanes.size();
  for (size_t i = 0; i < lanes; ++i) {
    if (!may_hold_tiles(plan.lanes[i])) continue;
    int& kernel = kernels[plan.lanes[i].rank];
    Lane slow = part(plan, plan.lanes[i], like, kernel + 1, parted);
    if (slow.tasks.empty()) continue;
    ++kernel;
    plan.lanes.push_back(std::move(slow));
  }
  if (parted.tiles == 0) return "tensor cores take all tiles";
  std::erase_if(plan.lanes, [](const Lane& lane) { return lane.tasks.empty(); });
  const double share = parted.of_work > 0 ? parted.work / parted.of_work : 0;
  return fmt::format("{} tiles, {:.1f} % of the multiply-adds, run without tensor cores in lanes of their own: {}",
                     parted.tiles, 100.0 * share, parted.reason);
}

}  // namespace tilewire::lowering
