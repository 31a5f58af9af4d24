// Coverage: executes the tasks symbolically, in one order. The race check extends the result to all orders.
// Called by check.cpp.
#include "check/bands.hpp"
#include "check/bodies.hpp"
#include "check/experts.hpp"
#include "check/proofs.hpp"
#include "core/gemm_tasks.hpp"
#include "core/grouped_tasks.hpp"
#include "core/text.hpp"

namespace tilewire::checking {
namespace {

class Execution {
 public:
  Execution(const Tasks& tasks, const std::vector<Meaning>& meanings, Report& report)
      : tasks_(tasks), plan_(tasks.plan), meanings_(meanings), report_(report) {
    for (int rank = 0; rank < plan_.team.num_ranks; ++rank) {
      for (const Buffer& buffer : plan_.buffers) memory_.emplace_back(shape_on(buffer, rank));
    }
    for (const Meaning& meaning : meanings_) {
      if (plan_.buffers[meaning.buffer].scope == Scope::input)
        memory(meaning.rank, meaning.buffer).write(patch_of(meaning));
    }
  }

  void run(int t) {
    t_ = t;
    const Task& task = *tasks_.task[t];
    try {
      if (has_several_results(task)) return store_results(task);
      for (const Region& extents : extents_read(plan_, task)) check_extents(extents);
      const std::vector<Patch> result = result_of(task);
      for (const Write& write : task.writes) store(write, result);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::refused_plan) throw;
      report_.add(Rule::coverage, "{} {}", tasks_.name(t), error.what());
      // Report no violations that follow from this one.
      for (const Write& write : task.writes) memory_of(write.to).write({rect_of(write.to), Values::unknown(), t});
    }
  }

  void check_outputs() {
    for (const Meaning& meaning : meanings_) {
      if (plan_.buffers[meaning.buffer].scope == Scope::output) check_output(meaning);
    }
  }

 private:
  [[nodiscard]] Bands& memory(int rank, int buffer) { return memory_[rank * plan_.buffers.size() + buffer]; }
  [[nodiscard]] Bands& memory_of(const Region& region) { return memory(region.rank, region.buffer); }
  [[nodiscard]] std::string part_name(const Region& of, const Rect& rect) const {
    return region_name(plan_, region_of(of.rank, of.buffer, rect));
  }
  [[nodiscard]] std::string writer_name(int writer) const { return writer < 0 ? "the caller" : tasks_.name(writer); }

  /// The groups of a caller's handle, or of rows that belong to it.
  [[nodiscard]] int64_t groups_of(const Meaning& meaning) const {
    for (const Meaning& other : meanings_) {
      if (other.rank == meaning.rank && other.role == Role::extents)
        return number_of_extents(meaning.rank, other.buffer);
    }
    return -1;
  }

  Patch patch_of(const Meaning& meaning) {
    const Range rows = rows_on(plan_.buffers[meaning.buffer], meaning);
    const int64_t cols = shape_on(plan_.buffers[meaning.buffer], meaning.rank).cols;
    Value value{what_of(meaning.role)};
    const Role role = meaning.role;
    const bool sum = role == Role::partial || role == Role::normed || role == Role::norm_scale;
    const bool in_groups = role == Role::expert_x || role == Role::expert_h || role == Role::expert_y;
    const bool lists = role == Role::places || role == Role::place_weights;
    if (sum || in_groups) value.terms = terms_of(meaning.terms);
    value.finished = meaning.finished;
    if (role == Role::topk_ids || role == Role::topk_weights || lists) value.width = cols;
    if (in_groups || lists || role == Role::extents) value.groups = groups_of(meaning);
    return {{rows.begin, rows.end, 0, cols}, {meaning.row - rows.begin, meaning.col, values_.add(std::move(value))}};
  }

  Operand read(const Region& region) {
    const Rect rect = rect_of(region);
    const Bands& from = memory_of(region);
    if (const auto gap = from.first_gap(rect))
      fail(ErrorKind::refused_plan, "reads {}, which nothing has written", part_name(region, *gap));
    Operand operand{from.read(rect), {region.rows, region.cols}};
    for (Patch& patch : operand.patches) patch = moved(patch, -region.row, -region.col);
    return operand;
  }

  /// The extents of a task's groups must be there.
  void check_extents(const Region& region) {
    for (const Patch& patch : read(region).patches) {
      if (patch.content == Values::unknown()) continue;
      const Value& value = values_[patch.content.value];
      if (value.what != What::extents || value.groups != number_of_extents(region.rank, region.buffer))
        fail(ErrorKind::refused_plan, "takes groups by {}, which is {}", region_name(plan_, region),
             values_.describe(patch));
    }
  }

  void store_results(const Task& task) {
    std::vector<Operand> operands;
    for (const Region& region : task.reads) operands.push_back(read(region));
    const std::vector<std::vector<Patch>> parts = routed(values_, task, operands);
    for (size_t i = 0; i < task.writes.size(); ++i) store(task.writes[i], parts[i]);
  }

  std::vector<Patch> result_of(const Task& task) {
    std::vector<Patch> result;
    switch (task.kind) {
      case TaskKind::compute:
      case TaskKind::gemm_call: {
        std::vector<Operand> operands;
        for (const Region& region : task.reads) operands.push_back(read(region));
        result = proof_of(task.body).meaning(values_, task, operands);
        break;
      }
      case TaskKind::copy:
        result = read(task.reads[0]).patches;
        break;
      case TaskKind::reduce:
        result = {{{0, task.reads[0].rows, 0, task.reads[0].cols}, values_.zero()}};
        for (const Region& region : task.reads) result = sum_of(values_, result, read(region).patches);
        break;
      case TaskKind::collective_call:
        return collected(task);
      case TaskKind::fill:
      case TaskKind::sync:
        break;
    }
    if (task.epilogue.empty()) return result;
    for (const EpilogueStep& step : task.epilogue) {
      if (step.kind == EpilogueKind::bias) result = with_operand(values_, result, read(*step.operand), What::bias);
      if (step.kind == EpilogueKind::residual)
        result = with_operand(values_, result, read(*step.operand), What::residual);
    }
    return finished(values_, result);
  }

  /// One rank's result of a collective, whose parts are the tasks of one meeting.
  std::vector<Patch> collected(const Task& task) {
    const Region& to = task.writes[0].to;
    std::vector<Patch> result;
    const bool exchanges = task.collective == Collective::all_to_all;
    if (task.collective != Collective::all_gather && !exchanges) result = {{{0, to.rows, 0, to.cols}, values_.zero()}};
    for (const int call : tasks_.meetings[tasks_.meeting[t_]]) {
      Region from = tasks_.task[call]->reads[0];
      if (exchanges) {
        from.rows = to.rows / plan_.team.num_ranks;
        from.row += tasks_.rank[t_] * from.rows;
      }
      if (exchanges || task.collective == Collective::all_gather) {
        for (const Patch& patch : read(from).patches) result.push_back(moved(patch, tasks_.rank[call] * from.rows, 0));
        continue;
      }
      if (task.collective == Collective::reduce_scatter) {
        from.row += tasks_.rank[t_] * to.rows;
        from.rows = to.rows;
      }
      result = sum_of(values_, result, read(from).patches);
    }
    return result;
  }

  /// The patches that a write stores, in the destination's frame.
  std::vector<Patch> incoming(const Write& write, const std::vector<Patch>& result) {
    const Rect to = rect_of(write.to);
    if (tasks_.task[t_]->kind == TaskKind::fill) {
      const Content constant{kAnywhere, kAnywhere, values_.add({What::constant})};
      return {{to, tasks_.task[t_]->value == 0 ? values_.zero() : constant}};
    }
    std::vector<Patch> patches;
    for (const Patch& patch : result) {
      Patch here = moved(patch, write.to.row - write.first_row, write.to.col - write.first_col);
      here.at = intersect(here.at, to);
      if (!here.at.empty()) patches.push_back(here);
    }
    return patches;
  }

  void store(const Write& write, const std::vector<Patch>& result) {
    Bands& to = memory_of(write.to);
    std::vector<Patch> patches = incoming(write, result);
    if (write.mode == WriteMode::store) {
      if (const auto old = to.first_patch(rect_of(write.to)))
        fail(ErrorKind::refused_plan, "stores {}, which {} has written already in this call",
             part_name(write.to, old->at), writer_name(old->writer));
    } else {
      if (const auto gap = to.first_gap(rect_of(write.to)))
        fail(ErrorKind::refused_plan, "accumulates into {}, which is neither filled nor written",
             part_name(write.to, *gap));
      patches = sum_of(values_, to.read(rect_of(write.to)), patches);
    }
    for (Patch& patch : patches) {
      patch.writer = t_;
      to.write(patch);
    }
  }

  void check_output(const Meaning& meaning) {
    const Patch wanted = patch_of(meaning);
    const Region whole = region_of(meaning.rank, meaning.buffer, wanted.at);
    const Bands& memory = memory_of(whole);
    if (const auto gap = memory.first_gap(wanted.at))
      report_.add(Rule::coverage, "{} of an output is never written", part_name(whole, *gap));
    for (const Patch& held : memory.read(wanted.at)) {
      if (held.content == Values::unknown()) continue;
      const bool same_value = held.content.value == wanted.content.value;
      const bool same_place =
          agree(held.content.row, wanted.content.row) && agree(held.content.col, wanted.content.col);
      if (same_value && same_place) continue;
      const bool lacks = same_place && values_[held.content.value].what == What::partial && !same_value &&
                         values_[held.content.value].terms != values_[wanted.content.value].terms;
      report_.add(Rule::coverage, "{} of an output holds {}, written by {}; it must hold {}{}",
                  part_name(whole, held.at), values_.describe(held), writer_name(held.writer),
                  values_.describe({held.at, wanted.content}), lacks ? ": contributions are missing" : "");
    }
  }

  const Tasks& tasks_;
  const Plan& plan_;
  const std::vector<Meaning>& meanings_;
  Report& report_;
  Values values_;
  std::vector<Bands> memory_;
  int t_ = 0;
};

}  // namespace

void check_coverage(const Tasks& tasks, const std::vector<Meaning>& meanings, const std::vector<int>& sequence,
                    Report& report) {
  Execution execution(tasks, meanings, report);
  for (const int t : sequence) {
    if (report.full(Rule::coverage)) return;
    execution.run(t);
  }
  execution.check_outputs();
}

}  // namespace tilewire::checking
