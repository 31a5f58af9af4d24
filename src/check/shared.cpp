// Shared workspace: between a rank's calls no other rank touches what the rank's other operators may use. Called by
// check.cpp.
#include "check/proofs.hpp"
#include "core/text.hpp"

namespace tilewire::checking {
namespace {

class SharedCheck {
 public:
  SharedCheck(const Tasks& tasks, const Order& order, Report& report)
      : tasks_(tasks), plan_(tasks.plan), order_(order), report_(report) {}

  void run() {
    for (int t = 0; t < tasks_.size() && !report_.full(Rule::race); ++t) {
      const Task& task = *tasks_.task[t];
      for (const Region& read : task.reads) look_at(t, read);
      for (const Region& addend : task.addends) look_at(t, addend);
      for (const Write& write : task.writes) look_at(t, write.to);
      for (const EpilogueStep& step : task.epilogue) {
        if (step.operand) look_at(t, *step.operand);
      }
    }
  }

 private:
  void look_at(int t, const Region& region) {
    if (!plan_.buffers[region.buffer].shared || region.rank == tasks_.rank[t]) return;
    if (region.rows == 0 || region.cols == 0) return;
    const uint64_t owner = uint64_t{1} << region.rank;
    const bool early = (order_.begun[t] & owner) == 0;
    if (!early && (order_.ends[t] & owner) != 0) return;
    report_.add(Rule::race, "{} touches {}, which rank {}'s other operators use, {}", tasks_.name(t),
                region_name(plan_, region), region.rank,
                early ? "perhaps before its call has begun" : "perhaps after its call has ended");
  }

  const Tasks& tasks_;
  const Plan& plan_;
  const Order& order_;
  Report& report_;
};

}  // namespace

void check_shared(const Tasks& tasks, const Order& order, Report& report) { SharedCheck(tasks, order, report).run(); }

}  // namespace tilewire::checking
