// GEMM + AllToAll of rows: every rank multiplies its rows of A by a B of its own. Each rank then gets its block of rows
// of every rank's result. Listed in operators.cpp.
#include "operators/gemm_all_to_all_rows/gemm_all_to_all_rows.hpp"

#include "operators/exchange.hpp"

namespace tilewire {

Operator gemm_all_to_all_rows() {
  return {.name = "gemm_all_to_all_rows",
          .summary = "C = all_to_all(A[shard] * B) of row blocks: A sharded by rows, each rank its own B",
          .structure = {.after = Collective::all_to_all},
          .validate = [](const Problem&, int) {},
          .buffers = exchange_buffers,
          .meanings = exchange_meanings,
          .least_bytes = exchange_least_bytes,
          .reference = exchange_reference};
}

}  // namespace tilewire
