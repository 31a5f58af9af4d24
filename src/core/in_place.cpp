// Finds the outputs that may lie in the memory of a residual.
// Called by programs.
#include "core/in_place.hpp"

#include <set>

#include "core/gemm_tasks.hpp"
#include "core/regions_by_row.hpp"

namespace tilewire {
namespace {

/// The task that reads a region, and whether as the residual of its epilogue.
struct Reader {
  const Task* task = nullptr;
  bool residual = false;
};

using Reads = RegionsByRow<Reader>;

template <class Visit>
void for_each_task(const Plan& plan, const Visit& visit) {
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) visit(task);
  }
}

std::set<int> residuals_of(const Plan& plan) {
  std::set<int> found;
  for_each_task(plan, [&](const Task& task) {
    for (const EpilogueStep& step : task.epilogue) {
      if (step.kind == EpilogueKind::residual && step.operand) found.insert(step.operand->buffer);
    }
  });
  return found;
}

/// All reads of a buffer on a rank.
Reads reads_of(const Plan& plan, int rank, int buffer) {
  Reads reads;
  const auto add = [&](const Region& region, const Reader& reader) {
    if (region.rank == rank && region.buffer == buffer) reads.add(region, reader);
  };
  for_each_task(plan, [&](const Task& task) {
    for (const Region& region : all_reads(task)) add(region, {&task, false});
    for (const EpilogueStep& step : task.epilogue) {
      if (step.operand) add(*step.operand, {&task, step.kind == EpilogueKind::residual});
    }
  });
  reads.sort();
  return reads;
}

/// Whether no read of buffer `residual` can see what `write` stores, if the residual has the output's memory.
bool stores_what_it_read(const Write& write, const Task& task, int residual, const Reads& reads) {
  Region there = write.to;
  there.buffer = residual;
  bool good = true;
  reads.for_each_overlap(there, [&](const Region& read, const Reader& reader) {
    good = good && reader.task == &task && reader.residual && write.mode == WriteMode::store &&
           read.row + write.first_row == there.row && read.col + write.first_col == there.col;
  });
  return good;
}

bool in_place(const Plan& plan, int rank, const InPlace& pair) {
  const Buffer& residual = plan.buffers[pair.residual];
  const Buffer& output = plan.buffers[pair.output];
  if (output.scope != Scope::output || residual.dtype != output.dtype) return false;
  if (shape_on(residual, rank) != shape_on(output, rank)) return false;
  const Reads reads = reads_of(plan, rank, pair.residual);
  bool good = true;
  for_each_task(plan, [&](const Task& task) {
    for (const Write& write : task.writes) {
      const bool here = write.to.rank == rank && write.to.buffer == pair.output;
      good = good && (!here || stores_what_it_read(write, task, pair.residual, reads));
    }
  });
  return good;
}

}  // namespace

std::vector<InPlace> in_place_pairs(const Plan& plan) {
  std::vector<InPlace> pairs;
  for (const int residual : residuals_of(plan)) {
    if (plan.buffers[residual].scope != Scope::input) continue;
    for (int output = 0; output < std::ssize(plan.buffers); ++output) {
      bool good = true;
      for (int rank = 0; rank < plan.team.num_ranks && good; ++rank) good = in_place(plan, rank, {residual, output});
      if (good) pairs.push_back({residual, output});
    }
  }
  return pairs;
}

}  // namespace tilewire
