// GEMM + AllToAll: every rank multiplies its rows of A by all of B. Each rank then gets its columns of all rows.
// Listed in operators.cpp.
#include "operators/gemm_all_to_all/gemm_all_to_all.hpp"

#include "operators/exchange.hpp"

namespace tilewire {

Operator gemm_all_to_all() {
  return {.name = "gemm_all_to_all",
          .summary = "C[:, shard] = all_to_all(A[shard] * B): A sharded by rows, B whole, C by columns",
          .structure = {.after = Collective::all_to_all, .by_columns = true},
          .validate = [](const Problem&, int) {},
          .buffers = exchange_buffers,
          .meanings = exchange_meanings,
          .least_bytes = exchange_least_bytes,
          .reference = exchange_reference};
}

}  // namespace tilewire
