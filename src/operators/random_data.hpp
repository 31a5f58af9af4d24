// Random inputs that any rank can make, or make again, element by element: a function of the seed, the
// buffer and the place in the global tensor. Used by the bench, by verification and by tests.
#pragma once

#include <cstdint>
#include <functional>

#include "tilewire/check.hpp"
#include "tilewire/problem.hpp"
#include "tilewire/tensor.hpp"

namespace tilewire {

/// Writes row `row` of `rank`'s copy of callers' buffer number `buffer` to `to`, all its columns.
using ReadRow = std::function<void(int buffer, int rank, int64_t row, float* to)>;

/// `n` elements of row `row`, from column `col` on, of a random matrix: uniform in [-1, 1), rounded to
/// `dtype`. Matrices of different `stream` are independent.
void random_row(uint64_t stream, int64_t row, int64_t col, int64_t n, DType dtype, float* to);

/// The stream of the global tensor that a caller's buffer is a part of. Ranks that hold the same
/// element of A, B or a bias see the same value; partial sums differ by rank.
[[nodiscard]] uint64_t random_stream(uint64_t seed, const Meaning& meaning);

/// Rows of the random inputs of a problem. Throws Error(unsupported) for inputs that are not numbers.
[[nodiscard]] ReadRow random_inputs(const Problem& problem, int num_ranks, uint64_t seed);

/// Fill `rank`'s input number `buffer`.
void fill_rows(const ReadRow& read, int buffer, int rank, const Tensor& tensor);

}  // namespace tilewire
