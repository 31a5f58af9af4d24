// The checker's rules for each compute body.
// Called by structure.cpp and coverage.cpp.
#include "check/bodies.hpp"

#include <array>

#include "check/experts.hpp"
#include "core/gemm_tasks.hpp"
#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire::checking {
namespace {

using Clauses = std::vector<std::string>;

DType dtype_of(const Plan& plan, const Region& region) { return plan.buffers[region.buffer].dtype; }

void check_number(const Plan& plan, const Region& region, Clauses& broken) {
  const DType dtype = dtype_of(plan, region);
  if (!is_number(dtype))
    broken.push_back(fmt::format("computes with {}, which is {}", region_name(plan, region), to_string(dtype)));
}

void check_addends(const Plan& plan, const Task& task, Clauses& broken) {
  const Shape result = result_shape(task);
  for (const Region& addend : task.addends) {
    check_number(plan, addend, broken);
    if (Shape{addend.rows, addend.cols} != result)
      broken.push_back(
          fmt::format("adds {} to a product of {} x {}", region_name(plan, addend), result.rows, result.cols));
    const DType first = dtype_of(plan, task.addends[0]);
    if (dtype_of(plan, addend) != first)
      broken.push_back(fmt::format("adds {} and {}: dtypes {} and {} differ", region_name(plan, task.addends[0]),
                                   region_name(plan, addend), to_string(first), to_string(dtype_of(plan, addend))));
  }
}

Clauses broken_by_product(const Plan& plan, const Task& task) {
  Clauses broken;
  const Region& a = task.reads[0];
  const Region& b = task.reads[1];
  check_number(plan, a, broken);
  check_number(plan, b, broken);
  const int64_t depth_a = depth_of(task);
  for (size_t i = 2; i < task.reads.size(); ++i) {
    const Region& below = task.reads[i];
    if (below.cols != depth_a || dtype_of(plan, below) != dtype_of(plan, a))
      broken.push_back(fmt::format("multiplies {} below {}: {} and {} columns of {} and {}", region_name(plan, below),
                                   region_name(plan, a), below.cols, depth_a, to_string(dtype_of(plan, below)),
                                   to_string(dtype_of(plan, a))));
  }
  const int64_t depth_b = task.gemm.b_layout == BLayout::nk ? b.cols : b.rows;
  if (depth_a != depth_b)
    broken.push_back(fmt::format("multiplies {} and {}: K is {} and {}", region_name(plan, a), region_name(plan, b),
                                 depth_a, depth_b));
  check_addends(plan, task, broken);
  return broken;
}

void put_below(Operand& operand, const Operand& more) {
  for (const Patch& patch : more.patches) operand.patches.push_back(moved(patch, operand.shape.rows, 0));
  operand.shape.rows += more.shape.rows;
}

std::vector<Patch> meaning_of_product(Values& values, const Task& task, std::vector<Operand>& reads) {
  for (size_t i = 2; i < reads.size(); ++i) put_below(reads[0], reads[i]);
  std::vector<Patch> product = product_of(values, task.gemm.b_layout, reads[0], reads[1]);
  return joins_columns(task.epilogue) ? in_pairs(values, product) : product;
}

Clauses broken_by_pool(const Plan& plan, const Task& task) {
  Clauses broken;
  const Region& table = task.reads[0];
  const Region& indices = task.reads[1];
  check_number(plan, table, broken);
  if (dtype_of(plan, indices) != DType::int32)
    broken.push_back(fmt::format("takes indices from {}, which is not int32", region_name(plan, indices)));
  const Shape whole = shape_on(plan.buffers[table.buffer], table.rank);
  // The rows of a sum of experts count in the memory of all groups, of which structure.cpp wants those of a shard.
  const bool sums = task.reads.size() == 3 && is_grouped(plan.buffers[table.buffer]);
  if (!sums && (table.row != 0 || table.rows != whole.rows))
    broken.push_back(fmt::format("pools from {}: indices count from the table's first row, so it must read all {} rows",
                                 region_name(plan, table), whole.rows));
  return broken;
}

std::vector<Patch> meaning_of_pool(Values& values, const Task& task, std::vector<Operand>& reads) {
  if (reads[1].shape.rows == 0) return {};
  if (pools_by_groups(values, reads[1])) return pooled_by_groups(values, task, reads);
  if (reads.size() > 2 && !is_unknown(reads[1].patches))
    fail(ErrorKind::refused_plan, "weighs the rows of a pool that are not output rows of experts");
  return pooled(values, reads[0], reads[1]);
}

Clauses broken_by_norm(const Plan& plan, const Task& task) {
  Clauses broken;
  const Region& rows = task.reads[0];
  for (size_t i = 0; i < task.reads.size(); ++i) {
    const Region& read = task.reads[i];
    check_number(plan, read, broken);
    if (i == 0) continue;
    const Shape all = shape_on(plan.buffers[read.buffer], read.rank);
    if (read.rows != 1 || read.cols != rows.cols || read.cols != all.cols)
      broken.push_back(
          fmt::format("normalises {} with {} of {} x {}: a norm takes whole rows, and one row of weights "
                      "of as many columns",
                      region_name(plan, rows), region_name(plan, read), all.rows, all.cols));
  }
  const bool wants_bias = task.norm.kind == NormKind::layer;
  if (wants_bias != (task.reads.size() == 3))
    broken.push_back(fmt::format("normalises {} by {} with {} reads: only a layer norm has a bias",
                                 region_name(plan, rows), to_string(task.norm.kind), task.reads.size()));
  if (rows.cols == 0) broken.push_back(fmt::format("normalises {}, rows without columns", region_name(plan, rows)));
  if (task.norm.kind == NormKind::layer && quantises(task.norm))
    broken.push_back(fmt::format("quantises {} behind a layer norm, want an RMSNorm", region_name(plan, rows)));
  for (const Write& write : task.writes) {
    const DType dtype = dtype_of(plan, write.to);
    const bool scales = write.first_col == rows.cols;
    const bool both = write.first_col + write.to.cols > rows.cols && !scales;
    const DType wanted = quantises(task.norm) && !scales ? *task.norm.out_dtype : scales ? DType::fp32 : dtype;
    if (both || dtype != wanted || (!quantises(task.norm) && !is_number(dtype)))
      broken.push_back(fmt::format("stores columns {}..{} of a norm of {} columns in {} of {}", write.first_col,
                                   write.first_col + write.to.cols, rows.cols, region_name(plan, write.to),
                                   to_string(dtype)));
  }
  return broken;
}

std::vector<Patch> meaning_of_norm(Values& values, const Task& task, std::vector<Operand>& reads) {
  return normed(values, task.norm, reads);
}

// core/grouped_tasks.cpp has the rules of routing, of grouped GEMMs and of selected rows.
Clauses broken_by_groups(const Plan&, const Task&) { return {}; }

std::vector<Patch> no_meaning(Values&, const Task&, std::vector<Operand>&) { return {}; }

std::vector<Patch> meaning_of_grouped(Values& values, const Task& task, std::vector<Operand>& reads) {
  return grouped_product(values, task, reads[0], reads[1]);
}

std::vector<Patch> meaning_of_select(Values& values, const Task&, std::vector<Operand>& reads) {
  return selected(values, reads[0], reads[1]);
}

constexpr std::array kProofs{
    BodyProof{Body::gemm, broken_by_product, meaning_of_product},
    BodyProof{Body::pool, broken_by_pool, meaning_of_pool},
    BodyProof{Body::norm, broken_by_norm, meaning_of_norm},
    BodyProof{Body::route, broken_by_groups, no_meaning},  // it has several results: `routed`
    BodyProof{Body::grouped_gemm, broken_by_groups, meaning_of_grouped},
    BodyProof{Body::select, broken_by_groups, meaning_of_select},
};
static_assert(kProofs[static_cast<size_t>(Body::gemm)].body == Body::gemm);
static_assert(kProofs[static_cast<size_t>(Body::pool)].body == Body::pool);
static_assert(kProofs[static_cast<size_t>(Body::norm)].body == Body::norm);
static_assert(kProofs[static_cast<size_t>(Body::route)].body == Body::route);
static_assert(kProofs[static_cast<size_t>(Body::grouped_gemm)].body == Body::grouped_gemm);
static_assert(kProofs[static_cast<size_t>(Body::select)].body == Body::select);

}  // namespace

const BodyProof& proof_of(Body body) { return kProofs[static_cast<size_t>(body)]; }

}  // namespace tilewire::checking
