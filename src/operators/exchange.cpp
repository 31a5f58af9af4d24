// Common code of operators that exchange the blocks of their products: which block goes to which rank, the buffers,
// their meanings, and the reference.
// Called by the folders of GEMM + AllToAll and by the planners of an exchange.
#include "operators/exchange.hpp"

#include <algorithm>

#include "operators/gemm.hpp"

namespace tilewire {

Exchange::Exchange(const Problem& problem, int num_ranks)
    : m_(problem.m), n_(problem.n), num_ranks_(num_ranks), by_columns_(structure_of(problem).by_columns) {}

Shape Exchange::made_by(int maker) const { return {shard_of(m_, num_ranks_, maker).size(), n_}; }

/// Rows that `owner` gets from the ranks before `maker`. By the ceiling rule all of these but the last have equal rows.
int64_t Exchange::rows_before(int maker, int owner) const {
  const int64_t each = shard_of(m_, num_ranks_, 0).size();
  if (each == 0) return 0;
  const int64_t full = std::min<int64_t>(maker, m_ / each);
  const int64_t rest = std::min(m_, maker * each) - full * each;
  return full * shard_of(each, num_ranks_, owner).size() + shard_of(rest, num_ranks_, owner).size();
}

ExchangedBlock Exchange::block(int maker, int owner) const {
  const Shape made = made_by(maker);
  if (by_columns_) return {{0, made.rows}, shard_of(n_, num_ranks_, owner), {shard_of(m_, num_ranks_, maker).begin, 0}};
  return {shard_of(made.rows, num_ranks_, owner), {0, n_}, {rows_before(maker, owner), 0}};
}

Shape Exchange::output_of(int owner) const {
  if (by_columns_) return {m_, shard_of(n_, num_ranks_, owner).size()};
  return {rows_before(num_ranks_, owner), n_};
}

std::vector<Buffer> exchange_buffers(const Problem& problem, int num_ranks) {
  const Exchange exchange(problem, num_ranks);
  std::vector<Shape> a;
  std::vector<Shape> made;
  std::vector<Shape> c;
  for (int rank = 0; rank < num_ranks; ++rank) {
    made.push_back(exchange.made_by(rank));
    a.push_back({made.back().rows, problem.k});
    c.push_back(exchange.output_of(rank));
  }
  std::vector<Buffer> all{
      sharded_buffer("a", problem.dtype, Scope::input, a),
      whole_buffer("b", problem.dtype, Scope::input, b_shape(problem, problem.n, problem.k)),
  };
  add_operands(problem, std::vector<Shape>(num_ranks, {1, problem.n}), made, all);
  all.push_back(sharded_buffer("c", out_dtype_of(problem), Scope::output, c));
  return all;
}

namespace {

/// The first column of a rank's B among the columns of all ranks' B.
int64_t first_column(const Problem& problem, int rank) {
  return has_own_b(structure_of(problem)) ? rank * problem.n : 0;
}

/// The meanings of a rank's output, each like `whole`: one if the output has columns of all rows, else one for each
/// rank that sends rows.
void add_output_meanings(const Problem& problem, int num_ranks, const Meaning& whole, std::vector<Meaning>& all) {
  const Exchange exchange(problem, num_ranks);
  const size_t before = all.size();
  for (int maker = 0; maker < num_ranks && has_own_b(structure_of(problem)); ++maker) {
    const ExchangedBlock block = exchange.block(maker, whole.rank);
    if (block.rows.size() == 0) continue;
    Meaning& meaning = all.emplace_back(whole);
    meaning.row = shard_of(problem.m, num_ranks, maker).begin + block.rows.begin;
    meaning.col = first_column(problem, maker);
    meaning.rows = {block.at.rows, block.at.rows + block.rows.size()};
  }
  if (all.size() > before) return;
  all.push_back(whole);
  all.back().col = exchange.block(whole.rank, whole.rank).cols.begin;
}

}  // namespace

std::vector<Meaning> exchange_meanings(const Problem& problem, int num_ranks) {
  const bool nk = problem.b_layout == BLayout::nk;
  std::vector<Meaning> all;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int64_t row = shard_of(problem.m, num_ranks, rank).begin;
    const int64_t col = first_column(problem, rank);
    int buffer = 0;
    all.push_back({.buffer = buffer++, .rank = rank, .role = Role::a, .row = row});
    all.push_back({.buffer = buffer++, .rank = rank, .role = Role::b, .row = nk ? col : 0, .col = nk ? 0 : col});
    add_operand_meanings(problem, rank, col, {row, col}, buffer, all);
    add_output_meanings(problem, num_ranks,
                        {.buffer = buffer,
                         .rank = rank,
                         .role = Role::partial,
                         .terms = {0, problem.k},
                         .finished = !problem.epilogue.empty()},
                        all);
  }
  return all;
}

int64_t exchange_least_bytes(const Problem& problem, int num_ranks) {
  const Exchange exchange(problem, num_ranks);
  int64_t kept = 0;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const ExchangedBlock own = exchange.block(rank, rank);
    kept += own.rows.size() * own.cols.size();
  }
  return (problem.m * problem.n - kept) * bytes_of(out_dtype_of(problem));
}

void exchange_reference(const Problem& problem, const std::vector<std::vector<Tensor>>& tensors) {
  const int num_ranks = static_cast<int>(tensors.size());
  const Exchange exchange(problem, num_ranks);
  for (int maker = 0; maker < num_ranks; ++maker) {
    const std::vector<Tensor>& mine = tensors[maker];
    DoubleMatrix made(mine[0].rows, problem.n);
    add_product(mine[0], by_rows_of_k(problem, mine[1]), made);
    apply_epilogue(problem, mine, made);
    for (int owner = 0; owner < num_ranks; ++owner) {
      const ExchangedBlock block = exchange.block(maker, owner);
      store_block(rows_of(made, block.rows), block.cols.begin, block.at.rows, tensors[owner].back());
    }
  }
}

}  // namespace tilewire
