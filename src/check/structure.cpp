// Structure: rules that each task must obey by itself.
// Called by check.cpp.
#include <algorithm>

#include "check/bodies.hpp"
#include "check/proofs.hpp"
#include "core/bodies.hpp"
#include "core/gemm_tasks.hpp"
#include "core/grouped_tasks.hpp"
#include "tilewire/print.hpp"

namespace tilewire::checking {
namespace {

constexpr int kMostRanks = 1024;

class StructureCheck {
 public:
  StructureCheck(const Tasks& tasks, const Specification& wanted, Report& report)
      : tasks_(tasks), plan_(tasks.plan), wanted_(wanted), report_(report) {}

  void check_task(int t) {
    t_ = t;
    const Task& task = *tasks_.task[t];
    for (const Region& region : task.reads) check_access(region, false);
    for (const Region& region : task.addends) check_access(region, false);
    for (const Region& region : extents_read(plan_, task)) check_access(region, false);
    for (const Write& write : task.writes) check_access(write.to, true);
    for (const EpilogueStep& step : task.epilogue) {
      if (step.operand) check_access(*step.operand, false);
    }
    for (const Wait& wait : task.waits) {
      if (wait.signal.rank != rank())
        refuse("{} waits for {}: a rank can only wait for its own signals", name(), signal_name(plan_, wait.signal));
    }
    for (const Post& post : task.posts) {
      if (post.signal.rank != rank() && link_between(plan_.team, rank(), post.signal.rank).reach == Reach::none)
        refuse("{} posts to {}: no link leads there", name(), signal_name(plan_, post.signal));
    }
    check_shapes(task);
    check_epilogue(task);
  }

 private:
  [[nodiscard]] int rank() const { return tasks_.rank[t_]; }
  [[nodiscard]] std::string name() const { return tasks_.name(t_); }
  [[nodiscard]] DType dtype_of(const Region& region) const { return plan_.buffers[region.buffer].dtype; }

  template <class... Args>
  void refuse(fmt::format_string<Args...> format, Args&&... args) {
    report_.add(Rule::structure, format, std::forward<Args>(args)...);
  }

  void check_access(const Region& region, bool writes) {
    const Buffer& buffer = plan_.buffers[region.buffer];
    if (writes && buffer.scope == Scope::input) refuse("{} writes {}, an input", name(), region_name(plan_, region));
    if (region.rank == rank()) return;
    const char* verb = writes ? "writes" : "reads";
    if (!reachable(buffer))
      refuse("{} {} {}: other ranks cannot address a buffer that is neither symmetric nor in the arena", name(), verb,
             region_name(plan_, region));
    const Reach reach =
        (writes ? link_between(plan_.team, rank(), region.rank) : link_between(plan_.team, region.rank, rank())).reach;
    const bool copies = tasks_.task[t_]->kind == TaskKind::copy;
    const bool allowed = reach == Reach::load_store || (reach == Reach::copy && copies);
    if (!allowed)
      refuse("{} {} {}: the link between the two ranks has reach {}", name(), verb, region_name(plan_, region),
             to_string(reach));
  }

  void check_shapes(const Task& task) {
    switch (task.kind) {
      case TaskKind::compute:
      case TaskKind::gemm_call:
        return check_compute(task);
      case TaskKind::copy:
        for (const Write& write : task.writes) {
          if (dtype_of(write.to) != dtype_of(task.reads[0]))
            refuse("{} copies {} to {}: dtypes {} and {} differ", name(), region_name(plan_, task.reads[0]),
                   region_name(plan_, write.to), to_string(dtype_of(task.reads[0])), to_string(dtype_of(write.to)));
        }
        return;
      case TaskKind::reduce:
        for (const Region& read : task.reads) {
          if (read.rows != task.reads[0].rows || read.cols != task.reads[0].cols)
            refuse("{} sums {} and {}, of different shapes", name(), region_name(plan_, task.reads[0]),
                   region_name(plan_, read));
          check_number(read);
        }
        for (const Write& write : task.writes) check_number(write.to);
        return;
      case TaskKind::fill:
      case TaskKind::sync:
      case TaskKind::collective_call:
        return;
    }
  }

  void check_compute(const Task& task) {
    for (const Write& write : task.writes) {
      if (!is_norm(task) && !has_several_results(task)) check_number(write.to);
    }
    if (is_norm(task) && wanted_.norm != task.norm)
      refuse("{} applies the norm {}, the problem's is {}", name(), to_string(task.norm),
             wanted_.norm ? to_string(*wanted_.norm) : "none");
    if (is_norm(task)) check_rows_of_norm(task);
    if (facts_of(task.body).multiplies || is_grouped_gemm(task)) check_layout(task);
    if (task.body == Body::route) check_route(task);
    if (task.body == Body::pool && task.reads.size() == 3) check_sum_of_experts(task);
    if (task.body == Body::grouped_gemm) check_experts(task);
    for (const std::string& clause : proof_of(task.body).broken(plan_, task)) refuse("{} {}", name(), clause);
  }

  void check_layout(const Task& task) {
    if (wanted_.b_layout && task.gemm.b_layout != *wanted_.b_layout)
      refuse("{} takes {} as {}, the problem's layout is {}", name(), region_name(plan_, task.reads[1]),
             to_string(task.gemm.b_layout), to_string(*wanted_.b_layout));
  }

  /// Groups of a rank in the problem.
  [[nodiscard]] int64_t groups_of(int rank) const {
    return rank < std::ssize(wanted_.routes) ? std::ssize(wanted_.routes[rank].groups) : 0;
  }

  /// A sum of experts takes the rows of all groups of a rank, of one shard of the tokens or of several.
  void check_sum_of_experts(const Task& task) {
    const Region& table = task.reads[0];
    const int64_t groups = groups_of(table.rank);
    const int64_t each = std::max<int64_t>(1, groups);
    const bool whole =
        groups == 0 ? table.rows == 0 : table.rows > 0 && table.row % each == 0 && table.rows % each == 0;
    if (!is_grouped(plan_.buffers[table.buffer]) || !whole)
      refuse("{} sums {} by weight: want the {} groups of rank {}, of one shard of the tokens or several", name(),
             region_name(plan_, table), groups, table.rank);
  }

  /// Tokens of all ranks.
  [[nodiscard]] int64_t num_tokens() const {
    int64_t tokens = 0;
    for (const Meaning& meaning : wanted_.meanings) {
      if (meaning.role == Role::topk_ids) tokens += shape_on(plan_.buffers[meaning.buffer], meaning.rank).rows;
    }
    return tokens;
  }

  void check_route(const Task& task) {
    if (rank() >= std::ssize(wanted_.routes)) return refuse("{} routes: the problem has no experts", name());
    RouteParams wanted = wanted_.routes[rank()];
    wanted.align = task.route->align;
    wanted.shards = task.route->shards;
    if (wanted.shards != 1 && wanted.shards != plan_.team.num_ranks)
      refuse("{} routes {} shards of tokens, want 1 or {}", name(), wanted.shards, plan_.team.num_ranks);
    if (task.writes[0].to.rank != rank()) refuse("{} routes to groups of rank {}", name(), task.writes[0].to.rank);
    if ((wanted.max_rows > 0 || num_shared(wanted) > 0) && task.reads[0].rows != num_tokens())
      refuse("{} routes {} of {} tokens with max_rows or shared experts", name(), task.reads[0].rows, num_tokens());
    if (task.route != wanted)
      refuse("{} routes by {}, the experts of rank {} are {}", name(), to_string(*task.route), rank(),
             to_string(wanted));
  }

  /// The B's are inputs, and the first product has the problem's activation.
  void check_experts(const Task& task) {
    const Region& b = task.reads[1];
    const auto meaning = std::ranges::find_if(wanted_.meanings, [&](const Meaning& one) {
      return one.buffer == b.buffer && one.rank == b.rank && (one.role == Role::w13 || one.role == Role::w2);
    });
    if (meaning == wanted_.meanings.end())
      return refuse("{} multiplies groups by {}, which is neither w13 nor w2", name(), region_name(plan_, b));
    // The B of a group is the rank's part of w13 or w2 over its groups.
    const int64_t lines = shape_on(plan_.buffers[b.buffer], b.rank).rows / std::max<int64_t>(1, groups_of(b.rank));
    if (lines == 0 || b.rows != task.reads[0].rows * lines || b.row % lines != 0)
      refuse("{} multiplies {} groups by {}: want {} rows for each", name(), task.reads[0].rows, region_name(plan_, b),
             lines);
    const Activation wanted = meaning->role == Role::w13 ? wanted_.activation : Activation::none;
    if (task.activation != wanted)
      refuse("{} applies the activation {} behind {}, want {}", name(), to_string(task.activation),
             to_string(meaning->role), to_string(wanted));
  }

  /// A norm takes whole rows of the output, after its rounding.
  void check_rows_of_norm(const Task& task) {
    const auto meaning = std::ranges::find(wanted_.meanings, Role::normed, &Meaning::role);
    if (meaning == wanted_.meanings.end()) return;
    const Buffer& normed = plan_.buffers[meaning->buffer];
    const Region& rows = task.reads[0];
    if (rows.cols != normed.cols)
      refuse("{} normalises {}, not whole rows of {} columns", name(), region_name(plan_, rows), normed.cols);
    const auto is_sum = [this](const Meaning& of) {
      return of.role == Role::partial && plan_.buffers[of.buffer].scope == Scope::output;
    };
    const auto output = std::ranges::find_if(wanted_.meanings, is_sum);
    const DType rounded = plan_.buffers[output == wanted_.meanings.end() ? meaning->buffer : output->buffer].dtype;
    if (dtype_of(rows) != rounded)
      refuse("{} normalises {} of {}: a norm takes the output after its rounding to {}", name(),
             region_name(plan_, rows), to_string(dtype_of(rows)), to_string(rounded));
  }

  void check_number(const Region& region) {
    if (!is_number(dtype_of(region)))
      refuse("{} computes with {}, which is {}", name(), region_name(plan_, region), to_string(dtype_of(region)));
  }

  void check_epilogue(const Task& task) {
    if (task.epilogue.empty()) return;
    if (task.kind != TaskKind::compute && task.kind != TaskKind::gemm_call && task.kind != TaskKind::reduce)
      return refuse("{} has an epilogue: only computing and reducing tasks can", name());
    const auto same = [](const EpilogueStep& step, const Epilogue& asked) {
      return step.kind == asked.kind && (step.kind != EpilogueKind::scale || step.value == asked.value);
    };
    if (!std::ranges::equal(task.epilogue, wanted_.epilogue, same))
      return refuse("{}: its epilogue of {} steps is not the problem's, of {} steps", name(), task.epilogue.size(),
                    wanted_.epilogue.size());
    const Shape result = result_shape(task);
    for (const EpilogueStep& step : task.epilogue) {
      if (step.kind == EpilogueKind::bias && (step.operand->rows != 1 || step.operand->cols != result.cols))
        refuse("{} adds {} as bias to {} columns", name(), region_name(plan_, *step.operand), result.cols);
      if (step.kind == EpilogueKind::residual && Shape{step.operand->rows, step.operand->cols} != result)
        refuse("{} adds {} as residual to {} x {}", name(), region_name(plan_, *step.operand), result.rows,
               result.cols);
    }
  }

  const Tasks& tasks_;
  const Plan& plan_;
  const Specification& wanted_;
  Report& report_;
  int t_ = 0;
};

}  // namespace

void check_structure(const Tasks& tasks, const Specification& wanted, Report& report) {
  const int num_ranks = tasks.plan.team.num_ranks;
  if (num_ranks > kMostRanks)
    report.add(Rule::unsupported, "{} ranks: the checker knows at most {}", num_ranks, kMostRanks);
  StructureCheck check(tasks, wanted, report);
  for (int t = 0; t < tasks.size(); ++t) check.check_task(t);
}

}  // namespace tilewire::checking
