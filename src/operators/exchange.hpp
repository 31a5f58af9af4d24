// Common code of operators that exchange the blocks of their products: which block goes to which rank, the buffers,
// their meanings, and the reference.
// Called by the folders of GEMM + AllToAll and by the planners of an exchange.
#pragma once

#include <cstdint>
#include <vector>

#include "tilewire/problem.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire {

/// The block of one rank's product that goes to one rank. Its rows and columns are those of the product.
struct ExchangedBlock {
  Range rows;
  Range cols;
  Shape at;  ///< row and column of the block's first element in the output of its owner
};

/// The blocks of a problem that exchanges its product: each owner's columns of all rows, or each owner's rows
/// (Structure::by_columns).
class Exchange {
 public:
  Exchange(const Problem& problem, int num_ranks);

  /// Rows and columns of what a rank makes.
  [[nodiscard]] Shape made_by(int maker) const;
  /// What `owner` gets of that.
  [[nodiscard]] ExchangedBlock block(int maker, int owner) const;
  /// Rows and columns of a rank's output.
  [[nodiscard]] Shape output_of(int owner) const;

 private:
  [[nodiscard]] int64_t rows_before(int maker, int owner) const;

  int64_t m_;
  int64_t n_;
  int num_ranks_;
  bool by_columns_;
};

/// The buffers of the operator: a, b, operands of the epilogue, c.
[[nodiscard]] std::vector<Buffer> exchange_buffers(const Problem& problem, int num_ranks);
/// Their meanings. If blocks of rows are exchanged, each rank has a B of its own: these stand side by side as the
/// columns of one B of all ranks, so that an element of the output names the rank whose B made it.
[[nodiscard]] std::vector<Meaning> exchange_meanings(const Problem& problem, int num_ranks);
/// Every rank sends the blocks of all other owners.
[[nodiscard]] int64_t exchange_least_bytes(const Problem& problem, int num_ranks);
/// The reference result in plain loops.
void exchange_reference(const Problem& problem, const std::vector<std::vector<Tensor>>& tensors);

}  // namespace tilewire
