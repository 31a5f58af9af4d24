// Plans of a GEMM of each rank's expert and an all-to-all behind it: rows of the result go to the ranks of their
// tokens. Called by claims_verb.cpp and tests.
#include "studies/combine_plans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/ceil_div.hpp"

namespace tilewire::cli {
namespace {

constexpr int kA = 0;
constexpr int kB = 1;

/// The rows of an expert that are of tokens of `owner`.
Range rows_of(const Combine& combine, int owner) {
  return {combine.rows * owner / combine.ranks, combine.rows * (owner + 1) / combine.ranks};
}

/// The buffer for the rows of an expert, those that are the n-th copy.
int result_of(const Combine& combine, int expert, int copy) { return kB + 1 + expert * combine.copies + copy; }

/// The owner of the tokens whose n-th copy `rank` gets.
int owner_for(const Combine& combine, int rank, int copy) { return (rank - copy + combine.ranks) % combine.ranks; }

std::vector<Buffer> inputs(const Combine& combine) {
  const auto input = [&](const char* name, int64_t rows) {
    return Buffer{.name = name, .dtype = DType::bf16, .rows = rows, .cols = combine.k, .scope = Scope::input};
  };
  return {input("a", combine.rows), input("b", combine.n)};
}

std::vector<Buffer> callers_buffers(const Combine& combine) {
  std::vector<Buffer> all = inputs(combine);
  for (int expert = 0; expert < combine.ranks; ++expert) {
    for (int copy = 0; copy < combine.copies; ++copy) {
      Buffer result{.name = fmt::format("y_{}_of_{}", copy, expert), .dtype = DType::bf16, .cols = combine.n};
      result.scope = Scope::output;
      result.in_arena = true;
      for (int rank = 0; rank < combine.ranks; ++rank) {
        result.shapes.push_back({rows_of(combine, owner_for(combine, rank, copy)).size(), combine.n});
        result.rows = std::max(result.rows, result.shapes.back().rows);
      }
      all.push_back(std::move(result));
    }
  }
  return all;
}

Plan empty_plan(const Combine& combine) {
  Plan plan{.op = "gemm_combine"};
  plan.team.num_ranks = combine.ranks;
  plan.signals = {{"ready", 0, combine.ranks}, {"landed", combine.ranks, 1}};
  return plan;
}

class TilePlanner {
 public:
  TilePlanner(const Combine& combine, int64_t tile_m, int64_t tile_n)
      : combine_(combine), tile_m_(tile_m), tile_n_(tile_n), plan_(empty_plan(combine)) {
    plan_.buffers = callers_buffers(combine);
  }

  Plan make() {
    for (int rank = 0; rank < combine_.ranks; ++rank) {
      Lane tiles{.rank = rank, .engine = Engine::tiles, .name = "tiles"};
      for (int step = 1; step <= combine_.ranks; ++step) add_tiles(tiles, (rank + step) % combine_.ranks);
      plan_.lanes.push_back(std::move(tiles));
    }
    add_handshakes();
    return std::move(plan_);
  }

 private:
  [[nodiscard]] Signal landed(int rank) const { return {rank, combine_.ranks}; }

  /// The tiles whose first rows are of the tokens of `owner`.
  void add_tiles(Lane& lane, int owner) const {
    const Range rows = rows_of(combine_, owner);
    for (int64_t col = 0; col < combine_.n; col += tile_n_) {
      const Range cols{col, std::min(col + tile_n_, combine_.n)};
      for (int64_t row = ceil_div(rows.begin, tile_m_) * tile_m_; row < rows.end; row += tile_m_)
        lane.tasks.push_back(tile(lane.rank, {row, std::min(row + tile_m_, combine_.rows)}, cols));
    }
  }

  [[nodiscard]] Task tile(int rank, Range rows, Range cols) const {
    Task task{.kind = TaskKind::compute, .gemm = {.tile_m = tile_m_, .tile_n = tile_n_}};
    task.reads = {{rank, kA, rows.begin, rows.size(), 0, combine_.k},
                  {rank, kB, cols.begin, cols.size(), 0, combine_.k}};
    std::set<int> to;
    for (int owner = 0; owner < combine_.ranks; ++owner) {
      const Range all = rows_of(combine_, owner);
      const Range part{std::max(rows.begin, all.begin), std::min(rows.end, all.end)};
      for (int copy = 0; part.begin < part.end && copy < combine_.copies; ++copy) {
        const int there = (owner + copy) % combine_.ranks;
        const Region place{there,      result_of(combine_, rank, copy), part.begin - all.begin, part.size(), cols.begin,
                           cols.size()};
        task.writes.push_back({.to = place, .first_row = part.begin - rows.begin});
        to.insert(there);
      }
    }
    for (const int there : to) {
      task.posts.push_back({landed(there)});
      if (there != rank) task.waits.push_back({.signal = {rank, there}, .purpose = Purpose::ready});
    }
    return task;
  }

  /// A rank tells its peers that it has begun, and ends when all rows have come.
  void add_handshakes() {
    const std::vector<int64_t> totals = signal_totals(plan_);
    for (int rank = 0; rank < combine_.ranks; ++rank) {
      Task ready{.kind = TaskKind::sync};
      for (int to = 0; to < combine_.ranks; ++to) {
        if (to != rank) ready.posts.push_back({{to, rank}});
      }
      Task last{.kind = TaskKind::sync};
      const int64_t all = totals[signal_id(plan_, landed(rank))];
      if (all > 0) last.waits = {{landed(rank), all}};
      plan_.lanes.push_back({.rank = rank, .engine = Engine::serial, .name = "ready", .tasks = {ready, last}});
    }
  }

  const Combine& combine_;
  int64_t tile_m_;
  int64_t tile_n_;
  Plan plan_;
};

}  // namespace

Plan combine_in_turn(const Combine& combine) {
  Plan plan = empty_plan(combine);
  plan.buffers = inputs(combine);
  const int64_t sent = ceil_div(combine.rows * combine.copies, combine.ranks) * combine.ranks;
  const int made = static_cast<int>(plan.buffers.size());
  for (const char* name : {"made", "received"}) {
    plan.buffers.push_back(
        {.name = name, .dtype = DType::bf16, .rows = sent, .cols = combine.n, .scope = Scope::local});
  }
  for (int rank = 0; rank < combine.ranks; ++rank) {
    Task product{.kind = TaskKind::gemm_call};
    product.reads = {{rank, kA, 0, combine.rows, 0, combine.k}, {rank, kB, 0, combine.n, 0, combine.k}};
    product.writes = {{.to = {rank, made, 0, combine.rows, 0, combine.n}}};
    Task exchange{.kind = TaskKind::collective_call, .collective = Collective::all_to_all};
    exchange.reads = {{rank, made, 0, sent, 0, combine.n}};
    exchange.writes = {{.to = {rank, made + 1, 0, sent, 0, combine.n}}};
    plan.lanes.push_back({.rank = rank, .engine = Engine::library, .name = "library", .tasks = {product, exchange}});
  }
  return plan;
}

Plan combine_by_tiles(const Combine& combine, int64_t tile_m, int64_t tile_n) {
  return TilePlanner(combine, tile_m, tile_n).make();
}

Specification combine_specification(const Combine& combine) {
  Specification wanted{.buffers = callers_buffers(combine), .b_layout = BLayout::nk};
  for (int rank = 0; rank < combine.ranks; ++rank) {
    wanted.meanings.push_back({.buffer = kA, .rank = rank, .role = Role::a, .row = rank * combine.rows});
    wanted.meanings.push_back({.buffer = kB, .rank = rank, .role = Role::b, .row = rank * combine.n});
    for (int expert = 0; expert < combine.ranks; ++expert) {
      for (int copy = 0; copy < combine.copies; ++copy) {
        const Range rows = rows_of(combine, owner_for(combine, rank, copy));
        wanted.meanings.push_back({.buffer = result_of(combine, expert, copy),
                                   .rank = rank,
                                   .role = Role::partial,
                                   .row = expert * combine.rows + rows.begin,
                                   .col = expert * combine.n,
                                   .terms = {0, combine.k}});
      }
    }
  }
  return wanted;
}

}  // namespace tilewire::cli
