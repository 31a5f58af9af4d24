// The host backend's rules for plans.
// Called by HostGroup::unsupported and when a plan is loaded.
#include "backends/host/rules.hpp"

#include <algorithm>
#include <limits>

#include "backends/known.hpp"
#include "core/bodies.hpp"
#include "core/grouped_tasks.hpp"
#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire::host {
namespace {

struct TaskRules {
  const Plan& plan;
  int lane;
  int64_t index;

  [[nodiscard]] const Task& task() const { return plan.lanes[lane].tasks[index]; }
  [[nodiscard]] DType dtype(const Region& region) const { return plan.buffers[region.buffer].dtype; }

  void check(bool holds, const char* rule) const {
    if (!holds) fail(ErrorKind::invalid_input, "{}: {}", task_name(plan, lane, index), rule);
  }

  void check_reach(const Region& region) const {
    if (region.rank == plan.lanes[lane].rank || reachable(plan.buffers[region.buffer])) return;
    fail(ErrorKind::invalid_input, "{}: {} is not in the arena, so other ranks cannot address it",
         task_name(plan, lane, index), region_name(plan, region));
  }

  void check_all() const {
    const Task& t = task();
    for (const Region& region : t.reads) check_reach(region);
    for (const Region& region : t.addends) check_reach(region);
    for (const Region& region : extents_read(plan, t)) check_reach(region);
    for (const Write& write : t.writes) check_reach(write.to);
    for (const EpilogueStep& step : t.epilogue) check_operand(step);
    if (t.kind == TaskKind::compute || t.kind == TaskKind::gemm_call) check_product();
    if (t.kind == TaskKind::copy) {
      check(std::all_of(t.writes.begin(), t.writes.end(),
                        [&](const Write& write) { return dtype(write.to) == dtype(t.reads[0]); }),
            "a copy has the same dtype at both ends");
    }
    if (t.kind == TaskKind::reduce) {
      check(
          std::all_of(t.reads.begin(), t.reads.end(),
                      [&](const Region& read) { return read.rows == t.reads[0].rows && read.cols == t.reads[0].cols; }),
          "the terms of a reduce have one shape");
    }
  }

  void check_product() const {
    const Task& t = task();
    const Region& a = t.reads[0];
    const Region& b = t.reads[1];
    if (t.body == Body::norm) return check_norm();
    // `validate` knows the rules of these.
    if (t.body == Body::route || t.body == Body::grouped_gemm || t.body == Body::select) return;
    if (facts_of(t.body).by_indices) return check(dtype(b) == DType::int32, "indices are int32");
    const int64_t a_depth = depth_of(t);
    const int64_t b_depth = t.gemm.b_layout == BLayout::nk ? b.cols : b.rows;
    check(a_depth == b_depth, "the operands of a product have one depth");
    check(std::all_of(t.reads.begin() + 2, t.reads.end(),
                      [&](const Region& more) { return more.cols == a_depth && dtype(more) == dtype(a); }),
          "all rows of A have one depth and type");
    check(dtype(a) == dtype(b) && is_number(dtype(a)), "the operands of a product have one floating type");
    const Shape result = result_shape(t);
    for (const Region& addend : t.addends) {
      check(Shape{addend.rows, addend.cols} == result, "what is added to a product has its shape");
      check(dtype(addend) == dtype(t.addends[0]) && is_number(dtype(addend)),
            "what is added to a product has one floating type");
    }
  }

  void check_norm() const {
    const Task& t = task();
    check(t.reads.size() == (t.norm.kind == NormKind::layer ? 3U : 2U), "only a layer norm has a bias");
    for (size_t i = 0; i < t.reads.size(); ++i) {
      check(is_number(dtype(t.reads[i])), "a norm takes floating types");
      check(i == 0 || (t.reads[i].rows == 1 && t.reads[i].cols == t.reads[0].cols),
            "weight and bias of a norm have one row, of the columns of the rows");
    }
  }

  void check_operand(const EpilogueStep& step) const {
    if (!step.operand) return;
    check_reach(*step.operand);
    const Shape result = result_shape(task());
    const bool bias = step.kind == EpilogueKind::bias;
    check(step.operand->cols == result.cols && step.operand->rows == (bias ? 1 : result.rows),
          bias ? "a bias has one row and the columns of the result" : "a residual has the shape of the result");
  }
};

}  // namespace

std::vector<std::string> missing_features(const Plan& plan) {
  const std::vector<DType> floats{DType::fp32, DType::bf16, DType::fp16};
  const std::vector<DType> all{DType::fp32, DType::bf16, DType::fp16, DType::int32};
  Known host{
      .kinds = {TaskKind::compute, TaskKind::copy, TaskKind::reduce, TaskKind::fill, TaskKind::sync,
                TaskKind::gemm_call},
      .bodies = {Body::gemm, Body::pool, Body::norm, Body::route, Body::grouped_gemm, Body::select},
      .collectives = {},
      .epilogue = {EpilogueKind::bias, EpilogueKind::gelu, EpilogueKind::relu, EpilogueKind::scale,
                   EpilogueKind::residual, EpilogueKind::swiglu_pairs},
      .engines = {Engine::tiles, Engine::reduce, Engine::copy, Engine::serial, Engine::library},
      .vias = {Via::automatic},
      .b_layouts = {BLayout::nk, BLayout::kn},
      .numbers = all,
      .normed = {DType::fp8_e4m3, DType::int8},
      .moved = all,
      .added = floats,
      .ll = true,
  };
  // Decisions of GPU passes change no result, so the host accepts them.
  if (!plan.target.empty()) {
    host.vias = {Via::automatic, Via::threads, Via::bulk, Via::tma};
    host.cluster = host.cluster_split_k = std::numeric_limits<int>::max();
    host.kernels = true;
  }
  return unknown_parts(host, plan);
}

void require_runnable(const Plan& plan) {
  for (int lane = 0; lane < std::ssize(plan.lanes); ++lane) {
    for (int64_t task = 0; task < std::ssize(plan.lanes[lane].tasks); ++task) TaskRules{plan, lane, task}.check_all();
  }
}

}  // namespace tilewire::host
