// Plans of mixture of experts. All ranks get all tokens; each one puts those of its experts into groups, multiplies the
// groups, adds a token's rows by weight, and sends the sum to the token's owner, which adds up the ranks.
// Called by fused.cpp and sequential.cpp.
#include "schedules/routed.hpp"

#include <algorithm>

#include "core/grouped_tasks.hpp"
#include "operators/experts.hpp"
#include "schedules/builder.hpp"
#include "schedules/knobs.hpp"
#include "schedules/ranges.hpp"
#include "schedules/tile_order.hpp"

namespace tilewire {
namespace {

/// Groups begin at multiples of so many rows, which suits the stores of tiles.
constexpr int64_t kAlign = 8;
/// Tokens that one task sums, so that many workers can share them.
constexpr int64_t kTokensOfSum = 16;

class RoutedPlanner {
 public:
  RoutedPlanner(const Problem& problem, const Team& team, const Config& config, bool overlaps)
      : build_(problem, team, config),
        n_(team.num_ranks),
        overlaps_(overlaps),
        routes_(routes_of(problem, team.num_ranks)) {
    for (RouteParams& route : routes_) route.align = kAlign;
  }

  Plan make() {
    add_buffers();
    add_signals();
    for (int rank = 0; rank < n_; ++rank) add_rank(rank);
    return build_.take();
  }

 private:
  [[nodiscard]] const Problem& problem() const { return build_.problem(); }
  [[nodiscard]] const Config& config() const { return build_.config(); }
  [[nodiscard]] const Experts& experts() const { return *problem().experts; }
  [[nodiscard]] Range tokens_of(int rank) const { return shard_of(problem().m, n_, rank); }
  [[nodiscard]] int64_t groups_of(int rank) const { return std::ssize(routes_[rank].groups); }

  /// The groups of a rank that one task takes.
  [[nodiscard]] std::vector<Range> families_of(int rank) const { return cuts({0, groups_of(rank)}, overlaps_ ? 1 : 0); }
  /// The tokens of a rank, in parts that one task sums.
  [[nodiscard]] std::vector<Range> token_parts(int rank) const {
    return cuts({0, tokens_of(rank).size()}, kTokensOfSum);
  }
  /// The columns of the output that are summed together.
  [[nodiscard]] std::vector<Range> columns() const {
    return cuts({0, problem().n}, overlaps_ ? config().chunk_cols : 0);
  }

  int add_grouped(const std::string& name, DType dtype, int64_t cols) {
    const int buffer = build_.add_buffer(name, dtype, most_groups_, cols, Scope::local);
    build_.make_grouped(buffer, extents_, most_rows_, shapes_of(cols, groups_));
    return buffer;
  }
  /// A shape for each rank: rows x cols.
  [[nodiscard]] static std::vector<Shape> shapes_of(int64_t cols, const std::vector<int64_t>& rows) {
    std::vector<Shape> shapes;
    for (const int64_t of_rank : rows) shapes.push_back({of_rank, cols});
    return shapes;
  }

  void add_buffers() {
    for (int rank = 0; rank < n_; ++rank) {
      groups_.push_back(groups_of(rank));
      most_groups_ = std::max(most_groups_, groups_of(rank));
      most_rows_ = std::max(most_rows_, most_rows_of(routes_[rank], problem().m, experts().top_k));
    }
    const DType dtype = problem().dtype;
    const int64_t m = problem().m;
    if (n_ > 1) {
      all_x_ = build_.add_buffer("all_x", dtype, m, problem().k, Scope::symmetric);
      all_ids_ = build_.add_buffer("all_ids", DType::int32, m, experts().top_k, Scope::symmetric);
      all_weights_ = build_.add_buffer("all_weights", DType::fp32, m, experts().top_k, Scope::symmetric);
    }
    extents_ = build_.add_buffer("extents", DType::int32, 2, most_groups_, Scope::local);
    std::vector<Shape> extents;
    for (const int64_t groups : groups_) extents.push_back({2, groups});
    build_.set_shapes(extents_, extents);
    places_ = build_.add_buffer("places", DType::int32, m, experts().top_k, Scope::local);
    shares_ = build_.add_buffer("place_weights", DType::fp32, m, experts().top_k, Scope::local);
    tokens_ = add_grouped("tokens", DType::int32, 1);
    expert_x_ = add_grouped("expert_x", dtype, problem().k);
    expert_h_ = add_grouped("expert_h", dtype, experts().ffn);
    expert_y_ = add_grouped("expert_y", dtype, problem().n);
    const DType wire = config().wire.value_or(out_dtype_of(problem()));
    partial_ = build_.add_buffer("partial", wire, n_ * tokens_of(0).size(), problem().n, Scope::symmetric);
  }

  void add_signals() {
    const int chunks = static_cast<int>(columns().size());
    parts_ = static_cast<int>(token_parts(0).size());
    routable_ = build_.add_signals("ids_arrived", 1);
    arrived_ = build_.add_signals("x_arrived", 1);
    routed_ = build_.add_signals("routed", 1);
    const int families = static_cast<int>(most_groups_);
    grouped_ = build_.add_signals("grouped", families);
    hidden_ = build_.add_signals("hidden", families);
    made_ = build_.add_signals("made", chunks);
    landed_ = build_.add_signals("landed", chunks * parts_);
  }

  void add_rank(int rank) {
    const Engine engine = config().copy_workers > 0 ? Engine::serial : Engine::copy;
    const int exchange = build_.add_lane(rank, engine, "exchange", config().copy_workers);
    const int route = build_.add_lane(rank, Engine::serial, "route");
    const int gather = build_.add_lane(rank, Engine::reduce, "group", config().reduce_workers);
    const int tiles = build_.add_lane(rank, Engine::tiles, "tiles", config().tile_workers);
    const int sums = build_.add_lane(rank, Engine::reduce, "combine", config().reduce_workers);
    if (n_ > 1) add_exchange(rank, exchange);
    add_route(rank, route);
    add_groups(rank, gather);
    add_products(rank, tiles);
    add_sums(rank, sums);
  }

  /// Send own tokens to all ranks: their experts first.
  void add_exchange(int rank, int lane) {
    build_.say_ready(rank, lane);
    std::vector<int> peers = peers_after(n_, rank);
    peers.push_back(rank);
    const auto send = [&](const char* name, int to, int signal) {
      const int from = build_.buffer(name);
      for (const int peer : peers) {
        Task task{.kind = TaskKind::copy, .reads = {build_.whole(rank, from)}, .posts = {{{peer, signal}}}};
        const Range cols{0, task.reads[0].cols};
        task.writes = {{PlanBuilder::region(peer, to, tokens_of(rank), cols)}};
        if (peer != rank) task.waits = {build_.ready(rank, peer)};
        build_.add(lane, std::move(task));
      }
    };
    send("topk_ids", all_ids_, routable_);
    send("topk_weights", all_weights_, routable_);
    send("x", all_x_, arrived_);
  }

  /// All ranks' rows of an input.
  [[nodiscard]] Region all_of(int rank, const char* input, int gathered) const {
    return build_.whole(rank, n_ > 1 ? gathered : build_.buffer(input));
  }

  void add_route(int rank, int lane) {
    Task task{.kind = TaskKind::compute, .body = Body::route, .route = routes_[rank]};
    task.reads = {all_of(rank, "topk_ids", all_ids_), all_of(rank, "topk_weights", all_weights_)};
    task.writes = {{build_.whole(rank, extents_)},
                   {build_.whole(rank, tokens_)},
                   {build_.whole(rank, places_)},
                   {build_.whole(rank, shares_)}};
    if (n_ > 1) task.waits = {{{rank, routable_}, kAllPosts}};
    task.posts = {{{rank, routed_}}};
    build_.add(lane, std::move(task));
    // A rank without experts takes no tokens, but must not end before they have arrived.
    if (n_ > 1) build_.add(lane, {.kind = TaskKind::sync, .waits = {{{rank, arrived_}, kAllPosts}}});
  }

  void add_groups(int rank, int lane) {
    const std::vector<Range> families = families_of(rank);
    for (size_t i = 0; i < families.size(); ++i) {
      Task task{.kind = TaskKind::compute, .body = Body::pool};
      task.reads = {all_of(rank, "x", all_x_), PlanBuilder::region(rank, tokens_, families[i], {0, 1})};
      task.writes = {{PlanBuilder::region(rank, expert_x_, families[i], {0, problem().k})}};
      task.waits = {{{rank, routed_}}};
      if (n_ > 1) task.waits.push_back({{rank, arrived_}, kAllPosts});
      task.posts = {{{rank, grouped_ + static_cast<int>(i)}}};
      build_.add(lane, std::move(task));
    }
  }

  /// The B's of some groups.
  [[nodiscard]] Region matrices(int rank, const char* name, Range some) const {
    const Region all = build_.whole(rank, build_.buffer(name));
    const int64_t lines = all.rows / groups_of(rank);
    return PlanBuilder::region(rank, all.buffer, {some.begin * lines, some.end * lines}, {0, all.cols});
  }

  void add_products(int rank, int lane) {
    const std::vector<Range> families = families_of(rank);
    const auto product = [&](size_t i, int a, const char* b, Activation activation, int c, Range cols) {
      Task task{.kind = TaskKind::compute, .body = Body::grouped_gemm, .activation = activation};
      task.reads = {PlanBuilder::region(rank, a, families[i], {0, build_.plan().buffers[a].cols}),
                    matrices(rank, b, families[i])};
      task.writes = {{.to = PlanBuilder::region(rank, c, families[i], cols), .first_col = cols.begin}};
      return task;
    };
    for (size_t i = 0; i < families.size(); ++i) {
      Task task = product(i, expert_x_, "w13", experts().activation, expert_h_, {0, experts().ffn});
      task.waits = {{{rank, routed_}}, {{rank, grouped_ + static_cast<int>(i)}}};
      task.posts = {{{rank, hidden_ + static_cast<int>(i)}}};
      build_.add(lane, std::move(task));
    }
    const std::vector<Range> chunks = columns();
    for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
      for (size_t i = 0; i < families.size(); ++i) {
        Task task = product(i, expert_h_, "w2", Activation::none, expert_y_, chunks[chunk]);
        task.waits = {{{rank, routed_}}, {{rank, hidden_ + static_cast<int>(i)}}};
        task.posts = {{{rank, made_ + static_cast<int>(chunk)}}};
        build_.add(lane, std::move(task));
      }
    }
  }

  /// Sums of a rank's experts go to the owners of the tokens, the next rank's first; then the owner adds up the ranks.
  void add_sums(int rank, int lane) {
    std::vector<int> owners = peers_after(n_, rank);
    owners.push_back(rank);
    const std::vector<Range> chunks = columns();
    for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
      for (const int owner : owners) {
        const std::vector<Range> parts = token_parts(owner);
        for (size_t part = 0; part < parts.size(); ++part)
          add_sum_of_experts(rank, lane, owner, parts[part], chunks[chunk], landed(owner, chunk, part), chunk);
      }
      const std::vector<Range> parts = token_parts(rank);
      for (size_t part = 0; part < parts.size(); ++part) {
        Task sum{.kind = TaskKind::reduce};
        for (int from = 0; from < n_; ++from) sum.reads.push_back(partials(rank, from, parts[part], chunks[chunk]));
        sum.writes = {{PlanBuilder::region(rank, build_.buffer("c"), parts[part], chunks[chunk])}};
        sum.waits = {{landed(rank, chunk, part), kAllPosts}};
        build_.add(lane, std::move(sum));
      }
    }
  }

  void add_sum_of_experts(int rank, int lane, int owner, Range tokens, Range cols, Signal landed, size_t chunk) {
    const Range of_all{tokens_of(owner).begin + tokens.begin, tokens_of(owner).begin + tokens.end};
    Task task{.kind = TaskKind::compute, .body = Body::pool};
    task.reads = {PlanBuilder::region(rank, expert_y_, {0, groups_of(rank)}, cols),
                  PlanBuilder::region(rank, places_, of_all, {0, experts().top_k}),
                  PlanBuilder::region(rank, shares_, of_all, {0, experts().top_k})};
    task.writes = {{partials(owner, rank, tokens, cols)}};
    task.waits = {{{rank, routed_}}};
    // A rank without experts makes nothing.
    if (groups_of(rank) > 0) task.waits.push_back({{rank, made_ + static_cast<int>(chunk)}, kAllPosts});
    if (owner != rank) task.waits.push_back(build_.ready(rank, owner));
    task.posts = {{landed}};
    build_.add(lane, std::move(task));
  }

  /// Counts the ranks' sums of a part of an owner's tokens.
  [[nodiscard]] Signal landed(int owner, size_t chunk, size_t part) const {
    return {owner, landed_ + static_cast<int>(chunk) * parts_ + static_cast<int>(part)};
  }

  /// What `from` sums for some tokens of `owner`, there.
  [[nodiscard]] Region partials(int owner, int from, Range tokens, Range cols) const {
    const int64_t first = from * tokens_of(0).size();
    return PlanBuilder::region(owner, partial_, {first + tokens.begin, first + tokens.end}, cols);
  }

  PlanBuilder build_;
  int n_;
  bool overlaps_;
  std::vector<RouteParams> routes_;
  std::vector<int64_t> groups_{};
  int64_t most_groups_ = 0;
  int64_t most_rows_ = 0;
  int all_x_ = -1;
  int all_ids_ = -1;
  int all_weights_ = -1;
  int extents_ = -1;
  int tokens_ = -1;
  int places_ = -1;
  int shares_ = -1;
  int expert_x_ = -1;
  int expert_h_ = -1;
  int expert_y_ = -1;
  int partial_ = -1;
  int routable_ = -1;
  int arrived_ = -1;
  int routed_ = -1;
  int grouped_ = -1;
  int hidden_ = -1;
  int made_ = -1;
  int landed_ = -1;
  int parts_ = 0;  ///< of the tokens of rank 0, the most of any rank
};

}  // namespace

Plan make_routed_plan(const Problem& problem, const Team& team, const Config& config, bool overlaps) {
  return RoutedPlanner(problem, team, config, overlaps).make();
}

std::vector<Knob> knobs_of_experts() {
  return {{"wire", has_experts}, {"copy_workers", has_experts, "", "0, 1"}, {"reduce_workers", has_experts}};
}

}  // namespace tilewire
