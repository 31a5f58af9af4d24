// Random inputs that every rank can reproduce element by element: a function of the seed, the buffer and the position
// in the global tensor. Used by the bench, by verification and by tests.
#pragma once

#include <cstdint>
#include <functional>

#include "tilewire/check.hpp"
#include "tilewire/problem.hpp"
#include "tilewire/tensor.hpp"

namespace tilewire {

/// Writes all columns of row `row` of `rank`'s callers' buffer number `buffer` to `to`.
using ReadRow = std::function<void(int buffer, int rank, int64_t row, float* to)>;

/// Make `n` elements of row `row`, from column `col` on, of a random matrix: uniform in [-1, 1), rounded to `dtype`.
/// Matrices of different `stream` are independent.
void random_row(uint64_t stream, int64_t row, int64_t col, int64_t n, DType dtype, float* to);

/// The stream of the global tensor behind a caller's buffer. Ranks that hold the same element of A, B or a bias get the
/// same value. Partial sums differ by rank.
[[nodiscard]] uint64_t random_stream(uint64_t seed, const Meaning& meaning);

/// A reader of the random inputs of a problem; it throws Error(unsupported) for buffers of indices.
[[nodiscard]] ReadRow random_inputs(const Problem& problem, int num_ranks, uint64_t seed);

/// Fill `tensor`, the input number `buffer` of `rank`.
void fill_rows(const ReadRow& read, int buffer, int rank, const Tensor& tensor);

}  // namespace tilewire
