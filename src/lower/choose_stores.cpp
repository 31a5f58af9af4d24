// Chooses how finished tiles are stored: by tensor copies, by bulk copies, or by threads.
// Listed in lower.cpp.
#include "core/gemm_tasks.hpp"
#include "core/text.hpp"
#include "lower/passes.hpp"
#include "lower/tensor_cores.hpp"

namespace tilewire::lowering {
namespace {

Via via_of(const Plan& plan, int rank, const Task& tile, const Write& write, bool plain) {
  if (plain) return write.via == Via::bulk ? Via::bulk : Via::threads;
  if (!fits_tensor_store(plan, tile, write)) return Via::threads;
  // NOTE: only if the schedule asks for them: tensor stores to other GPUs delay the tensor loads behind them, and local
  // additions need the same scope as other GPUs' additions to the same elements.
  const bool meets_others = write.to.rank != rank || write.mode == WriteMode::accumulate;
  return meets_others && write.via != Via::tma ? Via::threads : Via::tma;
}

}  // namespace

std::string choose_stores(Plan& plan, const Target&) {
  if (const auto reason = slow_tiles(plan)) return "tiles run without tensor cores: " + *reason;
  int64_t by_tma = 0;
  int64_t by_bulk = 0;
  int64_t by_threads = 0;
  for (Lane& lane : plan.lanes) {
    if (lane.kernel > 0) continue;
    for (Task& task : lane.tasks) {
      if (!is_gemm_tile(task)) continue;
      const bool plain = leaves_by_bulk(task);
      for (Write& write : task.writes) {
        write.via = via_of(plan, lane.rank, task, write, plain);
        ++(write.via == Via::tma ? by_tma : write.via == Via::bulk ? by_bulk : by_threads);
      }
    }
  }
  return fmt::format("{} by tensor copies, {} by bulk copies, {} by threads", by_tma, by_bulk, by_threads);
}

}  // namespace tilewire::lowering
