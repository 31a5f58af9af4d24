// Plans whose collective is one call of the vendor's library, before or after the GEMM: what users run without
// tilewire. Called by sequential.cpp.
#include "schedules/collective.hpp"

#include "core/json_text.hpp"
#include "core/text.hpp"
#include "schedules/builder.hpp"
#include "schedules/knobs.hpp"
#include "tilewire/json.hpp"

namespace tilewire {
namespace {

DType wire_of(const Problem& problem, const Config& config) { return config.wire.value_or(out_dtype_of(problem)); }

/// Whether a sum of the library is not yet the output.
bool finishes(const Problem& problem, const Config& config) {
  return wire_of(problem, config) != out_dtype_of(problem) || !problem.epilogue.empty();
}

class CollectivePlanner {
 public:
  CollectivePlanner(const Problem& problem, const Team& team, const Config& config)
      : build_(problem, team, config), wire_(wire_of(problem, config)) {}

  Plan make() {
    if (gathers(problem()))
      add_gather();
    else if (exchanges(problem()))
      add_exchange();
    else
      add_reduction();
    return build_.take();
  }

 private:
  [[nodiscard]] const Problem& problem() const { return build_.problem(); }

  int add_library_lane(int rank) { return build_.add_lane(rank, Engine::library, "library"); }

  /// All rows of A by some columns of B.
  void add_product(int rank, int lane, int a, Range cols, const Region& to, std::vector<EpilogueStep> epilogue) {
    build_.add_product(lane, -1, build_.whole(rank, a), cols,
                       {.kind = TaskKind::gemm_call, .writes = {{to}}, .epilogue = std::move(epilogue)});
  }

  void add_gather() {
    const int gathered = problem().gathered_output
                             ? build_.buffer("gathered")
                             : build_.add_buffer("gather", problem().dtype, problem().m, problem().k, Scope::local);
    for (int rank = 0; rank < build_.num_ranks(); ++rank) {
      const int lane = add_library_lane(rank);
      build_.add(lane, {.kind = TaskKind::collective_call,
                        .collective = Collective::all_gather,
                        .reads = {build_.whole(rank, build_.buffer("a"))},
                        .writes = {{build_.whole(rank, gathered)}}});
      const Range rows{0, problem().m};
      for (const Range cols : columns_on(problem(), build_.num_ranks(), rank)) {
        if (cols.size() > 0)
          add_product(rank, lane, gathered, cols, build_.output(rank, rows, cols), build_.epilogue(rank, rows, cols));
      }
    }
  }

  /// A call of the GEMM for each owner's columns puts them where they are sent from; blocks of rows lie there.
  void add_exchange() {
    const int c = build_.buffer("c");
    const int ranks = build_.num_ranks();
    const int64_t rows = problem().m / ranks;
    const int parts = by_columns(problem()) ? ranks : 1;
    const int64_t cols = problem().n / parts;
    const int made = build_.add_buffer("made", out_dtype_of(problem()), parts * rows, cols, Scope::local);
    for (int rank = 0; rank < ranks; ++rank) {
      const int lane = add_library_lane(rank);
      for (int part = 0; part < parts; ++part) {
        const Range block{part * cols, (part + 1) * cols};
        add_product(rank, lane, build_.buffer("a"), block,
                    PlanBuilder::region(rank, made, {part * rows, (part + 1) * rows}, {0, cols}),
                    build_.epilogue(rank, {0, rows}, block));
      }
      build_.add(lane, {.kind = TaskKind::collective_call,
                        .collective = Collective::all_to_all,
                        .reads = {build_.whole(rank, made)},
                        .writes = {{build_.whole(rank, c)}}});
    }
  }

  /// What the library sums is the output, unless there is something to be done to it.
  void add_reduction() {
    const int output = build_.buffer(multiplies(problem()) ? "c" : "y");
    const int64_t m = problem().m;
    const int64_t n = problem().n;
    const int partial =
        multiplies(problem()) ? build_.add_buffer("partial", wire_, m, n, Scope::local) : build_.buffer("x");
    const bool more = finishes(problem(), build_.config());
    const int64_t rows = scatters(problem()) ? m / build_.num_ranks() : m;
    const int sum = more ? build_.add_buffer("sum", wire_, rows, n, Scope::local) : output;
    const int summed = more ? build_.add_signals("summed", 1) : 0;
    const int finished = problem().norm ? build_.add_signals("finished", 1) : -1;
    for (int rank = 0; rank < build_.num_ranks(); ++rank) {
      const int lane = add_library_lane(rank);
      if (multiplies(problem())) add_product(rank, lane, build_.buffer("a"), {0, n}, build_.whole(rank, partial), {});
      Task call{.kind = TaskKind::collective_call,
                .collective = scatters(problem()) ? Collective::reduce_scatter : Collective::all_reduce,
                .reads = {build_.whole(rank, partial)},
                .writes = {{build_.whole(rank, sum)}}};
      std::vector<Post> told;
      if (problem().norm) told = {{{rank, finished}}};
      call.posts = more ? std::vector<Post>{{{rank, summed}}} : told;
      build_.add(lane, std::move(call));
      if (more) add_finish(rank, sum, output, {{rank, summed}}, told);
      if (problem().norm)
        build_.add_norms(build_.add_lane(rank, Engine::reduce, "norm", build_.config().reduce_workers), output,
                         {0, rows}, {{rank, finished}, kAllPosts});
    }
  }

  /// Epilogue and type of the output, tile by tile.
  void add_finish(int rank, int sum, int output, const Wait& summed, const std::vector<Post>& told) {
    const int lane = build_.add_lane(rank, Engine::reduce, "finish", build_.config().reduce_workers);
    const Region all = build_.whole(rank, output);
    for (const Tile& tile : tile_grid(all.rows, all.cols, build_.config().tile_m, build_.config().tile_n)) {
      build_.add(lane, {.kind = TaskKind::reduce,
                        .reads = {PlanBuilder::region(rank, sum, tile.rows, tile.cols)},
                        .writes = {{PlanBuilder::region(rank, output, tile.rows, tile.cols)}},
                        .waits = {summed},
                        .posts = told,
                        .epilogue = build_.epilogue(rank, tile.rows, tile.cols)});
    }
  }

  PlanBuilder build_;
  DType wire_;
};

bool calls_collective(const Asked& a) { return a.config.collective == Provider::library; }

/// Whether the ranks' shares are equal: no call of the library takes others.
bool shares_are_equal(const Problem& problem, int ranks) {
  if (!all_reduces(problem) && problem.m % ranks != 0) return false;
  if (!exchanges(problem)) return true;
  return by_columns(problem) ? problem.n % ranks == 0 : problem.m / ranks % ranks == 0;
}

/// Of a gather or a sum: the library exchanges columns as blocks of rows.
bool moves_columns(const Asked& a) { return by_columns(a.problem) && !exchanges(a.problem); }

}  // namespace

std::vector<KnobRule> rules_of_collectives() {
  return {
      {"collective = library: one rank has nothing to exchange",
       [](const Asked& a) { return calls_collective(a) && a.team.num_ranks == 1; }},
      {"collective = library: the library gathers and scatters rows",
       [](const Asked& a) { return calls_collective(a) && moves_columns(a); }},
      {"collective = library: m, n or k is 0",
       [](const Asked& a) {
         return calls_collective(a) &&
                (a.problem.m == 0 || a.problem.n == 0 || (multiplies(a.problem) && a.problem.k == 0));
       }},
      {"collective = library: the library wants equal shares",
       [](const Asked& a) { return calls_collective(a) && !shares_are_equal(a.problem, a.team.num_ranks); },
       [](const Asked& a) {
         const bool of_rows = !by_columns(a.problem) || a.problem.m % a.team.num_ranks != 0;
         return fmt::format("{} {} on {} ranks are not", of_rows ? a.problem.m : a.problem.n,
                            of_rows ? "rows" : "columns", a.team.num_ranks);
       }},
      {"collective = library: the last rank has no part of K",
       [](const Asked& a) {
         const int ranks = a.team.num_ranks;
         return calls_collective(a) && multiplies(a.problem) && reduces(a.problem) &&
                shard_of(a.problem.k, ranks, ranks - 1).size() == 0;
       }},
      {"collective = library: needs compute = library, since waiting tiles would hold the SMs of the library's "
       "collective",
       [](const Asked& a) { return calls_collective(a) && multiplies(a.problem) && !by_library(a.config); }},
      {"collective = library: only compute, wire and reduce_workers have a meaning beside it",
       [](const Asked& a) {
         Config plain{.schedule = a.config.schedule};
         plain.compute = a.config.compute;
         plain.collective = a.config.collective;
         if (reduces(a.problem)) plain.wire = a.config.wire;
         if (reduces(a.problem)) plain.reduce_workers = a.config.reduce_workers;
         return calls_collective(a) && plain != a.config;
       },
       [](const Asked& a) {
         nlohmann::json knobs = a.config;
         for (const char* known : {"schedule", "compute", "collective"}) knobs.erase(known);
         return "got " + json_text(knobs);
       }},
      {"collective = library, wire: the library sums x as it is",
       [](const Asked& a) {
         return calls_collective(a) && all_reduces(a.problem) && !multiplies(a.problem) &&
                wire_of(a.problem, a.config) != a.problem.dtype;
       }},
      {"collective = library, reduce_workers: the library sums",
       [](const Asked& a) {
         return calls_collective(a) && reduces(a.problem) && a.config.reduce_workers > 0 &&
                !finishes(a.problem, a.config) && !a.problem.norm;
       }},
      {"collective = library: the library sums in an order of its own: needs reduction = any",
       [](const Asked& a) {
         return calls_collective(a) && reduces(a.problem) && a.problem.reduction == Reduction::repeatable;
       }},
  };
}

Plan make_collective_plan(const Problem& problem, const Team& team, const Config& config) {
  return CollectivePlanner(problem, team, config).make();
}

}  // namespace tilewire
