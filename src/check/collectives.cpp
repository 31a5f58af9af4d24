// Checks calls of library collectives: the n-th calls of all ranks are the parts of one collective.
// Called by check.cpp.
#include <algorithm>

#include "check/proofs.hpp"
#include "tilewire/print.hpp"

namespace tilewire::checking {
namespace {

class CollectiveCheck {
 public:
  CollectiveCheck(const Tasks& tasks, Report& report) : tasks_(tasks), plan_(tasks.plan), report_(report) {}

  void run() {
    for (int t = 0; t < tasks_.size(); ++t) {
      if (tasks_.meeting[t] >= 0) check_call(t);
    }
    for (const auto& calls : tasks_.meetings) check_meeting(calls);
  }

 private:
  [[nodiscard]] const Region& from(int t) const { return tasks_.task[t]->reads[0]; }
  [[nodiscard]] const Region& to(int t) const { return tasks_.task[t]->writes[0].to; }
  [[nodiscard]] DType dtype_of(const Region& region) const { return plan_.buffers[region.buffer].dtype; }

  template <class... Args>
  void refuse(fmt::format_string<Args...> format, Args&&... args) {
    report_.add(Rule::structure, format, std::forward<Args>(args)...);
  }

  void check_call(int t) {
    const Task& task = *tasks_.task[t];
    const std::string name = tasks_.name(t);
    if (plan_.lanes[tasks_.lane[t]].engine != Engine::library)
      refuse("{}: a collective_call needs a lane of engine library", name);
    for (const auto& calls : tasks_.meetings) {
      for (const int other : calls) {
        if (other < t && tasks_.rank[other] == tasks_.rank[t] && tasks_.lane[other] != tasks_.lane[t])
          return refuse("{} and {} are in two lanes of one rank: their order is undefined", tasks_.name(other), name);
      }
    }
    if (task.collective == Collective::none) return refuse("{}: collective = none", name);
    for (const Region& region : {from(t), to(t)}) check_region(t, region);
    if (task.writes[0].mode != WriteMode::store || task.writes[0].first_row != 0 || task.writes[0].first_col != 0)
      refuse("{}: a collective_call stores its whole result", name);
    if (dtype_of(from(t)) != dtype_of(to(t)))
      refuse("{} takes {} and gives {}: dtypes differ", name, to_string(dtype_of(from(t))), to_string(dtype_of(to(t))));
    const bool sums = task.collective != Collective::all_gather && task.collective != Collective::all_to_all;
    if (sums && dtype_of(from(t)) == DType::int32)
      refuse("{} sums {}, which is int32", name, region_name(plan_, from(t)));
    check_shape(t);
  }

  void check_region(int t, const Region& region) {
    const std::string name = tasks_.name(t);
    if (region.rank != tasks_.rank[t])
      refuse("{}: {} is memory of another rank; a collective_call uses its own rank's", name,
             region_name(plan_, region));
    // NOTE: a rank with an empty part would not wait for the other ranks' parts.
    if (region.rows == 0 || region.cols == 0) refuse("{}: {} is empty", name, region_name(plan_, region));
    if (region.rows > 1 && region.cols != shape_on(plan_.buffers[region.buffer], region.rank).cols)
      refuse("{}: {} is not whole rows, one after the other in memory", name, region_name(plan_, region));
  }

  void check_shape(int t) {
    const int64_t n = plan_.team.num_ranks;
    const Collective kind = tasks_.task[t]->collective;
    const int64_t given = kind == Collective::all_gather ? n * from(t).rows : from(t).rows;
    const int64_t taken = kind == Collective::reduce_scatter ? n * to(t).rows : to(t).rows;
    if (kind == Collective::all_to_all && from(t).rows % n != 0)
      refuse("{}: {} has no {} equal parts", tasks_.name(t), region_name(plan_, from(t)), n);
    if (given != taken || from(t).cols != to(t).cols)
      refuse("{}: {} of {} on {} ranks does not give {}", tasks_.name(t), to_string(kind), region_name(plan_, from(t)),
             n, region_name(plan_, to(t)));
  }

  void check_meeting(const std::vector<int>& calls) {
    for (int rank = 0; rank < plan_.team.num_ranks; ++rank) {
      if (std::ranges::none_of(calls, [&](int t) { return tasks_.rank[t] == rank; }))
        refuse("{}: rank {} has no matching call", tasks_.name(calls[0]), rank);
    }
    for (const int t : calls) {
      const auto key = [&](int call) {
        return std::tuple(tasks_.task[call]->collective, dtype_of(from(call)), from(call).rows, from(call).cols);
      };
      if (key(t) == key(calls[0])) continue;
      refuse("{} is {} of {} x {} {}, {} is {} of {} x {} {}", tasks_.name(t), to_string(tasks_.task[t]->collective),
             from(t).rows, from(t).cols, to_string(dtype_of(from(t))), tasks_.name(calls[0]),
             to_string(tasks_.task[calls[0]]->collective), from(calls[0]).rows, from(calls[0]).cols,
             to_string(dtype_of(from(calls[0]))));
    }
  }

  const Tasks& tasks_;
  const Plan& plan_;
  Report& report_;
};

}  // namespace

void check_collectives(const Tasks& tasks, Report& report) { CollectiveCheck(tasks, report).run(); }

}  // namespace tilewire::checking
