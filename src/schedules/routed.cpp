// Plans of mixture of experts, of the whole layer or some of its steps (ExpertSteps). All ranks get all tokens'
// experts, and route by themselves. The tokens go to groups at their experts' ranks (Dispatch), which multiply them. A
// token's rows are added by weight, first those of a rank, then the ranks. Called by fused.cpp and sequential.cpp.
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

/// Tokens that one task sums, so that many workers can share them.
constexpr int64_t kTokensOfSum = 16;
/// Tokens among which one task selects those to send.
constexpr int64_t kTokensOfCopy = 64;

class RoutedPlanner {
 public:
  RoutedPlanner(const Problem& problem, const Team& team, const Config& config, bool overlaps)
      : build_(problem, team, config),
        n_(team.num_ranks),
        overlaps_(overlaps),
        steps_(structure_of(problem).steps),
        dispatch_(team.num_ranks > 1 ? config.dispatch : Dispatch::all_gather),
        shards_(by_expert() ? n_ : 1),
        routes_(routes_of(problem, team.num_ranks)) {
    for (RouteParams& route : routes_) route.shards = shards_;
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
  [[nodiscard]] bool by_expert() const { return dispatch_ == Dispatch::per_expert; }
  [[nodiscard]] Range tokens_of(int rank) const { return shard_of(problem().m, n_, rank); }
  /// Length of a token's list of places.
  [[nodiscard]] int64_t width() const { return experts().top_k + experts().shared; }
  /// Groups of a shard of the tokens.
  [[nodiscard]] int64_t groups_of(int rank) const { return std::ssize(routes_[rank].groups); }

  /// Groups of one shard of the tokens that one task takes.
  struct Family {
    int number = 0;
    int shard = 0;
    Range experts;  ///< of the rank
    Range groups;
  };
  /// The families of a rank, of one shard after another.
  [[nodiscard]] std::vector<Family> families_of(int rank) const {
    std::vector<Family> families;
    for (int shard = 0; shard < shards_; ++shard) {
      const int64_t first = shard * groups_of(rank);
      for (const Range& experts : cuts({0, groups_of(rank)}, overlaps_ ? 1 : 0))
        families.push_back(
            {static_cast<int>(families.size()), shard, experts, {first + experts.begin, first + experts.end}});
    }
    return families;
  }
  /// The tokens of a rank, in parts that one task sums.
  [[nodiscard]] std::vector<Range> token_parts(int rank) const {
    return cuts({0, tokens_of(rank).size()}, kTokensOfSum);
  }
  /// The columns of the output that are summed together.
  [[nodiscard]] std::vector<Range> columns() const {
    return cuts({0, problem().n}, overlaps_ ? config().chunk_cols : 0);
  }

  /// The caller's buffer of this name, or -1.
  [[nodiscard]] int callers(const std::string& name) const {
    const std::vector<Buffer>& all = build_.plan().buffers;
    const auto found = std::ranges::find(all, name, &Buffer::name);
    return found == all.end() ? -1 : static_cast<int>(found - all.begin());
  }
  /// The caller's buffer, or workspace.
  int caller_or(const std::string& name, DType dtype, int64_t rows, int64_t cols, Scope scope) {
    const int given = callers(name);
    return given >= 0 ? given : build_.add_buffer(name, dtype, rows, cols, scope);
  }
  int add_grouped(const std::string& name, DType dtype, int64_t cols, Scope scope) {
    if (const int given = callers(name); given >= 0) return given;
    const int buffer = build_.add_buffer(name, dtype, most_groups_, cols, scope);
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
      groups_.push_back(num_groups(routes_[rank]));
      most_groups_ = std::max(most_groups_, groups_.back());
      most_rows_ = std::max(most_rows_, most_rows_of(routes_[rank], problem().m, experts().top_k));
    }
    const DType dtype = problem().dtype;
    const int64_t m = problem().m;
    // Peers address the groups if each token goes to its experts, and the places if its owner selects tokens.
    const Scope groups = by_expert() ? Scope::symmetric : Scope::local;
    const Scope lists = dispatch_ == Dispatch::all_gather ? Scope::local : Scope::symmetric;
    if (n_ > 1 && steps_.dispatch) {
      all_ids_ = build_.add_buffer("all_ids", DType::int32, m, experts().top_k, Scope::symmetric);
      all_weights_ = build_.add_buffer("all_weights", DType::fp32, m, experts().top_k, Scope::symmetric);
      if (!by_expert()) all_x_ = build_.add_buffer("all_x", dtype, m, problem().k, Scope::symmetric);
    }
    extents_ = callers("extents");
    if (extents_ < 0) {
      extents_ = build_.add_buffer("extents", DType::int32, 2, most_groups_, groups);
      std::vector<Shape> extents;
      for (const int64_t of_rank : groups_) extents.push_back({2, of_rank});
      build_.set_shapes(extents_, extents);
    }
    places_ = caller_or("places", DType::int32, m, width(), lists);
    shares_ = caller_or("place_weights", DType::fp32, m, width(), groups);
    if (steps_.dispatch) {
      tokens_ = add_grouped("tokens", DType::int32, 1, groups);
      expert_x_ = add_grouped("expert_x", dtype, problem().k, groups);
    }
    if (steps_.first || steps_.second) expert_h_ = add_grouped("expert_h", dtype, experts().ffn, Scope::local);
    if (!steps_.combine) return;
    expert_y_ = add_grouped("expert_y", dtype, problem().n, groups);
    const DType wire = config().wire.value_or(out_dtype_of(problem()));
    const Scope partials = by_expert() ? Scope::local : Scope::symmetric;
    partial_ = build_.add_buffer("partial", wire, n_ * tokens_of(0).size(), problem().n, partials);
  }

  void add_signals() {
    const int chunks = static_cast<int>(columns().size());
    parts_ = static_cast<int>(token_parts(0).size());
    const int families = static_cast<int>(most_groups_);
    if (steps_.dispatch) {
      routable_ = build_.add_signals("ids_arrived", 1);
      if (!by_expert()) arrived_ = build_.add_signals("x_arrived", 1);
      routed_ = build_.add_signals("routed", n_);
    }
    if (steps_.first) grouped_ = build_.add_signals("grouped", families);
    if (steps_.first && steps_.second) hidden_ = build_.add_signals("hidden", families);
    if (steps_.second) made_ = build_.add_signals("made", chunks * (by_expert() ? n_ : 1));
    if (steps_.combine) landed_ = build_.add_signals("landed", chunks * parts_);
    if (dispatch_ == Dispatch::per_rank) zeroed_ = build_.add_signals("zeroed", n_);
    if (by_expert()) taken_ = build_.add_signals("taken", 1);
  }

  void add_rank(int rank) {
    const bool copies = steps_.dispatch && config().copy_workers == 0;
    const Engine engine = copies ? Engine::copy : Engine::serial;
    const int exchange = build_.add_lane(rank, engine, "exchange", config().copy_workers);
    const int route = build_.add_lane(rank, Engine::serial, "route");
    const int gather = build_.add_lane(rank, Engine::reduce, "group", config().reduce_workers);
    const int tiles = build_.add_lane(rank, Engine::tiles, "tiles", config().tile_workers);
    const int sums = build_.add_lane(rank, Engine::reduce, "combine", config().reduce_workers);
    if (n_ > 1) build_.say_ready(rank, exchange);
    if (n_ > 1 && steps_.dispatch) add_exchange(rank, exchange);
    if (steps_.dispatch) add_route(rank, route);
    if (dispatch_ == Dispatch::per_rank) {
      add_selected(rank, gather);
      add_zeros(rank, sums);
    }
    if (steps_.dispatch) by_expert() ? add_groups_of_peers(rank, gather) : add_groups(rank, gather);
    add_products(rank, tiles);
    if (steps_.combine) add_sums(rank, sums);
  }

  /// The peers, the next one first, then the rank itself.
  [[nodiscard]] std::vector<int> peers_and(int rank) const {
    std::vector<int> ranks = peers_after(n_, rank);
    ranks.push_back(rank);
    return ranks;
  }

  /// Send own tokens to all ranks: their experts first.
  void add_exchange(int rank, int lane) {
    const auto send = [&](const char* name, int to, int signal, const std::vector<int>& targets) {
      const int from = build_.buffer(name);
      for (const int target : targets) {
        Task task{.kind = TaskKind::copy, .reads = {build_.whole(rank, from)}, .posts = {{{target, signal}}}};
        task.writes = {{own_rows_at(rank, target, to)}};
        if (target != rank) task.waits = {build_.ready(rank, target)};
        build_.add(lane, std::move(task));
      }
    };
    const std::vector<int> all = peers_and(rank);
    send("topk_ids", all_ids_, routable_, all);
    send("topk_weights", all_weights_, routable_, all);
    if (dispatch_ == Dispatch::all_gather) send("x", all_x_, arrived_, all);
    if (dispatch_ == Dispatch::per_rank) send("x", all_x_, arrived_, {rank});
  }

  /// The rows of a rank's tokens in a buffer of all tokens at `target`.
  [[nodiscard]] Region own_rows_at(int rank, int target, int buffer) const {
    return PlanBuilder::region(target, buffer, tokens_of(rank), {0, build_.plan().buffers[buffer].cols});
  }

  /// Send to each peer the tokens that have places there.
  void add_selected(int rank, int lane) {
    const int x = build_.buffer("x");
    for (const int peer : peers_after(n_, rank)) {
      for (const Range& part : cuts({0, tokens_of(rank).size()}, kTokensOfCopy)) {
        const auto rows_at = [&](int target, int buffer) {
          Region rows = own_rows_at(rank, target, buffer);
          rows.row += part.begin;
          rows.rows = part.size();
          return rows;
        };
        Task task{.kind = TaskKind::compute, .body = Body::select};
        task.reads = {PlanBuilder::region(rank, x, part, {0, problem().k}), rows_at(peer, places_)};
        task.writes = {{rows_at(peer, all_x_)}};
        task.waits = {routed(rank, peer)};
        task.posts = {{{peer, arrived_}}};
        build_.add(lane, std::move(task));
      }
    }
  }

  /// Peers add their sums to zeros, as they send none for tokens without places.
  void add_zeros(int rank, int lane) {
    for (const int peer : peers_after(n_, rank)) {
      Task task{.kind = TaskKind::fill, .posts = {{{peer, zeroed_ + rank}}}};
      task.writes = {{partials(rank, peer, {0, tokens_of(rank).size()}, {0, problem().n})}};
      build_.add(lane, std::move(task));
    }
  }

  /// Wait on `rank` until `peer` has routed.
  [[nodiscard]] Wait routed(int rank, int peer) const { return {{rank, routed_ + peer}}; }
  /// The same as the waits of a task; none if the handle of the routing is an input.
  [[nodiscard]] std::vector<Wait> after_routing(int rank, int peer) const {
    return steps_.dispatch ? std::vector{routed(rank, peer)} : std::vector<Wait>{};
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
    if (experts().drops) task.writes.push_back({build_.whole(rank, build_.buffer("dropped"))});
    if (n_ > 1) task.waits = {{{rank, routable_}, kAllPosts}};
    task.posts = {{{rank, routed_ + rank}}};
    if (dispatch_ != Dispatch::all_gather) {
      for (const int peer : peers_after(n_, rank)) task.posts.push_back({{peer, routed_ + rank}});
    }
    build_.add(lane, std::move(task));
    // A rank without experts takes no tokens, but must not end before they have arrived.
    if (n_ > 1 && !by_expert()) build_.add(lane, {.kind = TaskKind::sync, .waits = {{{rank, arrived_}, kAllPosts}}});
    // Nor may a rank end before the owners of tokens have read its results.
    if (by_expert()) build_.add(lane, {.kind = TaskKind::sync, .waits = {{{rank, taken_}, kAllPosts}}});
  }

  void add_groups(int rank, int lane) {
    for (const Family& family : families_of(rank)) {
      Task task = rows_to_groups(rank, family, all_of(rank, "x", all_x_));
      task.waits = {routed(rank, rank)};
      if (n_ > 1) task.waits.push_back({{rank, arrived_}, kAllPosts});
      build_.add(lane, std::move(task));
    }
  }

  /// Store own tokens in the groups of all ranks.
  void add_groups_of_peers(int rank, int lane) {
    const Region x = build_.whole(rank, build_.buffer("x"));
    for (const int target : peers_and(rank)) {
      for (const Family& family : families_of(target)) {
        if (family.shard != rank) continue;
        Task task = rows_to_groups(target, family, x);
        task.waits = {routed(rank, target)};
        build_.add(lane, std::move(task));
      }
    }
  }

  /// Store rows of `x` in a family of `rank`.
  [[nodiscard]] Task rows_to_groups(int rank, const Family& family, const Region& x) const {
    Task task{.kind = TaskKind::compute, .body = Body::pool};
    task.reads = {x, PlanBuilder::region(rank, tokens_, family.groups, {0, 1})};
    task.writes = {{PlanBuilder::region(rank, expert_x_, family.groups, {0, problem().k})}};
    if (steps_.first) task.posts = {{{rank, grouped_ + family.number}}};
    return task;
  }

  /// The B's of some groups.
  [[nodiscard]] Region matrices(int rank, const char* name, Range some) const {
    const Region all = build_.whole(rank, build_.buffer(name));
    const int64_t lines = all.rows / groups_of(rank);
    return PlanBuilder::region(rank, all.buffer, {some.begin * lines, some.end * lines}, {0, all.cols});
  }

  void add_products(int rank, int lane) {
    const std::vector<Family> families = families_of(rank);
    const auto product = [&](const Family& family, int a, const char* b, Activation activation, int c, Range cols) {
      Task task{.kind = TaskKind::compute, .body = Body::grouped_gemm, .activation = activation};
      task.reads = {PlanBuilder::region(rank, a, family.groups, {0, build_.plan().buffers[a].cols}),
                    matrices(rank, b, family.experts)};
      task.writes = {{.to = PlanBuilder::region(rank, c, family.groups, cols), .first_col = cols.begin}};
      task.waits = after_routing(rank, rank);
      return task;
    };
    for (const Family& family : families) {
      if (!steps_.first) break;
      Task task = product(family, expert_x_, "w13", experts().activation, expert_h_, {0, experts().ffn});
      task.waits.push_back({{rank, grouped_ + family.number}});
      if (steps_.second) task.posts = {{{rank, hidden_ + family.number}}};
      build_.add(lane, std::move(task));
    }
    if (!steps_.second) return;
    const std::vector<Range> chunks = columns();
    for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
      for (const Family& family : families) {
        Task task = product(family, expert_h_, "w2", Activation::none, expert_y_, chunks[chunk]);
        if (steps_.first) task.waits.push_back({{rank, hidden_ + family.number}});
        task.posts = {{made(by_expert() ? family.shard : rank, rank, chunk)}};
        build_.add(lane, std::move(task));
      }
    }
  }

  /// Counts the products of a rank for a chunk of columns: at the rank that sums them.
  [[nodiscard]] Signal made(int summing, int rank, size_t chunk) const {
    const auto number = static_cast<int>(chunk);
    return {summing, made_ + (by_expert() ? number * n_ + rank : number)};
  }

  /// A rank sums its experts for the owners of the tokens, the next rank first, or an owner those of all ranks. Then
  /// the owner adds up the ranks.
  void add_sums(int rank, int lane) {
    const std::vector<Range> chunks = columns();
    for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
      for (const int other : peers_and(rank)) {
        const int owner = by_expert() ? rank : other;
        const int from = by_expert() ? other : rank;
        const std::vector<Range> parts = token_parts(owner);
        for (size_t part = 0; part < parts.size(); ++part)
          build_.add(lane, sum_of_experts(from, owner, parts[part], chunks[chunk], landed(owner, chunk, part), chunk));
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

  /// Sum the experts of rank `from` for tokens of `owner`.
  [[nodiscard]] Task sum_of_experts(int from, int owner, Range tokens, Range cols, Signal landed, size_t chunk) {
    const Range of_all{tokens_of(owner).begin + tokens.begin, tokens_of(owner).begin + tokens.end};
    const int64_t first = by_expert() ? owner * groups_of(from) : 0;
    const int summing = by_expert() ? owner : from;
    Task task{.kind = TaskKind::compute, .body = Body::pool};
    task.reads = {PlanBuilder::region(from, expert_y_, {first, first + groups_of(from)}, cols),
                  PlanBuilder::region(from, places_, of_all, {0, width()}),
                  PlanBuilder::region(from, shares_, of_all, {0, width()})};
    task.writes = {{partials(owner, from, tokens, cols)}};
    task.waits = after_routing(summing, from);
    if (steps_.second) task.waits.push_back({made(summing, from, chunk), kAllPosts});
    task.posts = {{landed}};
    if (by_expert()) {
      task.posts.push_back({{from, taken_}});
    } else if (dispatch_ == Dispatch::per_rank && owner != from) {
      task.writes[0].mode = WriteMode::accumulate;
      task.waits.push_back({{from, zeroed_ + owner}});
    } else if (owner != from) {
      task.waits.push_back(build_.ready(from, owner));
    }
    return task;
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
  ExpertSteps steps_;
  Dispatch dispatch_;
  int shards_;
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
  int zeroed_ = -1;
  int taken_ = -1;
  int parts_ = 0;  ///< of the tokens of rank 0, the most of any rank
};

}  // namespace

Plan make_routed_plan(const Problem& problem, const Team& team, const Config& config, bool overlaps) {
  return RoutedPlanner(problem, team, config, overlaps).make();
}

std::vector<Knob> knobs_of_experts() {
  return {{"wire", combines_experts},
          {"dispatch", is_layer_of_experts, "all_gather, per_rank, per_expert"},
          {"copy_workers", dispatches_tokens, "", "0, 1"},
          {"reduce_workers", has_experts}};
}

}  // namespace tilewire
