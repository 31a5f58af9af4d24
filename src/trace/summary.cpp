// Busy and waiting time of lanes, and Flux's overlap efficiency.
// Called by the command line, the benchmarks and the tests.
#include <algorithm>
#include <limits>

#include "core/text.hpp"
#include "tilewire/trace.hpp"

namespace tilewire {

std::vector<LaneSummary> summarize(const Plan& plan, const Trace& trace) {
  std::vector<LaneSummary> lanes(plan.lanes.size());
  std::vector<int64_t> first(lanes.size(), std::numeric_limits<int64_t>::max());
  std::vector<int64_t> last(lanes.size(), std::numeric_limits<int64_t>::min());
  for (size_t i = 0; i < lanes.size(); ++i) lanes[i].lane = static_cast<int>(i);
  for (const TraceEvent& event : trace.events) {
    require(event.lane >= 0 && event.lane < std::ssize(lanes), "the trace names lane {}, but the plan has {} lanes",
            event.lane, lanes.size());
    LaneSummary& lane = lanes[event.lane];
    const int64_t within = event.sum_ns - event.sum_taken_ns;
    lane.busy_ns += event.end_ns - event.start_ns - within;
    lane.waiting_ns += event.start_ns - event.taken_ns + within;
    first[event.lane] = std::min(first[event.lane], event.taken_ns);
    last[event.lane] = std::max(last[event.lane], event.end_ns);
    lane.span_ns = last[event.lane] - first[event.lane];
  }
  return lanes;
}

double overlap_efficiency(double total_us, double gemm_us, double sequential_us) {
  const double exposed = sequential_us - gemm_us;
  if (!(exposed > 0)) return std::numeric_limits<double>::quiet_NaN();
  return 1 - (total_us - gemm_us) / exposed;
}

}  // namespace tilewire
