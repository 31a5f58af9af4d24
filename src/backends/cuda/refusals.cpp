// Plans that a team of GPUs cannot execute, and why.
// Called by users through Group::unsupported.
#include <algorithm>

#include "backends/cuda/flagged.hpp"
#include "backends/cuda/group.hpp"
#include "backends/cuda/lane_tables.hpp"
#include "backends/cuda/stream_work.hpp"
#include "backends/host/rules.hpp"
#include "core/text.hpp"

namespace tilewire::cuda {
namespace {

/// Why the vendor's GEMM cannot be called, or nothing.
std::optional<std::string> no_library(const Plan& plan, bool shares_device) {
  if (!calls_library(plan)) return std::nullopt;
  // NOTE: its kernels would have to be resident together with those of the other ranks.
  if (shares_device) return "ranks share a GPU";
  if (auto reason = missing_cublaslt()) return reason;
  return refuses_library(plan);
}

/// The same for the vendor's collectives.
std::optional<std::string> no_collective(const Plan& plan, bool shares_device, const std::string& failed_before) {
  if (!calls_collective(plan)) return std::nullopt;
  if (shares_device) return "ranks share a GPU";
  if (!failed_before.empty()) return failed_before;
  return missing_nccl();
}

/// Whether a copy lane is to add.
bool engines_add(const Plan& plan) {
  return std::ranges::any_of(plan.lanes, [](const Lane& lane) {
    return lane.engine == Engine::copy && std::ranges::any_of(lane.tasks, [](const Task& task) {
             return std::ranges::any_of(task.writes, [](const Write& w) { return w.mode == WriteMode::accumulate; });
           });
  });
}

/// What the host knows to refuse is left.
Plan as_on_host(Plan plan) {
  // The kernels have clusters of 1 and 2.
  if (plan.config.cluster_m * plan.config.cluster_n <= 2) plan.config.cluster_m = plan.config.cluster_n = 1;
  plan.config.cluster_k = 1;
  plan.config.launches = 1;
  if (plan.config.transport != Transport::copy_engine) plan.config.transport = Transport::store;
  plan.config.collective = Provider::tiles;
  for (Lane& lane : plan.lanes) std::erase_if(lane.tasks, [](const Task& task) { return calls_collective(task); });
  return plan;
}

}  // namespace

std::vector<std::string> CudaGroup::unsupported(const Plan& plan) const {
  std::vector<std::string> missing = host::missing_features(as_on_host(plan));
  if (const auto reason = no_library(plan, shares_device_)) missing.push_back("compute = library: " + *reason);
  if (const auto reason = no_collective(plan, shares_device_, no_communicator_))
    missing.push_back("collective = library: " + *reason);
  if (const auto reason = refuses_flags(plan)) missing.push_back("transport = ll: " + *reason);
  if (const auto reason = refuses_cut_k(plan))
    missing.push_back(fmt::format("cluster_k = {}: {}", plan.config.cluster_k, *reason));
  if (plan.config.cluster_k > 2 && shares_device_)
    missing.push_back("cluster_k > 2: ranks share a GPU, where such clusters may find no room beside each other");
  if (plan.config.cluster_k > 2 && plan.config.launches > 1)
    missing.push_back("cluster_k > 2: with launches = 2 such clusters may find no room beside what sums");
  if (engines_add(plan)) missing.push_back("copies that add: copy engines of GPUs store");
  if (plan.config.launches > 1 && shares_device_)
    missing.push_back("launches = 2: ranks share a GPU, where kernels that wait for each other may not run together");
  if (const auto slow = slow_tiles(plan); plan.config.launches > 1 && slow)
    missing.push_back("launches = 2: tiles run without tensor cores: " + *slow);
  return missing;
}

}  // namespace tilewire::cuda
