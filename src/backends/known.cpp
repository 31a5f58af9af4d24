// Compares a plan with the features that a backend knows.
// Called by the backends.
#include "backends/known.hpp"

#include <algorithm>
#include <set>

#include "core/bodies.hpp"
#include "core/gemm_tasks.hpp"
#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire {
namespace {

class Search {
 public:
  Search(const Known& known, const Plan& plan) : known_(known), plan_(plan) {}

  std::vector<std::string> run() {
    look_at_team();
    for (const Buffer& buffer : plan_.buffers) {
      if (buffer.ll && !known_.ll) found_.insert("LL buffers");
    }
    for (const Lane& lane : plan_.lanes) {
      want(known_.engines, lane.engine, "engine = ");
      if (lane.kernel > 0 && !known_.kernels) found_.insert("several kernels");
      for (const Task& task : lane.tasks) look_at(task);
    }
    return {found_.begin(), found_.end()};
  }

 private:
  /// Record the part unless it is in the list.
  template <class Part>
  void want(const std::vector<Part>& list, Part part, const char* what) {
    if (std::ranges::find(list, part) == list.end()) found_.insert(what + to_string(part));
  }

  void look_at_team() {
    for (const Device& device : plan_.team.devices) {
      if (device.node != plan_.team.devices[0].node) found_.insert("a team of several nodes");
    }
  }

  void look_at(const GemmParams& gemm) {
    want(known_.b_layouts, gemm.b_layout, "b_layout = ");
    if (gemm.cluster_m * gemm.cluster_n > known_.cluster)
      found_.insert(fmt::format("clusters of {} x {}", gemm.cluster_m, gemm.cluster_n));
    if (gemm.cluster_split_k > known_.cluster_split_k)
      found_.insert(fmt::format("cluster_split_k = {}", gemm.cluster_split_k));
  }

  void look_at(const Task& task) {
    want(known_.kinds, task.kind, "");
    const bool product = task.kind == TaskKind::compute || task.kind == TaskKind::gemm_call;
    if (product) want(known_.bodies, task.body, "body = ");
    if (product) look_at(task.gemm);
    if (has_several_results(task)) return;
    if (task.kind == TaskKind::collective_call) want(known_.collectives, task.collective, "a library's ");
    for (const Region& read : task.reads) look_at(task, read);
    for (const Region& addend : task.addends) look_at(task, addend);
    for (const Write& write : task.writes) {
      const bool normed = is_norm(task) && std::ranges::find(known_.normed, dtype_of(write.to)) != known_.normed.end();
      if (!normed) look_at(task, write.to);
      want(known_.vias, write.via, "via = ");
      if (write.mode == WriteMode::accumulate) want(known_.added, dtype_of(write.to), "accumulate into ");
    }
    for (const EpilogueStep& step : task.epilogue) {
      want(known_.epilogue, step.kind, "epilogue = ");
      if (step.operand) look_at(task, *step.operand);
    }
  }

  void look_at(const Task& task, const Region& region) {
    const bool by_indices = task.kind == TaskKind::compute && facts_of(task.body).by_indices;
    if (by_indices && &region == &task.reads[1]) return;
    const bool copies = task.kind == TaskKind::copy;
    want(copies ? known_.moved : known_.numbers, dtype_of(region), copies ? "copies of " : "numbers of ");
  }

  [[nodiscard]] DType dtype_of(const Region& region) const { return plan_.buffers[region.buffer].dtype; }

  const Known& known_;
  const Plan& plan_;
  std::set<std::string> found_;
};

}  // namespace

std::vector<std::string> unknown_parts(const Known& known, const Plan& plan) { return Search(known, plan).run(); }

}  // namespace tilewire
