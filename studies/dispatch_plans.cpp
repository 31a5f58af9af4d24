// Plans of an all-to-all and a GEMM behind it: each rank's expert takes its rows from all ranks.
// Called by ficco_claims.cpp, claims_verb.cpp and tests.
#include "studies/dispatch_plans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/ceil_div.hpp"

namespace tilewire::cli {
namespace {

constexpr int kChunks = 8;      ///< of the rows that a rank sends to a peer
constexpr int64_t kTile = 256;  ///< rows and columns

Range part_of(int64_t rows, int parts, int part) { return {rows * part / parts, rows * (part + 1) / parts}; }

Region region(int rank, int buffer, Range rows, int64_t cols) {
  return {.rank = rank, .buffer = buffer, .row = rows.begin, .rows = rows.size(), .cols = cols};
}

/// The callers' buffers: for each rank `to` the rows for its expert, then b and c.
std::vector<Buffer> callers_buffers(const TokenDispatch& dispatch) {
  const int ranks = static_cast<int>(dispatch.rows.size());
  const auto buffer = [&](std::string name, Scope scope, std::vector<Shape> shapes) {
    Buffer made{.name = std::move(name), .dtype = DType::bf16, .cols = shapes[0].cols, .scope = scope};
    for (const Shape& shape : shapes) made.rows = std::max(made.rows, shape.rows);
    made.shapes = std::move(shapes);
    return made;
  };
  std::vector<Buffer> all;
  for (int to = 0; to < ranks; ++to) {
    std::vector<Shape> shapes;
    for (int from = 0; from < ranks; ++from)
      shapes.push_back({part_of(dispatch.rows[to], ranks, from).size(), dispatch.k});
    all.push_back(buffer(fmt::format("x_for_{}", to), Scope::input, shapes));
  }
  all.push_back(buffer("b", Scope::input, std::vector<Shape>(dispatch.rows.size(), {dispatch.n, dispatch.k})));
  std::vector<Shape> results;
  for (const int64_t rows : dispatch.rows) results.push_back({rows, dispatch.n});
  all.push_back(buffer("c", Scope::output, results));
  return all;
}

class DispatchPlanner {
 public:
  DispatchPlanner(const TokenDispatch& dispatch, DispatchWay way)
      : dispatch_(dispatch),
        way_(way),
        n_(static_cast<int>(dispatch.rows.size())),
        b_(n_),
        c_(n_ + 1),
        arrived_(n_ + 2) {
    plan_.op = "dispatch_gemm";
    plan_.team.num_ranks = n_;
    plan_.buffers = callers_buffers(dispatch);
    plan_.signals = {{"ready", 0, n_}, {"arrived", n_, n_}};
  }

  Plan make() {
    const int64_t most = std::ranges::max(dispatch_.rows);
    const bool calls_library = way_ == DispatchWay::serial;
    const int64_t padded = ceil_div(most, n_) * n_;
    add_workspace("arrived_x", calls_library ? padded : most, calls_library ? Scope::local : Scope::symmetric);
    if (calls_library) add_workspace("padded_x", padded, Scope::local);
    for (int rank = 0; rank < n_; ++rank) {
      if (calls_library) {
        add_serial(rank, padded);
        continue;
      }
      say_ready(rank);
      for (int lane = 0; lane < (at_once() ? n_ - 1 : 1); ++lane) add_sends(rank, lane);
      way_ == DispatchWay::tiles ? add_tiles(rank) : add_calls(rank);
    }
    return std::move(plan_);
  }

 private:
  [[nodiscard]] bool at_once() const { return way_ != DispatchWay::shards; }
  [[nodiscard]] int chunks() const { return at_once() ? kChunks : 1; }
  [[nodiscard]] Range rows_from(int rank, int from) const { return part_of(dispatch_.rows[rank], n_, from); }
  [[nodiscard]] Signal arrived(int rank, int from) const { return {rank, n_ + from}; }

  void add_workspace(const char* name, int64_t rows, Scope scope) {
    plan_.buffers.push_back({.name = name, .dtype = DType::bf16, .rows = rows, .cols = dispatch_.k, .scope = scope});
  }

  Lane& add_lane(int rank, Engine engine, const char* name) {
    return plan_.lanes.emplace_back(Lane{.rank = rank, .engine = engine, .name = name});
  }

  [[nodiscard]] Region weights(int rank, Range cols) const { return region(rank, b_, cols, dispatch_.k); }

  /// One call of the library each, for the exchange and for the product.
  void add_serial(int rank, int64_t padded) {
    Task exchange{.kind = TaskKind::collective_call, .collective = Collective::all_to_all};
    exchange.reads = {region(rank, arrived_ + 1, {0, padded}, dispatch_.k)};
    exchange.writes = {{.to = region(rank, arrived_, {0, padded}, dispatch_.k)}};
    exchange.posts = {{arrived(rank, rank)}};
    Task product = product_of(rank, region(rank, arrived_, {0, dispatch_.rows[rank]}, dispatch_.k), 0);
    product.waits = {{arrived(rank, rank)}};
    add_lane(rank, Engine::library, "exchange").tasks = {std::move(exchange)};
    add_lane(rank, Engine::library, "gemm").tasks = {std::move(product)};
  }

  /// A call of the library: rows times all columns, to c from row `row` on.
  [[nodiscard]] Task product_of(int rank, Region a, int64_t row) const {
    Task task{.kind = TaskKind::gemm_call};
    task.reads = {a, weights(rank, {0, dispatch_.n})};
    task.writes = {{.to = region(rank, c_, {row, row + a.rows}, dispatch_.n)}};
    return task;
  }

  void say_ready(int rank) {
    Task ready{.kind = TaskKind::sync};
    for (int step = 1; step < n_; ++step) ready.posts.push_back({{(rank + step) % n_, rank}});
    add_lane(rank, Engine::serial, "ready").tasks = {std::move(ready)};
  }

  /// The copies of a lane: to the peer after `lane` others, or to all peers in turn.
  void add_sends(int rank, int which) {
    Lane& lane = add_lane(rank, Engine::copy, "send");
    const int first = at_once() ? which + 1 : 1;
    const int last = at_once() ? which + 1 : n_ - 1;
    for (int step = first; step <= last; ++step) {
      const int to = (rank + step) % n_;
      const Range rows = rows_from(to, rank);
      for (int chunk = 0; chunk < chunks(); ++chunk) {
        const Range part = part_of(rows.size(), chunks(), chunk);
        Task copy{.kind = TaskKind::copy, .posts = {{arrived(to, rank)}}};
        copy.reads = {region(rank, to, part, dispatch_.k)};
        copy.writes = {{.to = region(to, arrived_, {rows.begin + part.begin, rows.begin + part.end}, dispatch_.k)}};
        copy.waits = {{.signal = {rank, to}, .purpose = Purpose::ready}};
        lane.tasks.push_back(std::move(copy));
      }
    }
  }

  /// Rows `part` of those that `from` has for `rank`: own ones in their place, others where they have arrived.
  [[nodiscard]] Region rows_at(int rank, int from, Range part) const {
    if (from == rank) return region(rank, rank, part, dispatch_.k);
    const int64_t first = rows_from(rank, from).begin;
    return region(rank, arrived_, {first + part.begin, first + part.end}, dispatch_.k);
  }

  /// A wait for as many chunks of a peer.
  [[nodiscard]] std::vector<Wait> after(int rank, int from, int chunks) const {
    if (from == rank) return {};
    return {{arrived(rank, from), chunks}};
  }

  void add_calls(int rank) {
    Lane& lane = add_lane(rank, Engine::library, "gemm");
    lane.tasks.push_back(
        product_of(rank, rows_at(rank, rank, {0, rows_from(rank, rank).size()}), rows_from(rank, rank).begin));
    for (int chunk = 0; chunk < chunks(); ++chunk) {
      for (int step = 1; step < n_; ++step) {
        const int from = (rank + n_ - step) % n_;
        const Range rows = rows_from(rank, from);
        const Range part = part_of(rows.size(), chunks(), chunk);
        Task call = product_of(rank, rows_at(rank, from, part), rows.begin + part.begin);
        call.waits = after(rank, from, chunk + 1);
        lane.tasks.push_back(std::move(call));
      }
    }
  }

  /// A row of tiles, and the chunks that it needs.
  struct RowOfTiles {
    int from = 0;
    Range part{};
    int chunks = 0;
  };

  /// Own rows first, then those of each round of chunks: of all peers together, column by column.
  void add_tiles(int rank) {
    Lane& lane = add_lane(rank, Engine::tiles, "tiles");
    std::vector<std::vector<RowOfTiles>> rounds(kChunks + 1);
    for (int step = 0; step < n_; ++step) {
      const int from = (rank + n_ - step) % n_;
      const int64_t rows = rows_from(rank, from).size();
      for (int64_t row = 0; row < rows; row += kTile) {
        const Range part{row, std::min(row + kTile, rows)};
        int needed = 0;
        while (step > 0 && needed < kChunks && (needed == 0 || part_of(rows, kChunks, needed - 1).end < part.end))
          ++needed;
        rounds[needed].push_back({from, part, needed});
      }
    }
    for (const std::vector<RowOfTiles>& round : rounds) {
      for (int64_t col = 0; col < dispatch_.n; col += kTile) {
        for (const RowOfTiles& each : round) {
          lane.tasks.push_back(tile(rank, each, {col, std::min(col + kTile, dispatch_.n)}));
        }
      }
    }
  }

  [[nodiscard]] Task tile(int rank, const RowOfTiles& row, Range cols) const {
    Task task{.kind = TaskKind::compute, .gemm = {.tile_m = kTile, .tile_n = kTile}};
    task.reads = {rows_at(rank, row.from, row.part), weights(rank, cols)};
    const int64_t first = rows_from(rank, row.from).begin;
    Region to = region(rank, c_, {first + row.part.begin, first + row.part.end}, cols.size());
    to.col = cols.begin;
    task.writes = {{.to = to}};
    task.waits = after(rank, row.from, row.chunks);
    return task;
  }

  const TokenDispatch& dispatch_;
  DispatchWay way_;
  int n_;
  int b_;
  int c_;
  int arrived_;
  Plan plan_{};
};

}  // namespace

Plan dispatch_plan(const TokenDispatch& dispatch, DispatchWay way) { return DispatchPlanner(dispatch, way).make(); }

Specification dispatch_specification(const TokenDispatch& dispatch) {
  const int ranks = static_cast<int>(dispatch.rows.size());
  Specification wanted{.buffers = callers_buffers(dispatch), .b_layout = BLayout::nk};
  int64_t first = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (int from = 0; from < ranks; ++from) {
      const int64_t row = first + part_of(dispatch.rows[rank], ranks, from).begin;
      wanted.meanings.push_back({.buffer = rank, .rank = from, .role = Role::a, .row = row});
    }
    wanted.meanings.push_back({.buffer = ranks, .rank = rank, .role = Role::b, .row = rank * dispatch.n});
    wanted.meanings.push_back({.buffer = ranks + 1,
                               .rank = rank,
                               .role = Role::partial,
                               .row = first,
                               .col = rank * dispatch.n,
                               .terms = {0, dispatch.k}});
    first += dispatch.rows[rank];
  }
  return wanted;
}

}  // namespace tilewire::cli
