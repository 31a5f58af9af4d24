// Plans that a team of GPUs cannot execute, and why.
// Called by users through Group::unsupported.
#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "backends/cuda/kernels/gemm_tiles.hpp"
#include "backends/cuda/kernels/route_table.hpp"
#include "backends/cuda/runtime/group.hpp"
#include "backends/cuda/tables/lane_tables.hpp"
#include "backends/cuda/tables/stream_work.hpp"
#include "backends/known.hpp"
#include "check/ll.hpp"
#include "core/gemm_tasks.hpp"
#include "core/grouped_tasks.hpp"
#include "core/text.hpp"
#include "lower/lane_roles.hpp"
#include "tilewire/print.hpp"

namespace tilewire::cuda {
namespace {

/// Why cuBLASLt cannot make the plan's GEMM calls, or nothing.
std::optional<std::string> no_library(const Plan& plan, bool shares_device) {
  if (!calls_library(plan)) return std::nullopt;
  // NOTE: the library's kernels would have to be resident together with those of other ranks.
  if (shares_device) return "ranks share a GPU";
  if (auto reason = missing_cublaslt()) return reason;
  return refuses_library(plan);
}

/// The same for NCCL's collectives.
std::optional<std::string> no_collective(const Plan& plan, bool shares_device, const std::string& failed_before) {
  if (!calls_collective(plan)) return std::nullopt;
  if (shares_device) return "ranks share a GPU";
  if (!failed_before.empty()) return failed_before;
  return missing_nccl();
}

/// The GEMM kernel takes tiles alone: why a lane of tiles has other tasks, or nothing.
std::optional<std::string> refuses_tile_lanes(const Plan& plan) {
  if (slow_tiles(plan)) return std::nullopt;
  for (const Lane& lane : plan.lanes) {
    if (lane.kernel > 0 || is_serial(lane.engine) || std::ranges::none_of(lane.tasks, is_gemm_tile)) continue;
    for (const Task& task : lane.tasks) {
      if (is_gemm_tile(task) || task.kind == TaskKind::sync) continue;
      return fmt::format("lane {} on rank {}: {} tasks in a lane of tiles, want only tiles and sync tasks", lane.name,
                         lane.rank, to_string(task.kind));
    }
  }
  return std::nullopt;
}

/// Why kernels cannot read a tile's rows of A from several places, or nothing.
std::optional<std::string> refuses_pieces(const Plan& plan, int lane, int64_t index) {
  const Task& tile = plan.lanes[lane].tasks[index];
  if (!is_gemm_tile(tile) || tile.reads.size() == 2) return std::nullopt;
  if (tile.reads.size() > 3)
    return fmt::format("{}: rows of A from {} places, want at most 2", task_name(plan, lane, index),
                       tile.reads.size() - 1);
  const Region& above = tile.reads[0];
  const Region& below = tile.reads[2];
  const DType type = plan.buffers[above.buffer].dtype;
  if (below.cols == above.cols && plan.buffers[below.buffer].dtype == type) return std::nullopt;
  return fmt::format("{}: {} columns of {} below {} of {}", task_name(plan, lane, index), below.cols,
                     to_string(plan.buffers[below.buffer].dtype), above.cols, to_string(type));
}

/// The same for all tiles, and for all tiles of a rank together.
std::optional<std::string> refuses_pieces(const Plan& plan) {
  const bool fast = !slow_tiles(plan);
  std::vector<std::set<std::array<int64_t, 5>>> splits(plan.team.num_ranks);
  for (int lane = 0; lane < std::ssize(plan.lanes); ++lane) {
    for (int64_t index = 0; index < std::ssize(plan.lanes[lane].tasks); ++index) {
      if (auto reason = refuses_pieces(plan, lane, index)) return reason;
      const Task& tile = plan.lanes[lane].tasks[index];
      if (!fast || !is_gemm_tile(tile) || tile.reads.size() == 2 || plan.lanes[lane].kernel > 0) continue;
      const Region& below = tile.reads[2];
      auto& mine = splits[plan.lanes[lane].rank];
      mine.insert({below.buffer, below.row, below.rows, below.col, tile.reads[0].rows});
      if (std::ssize(mine) > kMostSplits)
        return fmt::format("{}: tiles of rank {} have rows of A from {} pairs of places, want at most {}",
                           task_name(plan, lane, index), plan.lanes[lane].rank, mine.size(), kMostSplits);
    }
  }
  return std::nullopt;
}

/// Why the kernel does not have the clusters of a lane's tiles, or nothing.
std::optional<std::string> refuses_mixed_clusters(const Plan& plan, const Lane& lane) {
  const TileCluster all = cluster_of_tiles(plan, lane.rank);
  if (ctas_of(all) == 1) return std::nullopt;
  const auto in_words = [](const TileCluster& cluster) {
    return fmt::format("cluster_m = {}, cluster_n = {}, cluster_split_k = {}", cluster.m, cluster.n, cluster.split_k);
  };
  const std::string where = fmt::format("lane {} on rank {}", lane.name, lane.rank);
  if (all.m * all.n > 2) return fmt::format("{}: {}: want pairs", where, in_words(all));
  for (const Task& tile : lane.tasks) {
    if (!is_gemm_tile(tile)) continue;
    const TileCluster mine = cluster_of(tile.gemm);
    const bool alone = all.split_k == 1 && ctas_of(mine) == 1;
    if (mine != all && !alone) return fmt::format("{}: tiles with {} beside {}", where, in_words(mine), in_words(all));
    if (all.m * all.n == 2 && tile.gemm.tile_m == 64) return where + ": pairs of tiles of 64 rows";
    if (tile.reads.size() > 2) return where + ": rows of A from two places in a lane with clusters";
  }
  return std::nullopt;
}

/// Why tiles of a lowered plan do not form pairs as their fields demand, or nothing.
std::optional<std::string> refuses_clusters(const Plan& plan) {
  if (plan.target.empty() || slow_tiles(plan)) return std::nullopt;
  for (const Lane& lane : plan.lanes) {
    if (!by_tensor_cores(lane)) continue;
    if (auto reason = refuses_mixed_clusters(plan, lane)) return reason;
    const Task* first = nullptr;  // of a pair
    for (int64_t index = 0; index < std::ssize(lane.tasks); ++index) {
      const Task& tile = lane.tasks[index];
      if (!is_gemm_tile(tile)) continue;
      const bool joins = first != nullptr && are_pair(plan, *first, tile);
      if (first != nullptr && !joins)
        return fmt::format("tile {} of lane {} on rank {}: it is no pair with the one before (form_clusters)", index,
                           lane.name, lane.rank);
      first = in_cluster(tile) && !joins ? &tile : nullptr;
    }
    if (first != nullptr)
      return fmt::format("lane {} on rank {}: its last tile is half of a pair (form_clusters)", lane.name, lane.rank);
  }
  return std::nullopt;
}

/// Why a launch cannot carry a base for each of the callers' tensors, or nothing.
std::optional<std::string> refuses_tensors(const Plan& plan) {
  const auto callers = std::ranges::count_if(
      plan.buffers, [](const Buffer& b) { return b.scope == Scope::input || b.scope == Scope::output; });
  if (callers < kCopyBase) return std::nullopt;
  return fmt::format("{} tensors of callers, want at most {}", callers, kCopyBase - 1);
}

/// Whether a copy lane has copies that add.
bool engines_add(const Plan& plan) {
  return std::ranges::any_of(plan.lanes, [](const Lane& lane) {
    return lane.engine == Engine::copy && std::ranges::any_of(lane.tasks, [](const Task& task) {
             return std::ranges::any_of(task.writes, [](const Write& w) { return w.mode == WriteMode::accumulate; });
           });
  });
}

/// The features of plans that the tables and kernels of this backend implement.
Known known_to_kernels() {
  const std::vector<DType> floats{DType::fp32, DType::bf16, DType::fp16};
  return {
      .kinds = {TaskKind::compute, TaskKind::copy, TaskKind::reduce, TaskKind::fill, TaskKind::sync,
                TaskKind::gemm_call, TaskKind::collective_call},
      .bodies = {Body::gemm, Body::norm, Body::pool, Body::route, Body::grouped_gemm, Body::select},
      .collectives = {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce},
      .epilogue = {EpilogueKind::bias, EpilogueKind::gelu, EpilogueKind::relu, EpilogueKind::scale,
                   EpilogueKind::residual, EpilogueKind::swiglu_pairs},
      .engines = {Engine::tiles, Engine::reduce, Engine::copy, Engine::serial, Engine::library},
      .vias = {Via::automatic, Via::threads, Via::bulk, Via::tma},
      .b_layouts = {BLayout::nk, BLayout::kn},
      .numbers = floats,
      .normed = {DType::fp8_e4m3, DType::int8},
      .moved = {DType::fp32, DType::bf16, DType::fp16, DType::int32},
      .added = floats,
      .cluster = 2,
      .cluster_split_k = static_cast<int>(kMostCluster),
      .kernels = true,
      .ll = true,
  };
}

/// Tensor cores and the library need both operands of a product in one type: the products that have not, or nothing.
std::optional<std::string> refuses_operands(const Plan& plan) {
  const bool fast = !slow_tiles(plan);
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      const bool by_type = task.kind == TaskKind::gemm_call || (is_gemm_tile(task) && fast && lane.kernel == 0);
      if (!by_type) continue;
      const DType a = plan.buffers[task.reads[0].buffer].dtype;
      const DType b = plan.buffers[task.reads[1].buffer].dtype;
      if (a != b) return fmt::format("products of {} and {}", to_string(a), to_string(b));
    }
  }
  return std::nullopt;
}

/// Why tensor copies would store beyond a tile's destination, or nothing. Before a plan is lowered, `tma` is a wish.
std::optional<std::string> refuses_stores(const Plan& plan) {
  if (plan.target.empty() || slow_tiles(plan)) return std::nullopt;
  for (int lane = 0; lane < std::ssize(plan.lanes); ++lane) {
    if (plan.lanes[lane].kernel > 0) continue;
    for (int64_t index = 0; index < std::ssize(plan.lanes[lane].tasks); ++index) {
      const Task& task = plan.lanes[lane].tasks[index];
      if (!is_gemm_tile(task)) continue;
      const bool plain = leaves_by_bulk(task);
      for (const Write& write : task.writes) {
        if (write.via != Via::tma || (!plain && fits_tensor_store(plan, task, write))) continue;
        return fmt::format("{}: via = tma to {}, which is no whole number of boxes, or beside via = bulk",
                           task_name(plan, lane, index), region_name(plan, write.to));
      }
    }
  }
  return std::nullopt;
}

/// Whether a lane has grouped GEMMs alone, which neither wait nor post.
bool has_groups_alone(const Lane& lane) {
  return std::ranges::all_of(
      lane.tasks, [](const Task& task) { return is_grouped_gemm(task) && task.waits.empty() && task.posts.empty(); });
}

/// Why the kernels for groups cannot make a grouped GEMM, or nothing.
std::optional<std::string> refuses_product(const Plan& plan, const Task& task) {
  constexpr int64_t kUnit = 8;    // elements of 16 bytes
  constexpr int64_t kChunk = 64;  // columns of a store
  const DType dtype = plan.buffers[task.reads[0].buffer].dtype;
  if (dtype != DType::bf16 && dtype != DType::fp16) return "groups of " + to_string(dtype);
  if (task.gemm.b_layout == BLayout::kn && task.activation == Activation::swiglu_pairs)
    return "groups with B of layout kn and activation swiglu_pairs";
  const int64_t cols = plan.buffers[task.writes[0].to.buffer].cols;
  if (task.reads[0].cols % kUnit != 0 || cols % kUnit != 0)
    return fmt::format("groups of {} columns with results of {}, want multiples of {}", task.reads[0].cols, cols,
                       kUnit);
  const Write& write = task.writes[0];
  if (task.writes.size() != 1 || write.to.col != write.first_col)
    return fmt::format("groups with {} writes, the first from column {} to column {}: want one, to its own columns",
                       task.writes.size(), write.first_col, write.to.col);
  const int64_t end = write.first_col + write.to.cols;
  if (write.first_col % kChunk != 0 || (end % kChunk != 0 && end != cols))
    return fmt::format("columns {} to {} of groups: want multiples of {}", write.first_col, end, kChunk);
  return std::nullopt;
}

/// Which tasks of mixture of experts the kernels cannot make, or nothing.
std::optional<std::string> refuses_experts(const Plan& plan) {
  const auto has = [&](const auto& is) {
    return std::ranges::any_of(plan.lanes, [&](const Lane& lane) { return std::ranges::any_of(lane.tasks, is); });
  };
  const bool routes = has([](const Task& task) { return task.route || computes_with(task, Body::pool); });
  if (routes && has([](const Task& task) { return is_product(task) || is_norm(task); }))
    return "products or norms beside a mixture of experts: they have kernels of their own";
  std::vector<int> routed(static_cast<size_t>(plan.team.num_ranks), 0);
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (task.route && ++routed[lane.rank] > 1) return fmt::format("two routings on rank {}", lane.rank);
      if (task.route && num_groups(*task.route) > kMostRoutedGroups)
        return fmt::format("{} groups of experts on a rank, at most {}", num_groups(*task.route), kMostRoutedGroups);
      if (task.route && task.route->experts + num_shared(*task.route) > kMostRoutedExperts)
        return fmt::format("{} experts, at most {}", task.route->experts + num_shared(*task.route), kMostRoutedExperts);
      if (computes_with(task, Body::pool) && task.reads.size() == 2 && !is_grouped(plan.buffers[task.reads[1].buffer]))
        return "pools without weights";
      if (!is_grouped_gemm(task)) continue;
      if (auto reason = refuses_product(plan, task)) return reason;
      if (!plan.target.empty() && lane.stage != kCallStage) return "grouped GEMMs beside other work (stage_experts)";
    }
  }
  return std::nullopt;
}

/// Why a rank's stages are not a kernel, a library GEMM or grouped GEMMs, and a kernel, or nothing.
std::optional<std::string> refuses_stages(const Plan& plan) {
  const bool grouped = std::ranges::any_of(plan.buffers, is_grouped);
  for (int rank = 0; rank < plan.team.num_ranks; ++rank) {
    int calls = 0;
    bool staged = false;
    bool others = false;
    for (const Lane& lane : plan.lanes) {
      if (lane.rank != rank) continue;
      staged = staged || lane.stage > 0;
      if (lane.stage == kCallStage && has_groups_alone(lane)) continue;
      const bool call = lane.stage == 1 && lane.tasks.size() == 1 && calls_library(lane.tasks[0]) &&
                        lane.tasks[0].reads[0].rows > 0 && lane.tasks[0].reads[0].cols > 0 &&
                        std::ssize(lane.tasks[0].posts) <= kMostPreamblePosts;
      calls += call ? 1 : 0;
      const bool streams = lane.engine == Engine::copy || std::ranges::any_of(lane.tasks, [](const Task& t) {
                             return calls_library(t) || calls_collective(t);
                           });
      others = others || (!call && (streams || lane.stage == 1 || lane.stage > 2));
    }
    if (staged && (calls != (grouped ? 0 : 1) || others))
      return fmt::format("stages on rank {}: want a call of the library{} in stage 1, and workers in stages 0 and 2",
                         rank, grouped ? ", or here grouped GEMMs without waits and posts," : "");
  }
  return std::nullopt;
}

/// A task needs the real addresses of double-buffered LL data in shared memory, where there is room for some.
std::optional<std::string> refuses_copies(const Plan& plan) {
  const auto doubled = [&](const Region& region) { return plan.buffers[region.buffer].copies > 1; };
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      const bool reads = std::ranges::any_of(task.reads, doubled);
      const bool writes = std::ranges::any_of(task.writes, doubled, &Write::to);
      const size_t regions = std::max(reads ? task.reads.size() : 0, writes ? task.writes.size() : 0);
      if (regions > kRecordsAtHand)
        return fmt::format("a task with {} regions of double-buffered LL data, at most {}", regions, kRecordsAtHand);
    }
  }
  return std::nullopt;
}

/// The kernels store a quantised row in one place, and then perhaps its scale: the norms that have more, or nothing.
std::optional<std::string> refuses_norms(const Plan& plan) {
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (!is_norm(task) || !quantises(task.norm)) continue;
      const auto stores_scales = [&](const Write& write) { return write.first_col == task.reads[0].cols; };
      const bool fits = task.writes.size() <= 2 && !stores_scales(task.writes[0]) &&
                        (task.writes.size() == 1 || stores_scales(task.writes[1]));
      if (!fits)
        return fmt::format("quantised norms with {} writes: want one of rows, then one of scales", task.writes.size());
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> CudaGroup::unsupported(const Plan& plan) const {
  std::vector<std::string> missing = unknown_parts(known_to_kernels(), plan);
  // NOTE: the functions below rely on tasks that this backend implements.
  if (!missing.empty()) return missing;
  const int split_k = most_split_k(plan);
  const bool kernels = std::ranges::any_of(plan.lanes, [](const Lane& lane) { return lane.kernel > 0; });
  if (const auto reason = refuses_tensors(plan)) missing.push_back(*reason);
  if (const auto reason = refuses_tile_lanes(plan)) missing.push_back(*reason);
  if (const auto reason = refuses_operands(plan)) missing.push_back(*reason);
  if (const auto reason = no_library(plan, shares_device_)) missing.push_back("compute = library: " + *reason);
  if (const auto reason = no_collective(plan, shares_device_, no_communicator_))
    missing.push_back("collective = library: " + *reason);
  if (const auto reason = checking::refuses_ll(plan)) missing.push_back("LL data: " + *reason);
  if (const auto reason = refuses_copies(plan)) missing.push_back(*reason);
  if (const auto reason = refuses_pieces(plan)) missing.push_back(*reason);
  if (const auto reason = refuses_clusters(plan)) missing.push_back(*reason);
  if (const auto reason = refuses_stages(plan)) missing.push_back(*reason);
  if (const auto reason = refuses_stores(plan)) missing.push_back(*reason);
  if (const auto reason = refuses_norms(plan)) missing.push_back(*reason);
  if (const auto reason = refuses_experts(plan)) missing.push_back(*reason);
  if (const auto reason = refuses_cluster_split_k(plan))
    missing.push_back(fmt::format("cluster_split_k = {}: {}", split_k, *reason));
  if (split_k > 2 && shares_device_)
    missing.emplace_back("cluster_split_k > 2: ranks share a GPU, where such clusters may not be resident together");
  const bool beside = kernels || (calls_library(plan) && !slow_tiles(plan));
  if (split_k > 2 && beside)
    missing.emplace_back("cluster_split_k > 2: such clusters and other kernels may not be resident together");
  if (engines_add(plan)) missing.emplace_back("copies that add: copy engines only store");
  if (kernels && shares_device_)
    missing.emplace_back(
        "several kernels: ranks share a GPU, where kernels that wait for each other may not run together");
  // NOTE: kernels beside the library come from split_kernels, and need no tiles.
  const bool by_library = !plan.target.empty() && (calls_library(plan) || calls_collective(plan));
  if (const auto slow = slow_tiles(plan); kernels && slow && !by_library)
    missing.push_back("several kernels: tiles run without tensor cores: " + *slow);
  return missing;
}

}  // namespace tilewire::cuda
