// Finds the outputs that may lie in the memory of a residual.
// Called by programs.
#include "core/in_place.hpp"

#include <algorithm>
#include <set>

#include "core/regions.hpp"

namespace tilewire {
namespace {

struct Read {
  Region region{};
  const Task* task = nullptr;
  bool residual = false;
};

/// The tasks' reads of a buffer on a rank, ordered by their first rows.
struct Reads {
  std::vector<Read> all;
  int64_t most_rows = 0;
};

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

Reads reads_of(const Plan& plan, int rank, int buffer) {
  Reads reads;
  const auto add = [&](const Region& region, const Task& task, bool residual) {
    if (region.rank != rank || region.buffer != buffer) return;
    reads.all.push_back({region, &task, residual});
    reads.most_rows = std::max(reads.most_rows, region.rows);
  };
  for_each_task(plan, [&](const Task& task) {
    for (const Region& region : task.reads) add(region, task, false);
    for (const Region& region : task.addends) add(region, task, false);
    for (const EpilogueStep& step : task.epilogue) {
      if (step.operand) add(*step.operand, task, step.kind == EpilogueKind::residual);
    }
  });
  std::ranges::sort(reads.all, {}, [](const Read& read) { return read.region.row; });
  return reads;
}

/// Whether no read of the residual can see what `write` stores, if the residual has the output's memory.
bool stores_what_it_read(const Write& write, const Task& task, const Reads& reads) {
  Region there = write.to;
  const auto row_of = [](const Read& read) { return read.region.row; };
  const auto first = std::ranges::lower_bound(reads.all, there.row - reads.most_rows, {}, row_of);
  const auto last = std::ranges::lower_bound(reads.all, there.row + there.rows, {}, row_of);
  return std::all_of(first, last, [&](const Read& read) {
    there.buffer = read.region.buffer;
    if (!overlap(read.region, there)) return true;
    return read.task == &task && read.residual && write.mode == WriteMode::store &&
           read.region.row + write.first_row == there.row && read.region.col + write.first_col == there.col;
  });
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
      good = good && (!here || stores_what_it_read(write, task, reads));
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
