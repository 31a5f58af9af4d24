// Groups of rows in plans: rules of tasks, what the checker refuses, and groups with fixed rows for the simulator.
// Built as part of the target `unit_check`.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "core/gemm_tasks.hpp"
#include "lower/fix_groups.hpp"
#include "schedules/parts.hpp"
#include "tilewire/check.hpp"
#include "tilewire/error.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/sim/sim.hpp"
#include "tilewire/spi/operator.hpp"
#include "unit/check_plans.hpp"

namespace tilewire {
namespace {

using check_plans::expect_accepted;

const Problem kLayer{
    .op = "moe", .m = 20, .n = 12, .k = 16, .dtype = DType::bf16, .experts = Experts{.count = 6, .top_k = 2, .ffn = 8}};

Plan layer(const char* schedule = "fused", int ranks = 2, Dispatch dispatch = Dispatch::all_gather) {
  return make_plan(kLayer, {.num_ranks = ranks}, {.schedule = schedule, .dispatch = dispatch});
}

/// Tasks of a rank with this body, in the order of lanes.
std::vector<Task*> tasks_of(Plan& plan, Body body, int rank = 0) {
  std::vector<Task*> found;
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      if (lane.rank == rank && task.kind == TaskKind::compute && task.body == body) found.push_back(&task);
    }
  }
  return found;
}

int buffer_of(const Plan& plan, const std::string& name) {
  const auto found = std::ranges::find(plan.buffers, name, &Buffer::name);
  return static_cast<int>(found - plan.buffers.begin());
}

/// A damaged plan is refused with this text.
void expect_damage_refused(const std::string& text, Plan plan, const std::function<void(Plan&)>& damage) {
  damage(plan);
  std::string all;
  try {
    for (const Violation& violation : check(plan).violations) all += violation.text + "\n";
  } catch (const Error& error) {
    all = error.what();
  }
  EXPECT_NE(all.find(text), std::string::npos) << "want: " << text << "\nhave: " << all;
}

void expect_refused(const std::string& text, const std::function<void(Plan&)>& damage, const char* schedule = "fused") {
  // "square": both layouts of w2 have the same shape.
  const bool square = std::string(schedule) == "square";
  Problem problem = kLayer;
  if (square) problem.n = problem.experts->ffn;
  expect_damage_refused(text, make_plan(problem, {.num_ranks = 2}, {.schedule = square ? "fused" : schedule}), damage);
}

TEST(Groups, PlansAreAccepted) {
  for (const char* schedule : {"fused", "sequential"}) {
    for (const int ranks : {1, 2, 3, 7}) {
      for (const Dispatch dispatch : {Dispatch::all_gather, Dispatch::per_rank, Dispatch::per_expert})
        expect_accepted(layer(schedule, ranks, dispatch));
    }
  }
}

TEST(Groups, ARoutingHasTheGroupsOfItsRank) {
  const auto route = [](Plan& plan) -> RouteParams& { return *tasks_of(plan, Body::route)[0]->route; };
  expect_refused("routes by", [&](Plan& plan) { route(plan).groups[1].expert = 5; });
  expect_refused("routes by", [&](Plan& plan) { route(plan).groups[0] = {0, 1, 2}; });
  expect_refused("routes by", [&](Plan& plan) { route(plan).first_group = 1; });
  expect_refused("want 2 x 2 of int32", [&](Plan& plan) { route(plan).groups.pop_back(); });
  expect_refused("replica 1 of 1", [&](Plan& plan) { route(plan).groups[0].replica = 1; });
  expect_refused("align = 0", [&](Plan& plan) { route(plan).align = 0; });
}

TEST(Groups, AProductTakesItsOwnMatrices) {
  expect_refused("of all ranks by", [](Plan& plan) {
    std::vector<Task*> products = tasks_of(plan, Body::grouped_gemm);
    std::swap(products[0]->reads[1], products[1]->reads[1]);
  });
  expect_refused("applies the activation",
                 [](Plan& plan) { tasks_of(plan, Body::grouped_gemm)[0]->activation = Activation::swiglu_pairs; });
  expect_refused("want groups, a B for each", [](Plan& plan) {
    tasks_of(plan, Body::grouped_gemm)[0]->reads[0] = {.buffer = buffer_of(plan, "x"), .rows = 3, .cols = 16};
  });
  expect_refused("their groups differ", [](Plan& plan) {
    Task& task = *tasks_of(plan, Body::grouped_gemm)[0];
    task.writes[0].to.row += 1;
  });
  expect_refused("a grouped GEMM takes all columns", [](Plan& plan) {
    Task& task = *tasks_of(plan, Body::grouped_gemm)[0];
    task.reads[0].cols = task.reads[1].cols = 8;
  });
}

TEST(Groups, ASumTakesThePlacesOfItsTokens) {
  // The sums of experts are the pools with weights.
  const auto sum = [](Plan& plan, size_t which) -> Task& {
    std::vector<Task*> pools = tasks_of(plan, Body::pool);
    std::erase_if(pools, [](const Task* task) { return task->reads.size() < 3; });
    return *pools[which];
  };
  expect_refused("adds the sum of contributions", [&](Plan& plan) {
    std::swap(sum(plan, 0).reads[1], sum(plan, 1).reads[1]);
    std::swap(sum(plan, 0).reads[2], sum(plan, 1).reads[2]);
  });
  expect_refused("other tokens", [&](Plan& plan) { std::swap(sum(plan, 0).reads[2], sum(plan, 1).reads[2]); });
  expect_refused("without weights", [&](Plan& plan) { sum(plan, 0).reads.pop_back(); });
  expect_refused("want the 3 groups", [&](Plan& plan) { sum(plan, 0).reads[0].rows -= 1; });
}

/// Plans that compute something else, each with one change.
TEST(Groups, ForgedPlansAreRefused) {
  const auto sum = [](Plan& plan) -> Task& {
    std::vector<Task*> pools = tasks_of(plan, Body::pool);
    return **std::ranges::find_if(pools, [](const Task* task) { return task->reads.size() == 3; });
  };
  const auto route = [](Plan& plan) -> Task& { return *tasks_of(plan, Body::route)[0]; };
  const auto product = [](Plan& plan, size_t which) -> Task& { return *tasks_of(plan, Body::grouped_gemm)[which]; };
  // The first expert of each token only.
  expect_refused("of 2 columns", [&](Plan& plan) { sum(plan).reads[1].cols = sum(plan).reads[2].cols = 1; });
  expect_refused("routes to", [&](Plan& plan) { route(plan).reads[0].cols = route(plan).reads[1].cols = 1; });
  // Half of an expert's lines for each group.
  expect_refused("want 16 rows for each", [&](Plan& plan) {
    product(plan, 0).reads[1].rows = 8;
    product(plan, 0).writes[0].to.cols = 4;
  });
  expect_refused("want 16 rows for each", [&](Plan& plan) { product(plan, 1).reads[1].row = 8; });
  // No experts at all.
  expect_refused("want the 3 groups of rank 0", [&](Plan& plan) { sum(plan).reads[0].rows = 0; });
  // Results of a routing elsewhere in their buffers.
  expect_refused("routes to", [&](Plan& plan) { route(plan).writes[2].first_row = 1; });
  expect_refused("routes to", [&](Plan& plan) { route(plan).writes[1].mode = WriteMode::accumulate; });
  expect_refused("routes to", [&](Plan& plan) {
    plan.buffers[buffer_of(plan, "tokens")].cols = 2;
    for (Shape& shape : plan.buffers[buffer_of(plan, "tokens")].shapes) shape.cols = 2;
  });
  // Some of the groups.
  expect_refused("their groups differ", [&](Plan& plan) { product(plan, 0).writes[0].to.rows = 0; });
  expect_refused("their groups differ", [&](Plan& plan) { tasks_of(plan, Body::pool)[0]->writes[0].to.rows = 0; });
  expect_refused(
      "the problem's layout is nk",
      [&](Plan& plan) {
        product(plan, 3).gemm.b_layout = BLayout::kn;  // w2: 8 x 8 of each expert
      },
      "square");
  expect_refused("a GEMM call with the body route", [&](Plan& plan) { route(plan).kind = TaskKind::gemm_call; });
  expect_refused("has room for", [&](Plan& plan) {
    for (Buffer& buffer : plan.buffers) buffer.most_rows = std::min<int64_t>(buffer.most_rows, 20);
  });
  expect_refused("of the same groups", [&](Plan& plan) { plan.buffers[buffer_of(plan, "expert_h")].most_rows -= 1; });
}

TEST(Groups, ReplicasCountTokensOfAllRanks) {
  Problem replicated = kLayer;
  replicated.experts->placement = {{0, 1, 2, 3}, {3, 4, 5}};
  Plan plan = make_plan(replicated, {.num_ranks = 2}, {.schedule = "fused"});
  expect_accepted(plan);
  // Rank 0 routes all tokens but the first.
  Task& route = *tasks_of(plan, Body::route)[0];
  for (Region& read : route.reads) read.row = 1, read.rows = 19;
  for (const size_t list : {2, 3}) route.writes[list].to.rows = 19;
  std::string all;
  for (const Violation& violation : check(plan).violations) all += violation.text + "\n";
  EXPECT_NE(all.find("2 replicas: they count from 0"), std::string::npos) << all;
}

/// Remove the waits of a body's tasks for a signal, on all ranks.
std::function<void(Plan&)> without_wait(Body body, const char* signal) {
  return [=](Plan& plan) {
    for (int rank = 0; rank < plan.team.num_ranks; ++rank) {
      for (Task* task : tasks_of(plan, body, rank)) {
        std::erase_if(task->waits,
                      [&](const Wait& wait) { return signal_name(plan, wait.signal).starts_with(signal); });
      }
    }
  };
}

TEST(Groups, OrderIsProven) {
  // Every wait of a task on groups is needed, but for those on what follows from another wait.
  expect_refused("tokens", without_wait(Body::pool, "routed"));
  expect_refused("all_x", without_wait(Body::pool, "x_arrived"));
  expect_refused("expert_x", without_wait(Body::grouped_gemm, "grouped"));
  expect_refused("expert_h", without_wait(Body::grouped_gemm, "hidden"));
  expect_refused("expert_y", without_wait(Body::pool, "made"));
  expect_refused("all_ids", without_wait(Body::route, "ids_arrived"));
}

TEST(Groups, TheExtentsAreRead) {
  // A product that waits for its rows alone reads extents that another task of a pool may write later.
  expect_refused("extents", [](Plan& plan) {
    Task fill{.kind = TaskKind::fill};
    const int extents = buffer_of(plan, "extents");
    fill.writes = {{.to = {.buffer = extents, .rows = 2, .cols = 3}}};
    plan.lanes.push_back({.rank = 0, .engine = Engine::copy, .name = "late", .tasks = {fill}});
  });
}

TEST(Groups, OtherTasksMustNotTouchThem) {
  expect_refused("only routing, pools and grouped GEMMs can", [](Plan& plan) {
    const int buffer = buffer_of(plan, "expert_x");
    plan.lanes.push_back({.rank = 0, .engine = Engine::copy, .name = "late"});
    Task copy{.kind = TaskKind::copy, .reads = {{.buffer = buffer, .rows = 1, .cols = 16}}};
    copy.writes = {{.to = {.buffer = buffer, .row = 1, .rows = 1, .cols = 16}}};
    plan.lanes.back().tasks.push_back(copy);
  });
  Plan symmetric = layer();
  symmetric.buffers[buffer_of(symmetric, "expert_x")].scope = Scope::symmetric;
  symmetric.buffers[buffer_of(symmetric, "expert_x")].shapes.clear();
  EXPECT_THROW(validate(symmetric), Error);
  Plan elsewhere = layer();
  elsewhere.buffers[buffer_of(elsewhere, "expert_x")].extents = buffer_of(elsewhere, "places");
  EXPECT_THROW(validate(elsewhere), Error);
}

Plan step_of_layer(const char* op, int ranks = 2) {
  Problem problem = kLayer;
  problem.op = op;
  return make_plan(problem, {.num_ranks = ranks}, {.schedule = "fused"});
}

void expect_step_refused(const char* op, const std::string& text, const std::function<void(Plan&)>& damage) {
  expect_damage_refused(text, step_of_layer(op), damage);
}

TEST(Groups, CallersHaveTheHandleOfARouting) {
  for (const char* op : {"moe_dispatch", "moe_combine", "moe_dispatch_gemm", "moe_gemm_combine"}) {
    for (const int ranks : {1, 2, 5}) expect_accepted(step_of_layer(op, ranks));
  }
  const auto refused = expect_step_refused;
  const auto erase_first = [](Body body) {
    return [body](Plan& plan) {
      for (Lane& lane : plan.lanes) {
        const auto found =
            std::ranges::find_if(lane.tasks, [&](const Task& task) { return computes_with(task, body); });
        if (found != lane.tasks.end() && lane.rank == 0) lane.tasks.erase(found);
      }
    };
  };
  // Rows, or lists, that nobody writes.
  refused("moe_dispatch", "expert_x rows 0..1 cols 0..16 of an output is never written", erase_first(Body::pool));
  refused("moe_dispatch_gemm", "of an output is never written", erase_first(Body::grouped_gemm));
  // The handle of another routing: of places in workspace that nobody returns.
  const auto return_copy = [](const char* name) {
    return [name](Plan& plan) {
      const int given = buffer_of(plan, name);
      Buffer mine = plan.buffers[given];
      mine.name = "mine";
      mine.scope = Scope::local;
      plan.buffers.push_back(mine);
      const auto other = static_cast<int>(std::ssize(plan.buffers)) - 1;
      for (Task* route : tasks_of(plan, Body::route)) {
        for (Write& write : route->writes) write.to.buffer = write.to.buffer == given ? other : write.to.buffer;
      }
    };
  };
  refused("moe_dispatch", "places rows 0..20 cols 0..2 of an output is never written", return_copy("places"));
  refused("moe_dispatch", "whose extents it does not write", return_copy("extents"));
  refused("moe_gemm_combine", "applies the activation",
          [](Plan& plan) { tasks_of(plan, Body::grouped_gemm)[0]->activation = Activation::relu; });
}

TEST(Groups, SumsTakeTheCallersHandle) {
  const auto refused = expect_step_refused;
  // Sums of other tokens, or by weights of other tokens, or of some ranks.
  const auto sum = [](Plan& plan, size_t which) -> Task& {
    std::vector<Task*> pools = tasks_of(plan, Body::pool);
    return *pools[which];
  };
  for (const char* op : {"moe_combine", "moe_gemm_combine"}) {
    refused(op, "adds the sum of contributions", [&](Plan& plan) {
      std::swap(sum(plan, 0).reads[1], sum(plan, 1).reads[1]);
      std::swap(sum(plan, 0).reads[2], sum(plan, 1).reads[2]);
    });
    refused(op, "other tokens", [&](Plan& plan) { std::swap(sum(plan, 0).reads[2], sum(plan, 1).reads[2]); });
    refused(op, "contributions are missing", [&](Plan& plan) {
      for (Lane& lane : plan.lanes) {
        for (Task& task : lane.tasks) {
          if (task.kind == TaskKind::reduce) task.reads.pop_back();
        }
      }
    });
  }
  // A peer's sums come to memory that it still uses.
  refused("moe_combine", "partial", [](Plan& plan) {
    for (Lane& lane : plan.lanes) {
      for (Task& task : lane.tasks)
        std::erase_if(task.waits, [](const Wait& wait) { return wait.purpose == Purpose::ready; });
    }
  });
  // Callers' groups have callers' extents.
  refused("moe_combine", "a caller's groups, but their extents extents are workspace",
          [](Plan& plan) { plan.buffers[buffer_of(plan, "extents")].scope = Scope::local; });
  refused("moe_combine", "plan: its buffer expert_y is not moe_combine's",
          [](Plan& plan) { plan.buffers[buffer_of(plan, "expert_y")].most_rows += 1; });
}

TEST(Groups, GivenGroupsAreTimed) {
  for (const char* op : {"moe_dispatch", "moe_combine", "moe_dispatch_gemm", "moe_gemm_combine"}) {
    const Plan fixed = fix_groups(step_of_layer(op, 4));
    EXPECT_FALSE(has_groups(fixed));
    EXPECT_NO_THROW(validate(fixed)) << op;
    EXPECT_GT(simulate(fixed, load_machine("h200x4")).total_ns, 0) << op;
  }
}

TEST(Groups, SelectedRowsServeTheirPlacesOnly) {
  const Plan plan = layer("fused", 3, Dispatch::per_rank);
  const auto refused = [&](const std::string& text, const std::function<void(Plan&)>& damage) {
    expect_damage_refused(text, plan, damage);
  };
  const auto select = [](Plan& changed) -> Task& { return *tasks_of(changed, Body::select)[0]; };
  // By the places of another rank, and of other tokens.
  refused("selected rows of A", [&](Plan& changed) {
    Task& task = select(changed);
    std::vector<Task*> all = tasks_of(changed, Body::select);
    const Task& other =
        **std::ranges::find_if(all, [&](const Task* each) { return each->reads[1].rank != task.reads[1].rank; });
    task.reads[1].rank = other.reads[1].rank;
    task.waits = other.waits;
  });
  refused("other tokens", [&](Plan& changed) { select(changed).reads[1].row += 1; });
  refused("an int32 list for each row", [&](Plan& changed) { select(changed).reads[1].cols = 0; });
  refused("an int32 list for each row", [&](Plan& changed) { select(changed).reads[1].rows -= 1; });
  refused("want a store", [&](Plan& changed) { select(changed).writes[0].mode = WriteMode::accumulate; });
  refused("places", without_wait(Body::select, "routed"));
  refused("partial", without_wait(Body::pool, "zeroed"));
  refused("all_x", without_wait(Body::pool, "x_arrived"));
}

TEST(Groups, ShardsOfTokensKeepApart) {
  const Plan plan = layer("fused", 2, Dispatch::per_expert);
  const auto refused = [&](const std::string& text, const std::function<void(Plan&)>& damage) {
    expect_damage_refused(text, plan, damage);
  };
  const auto sum = [](Plan& changed) -> Task& {
    std::vector<Task*> pools = tasks_of(changed, Body::pool);
    return **std::ranges::find_if(pools, [](const Task* task) { return task->reads.size() == 3; });
  };
  const auto route = [](Plan& changed) -> Task& { return *tasks_of(changed, Body::route)[0]; };
  // The rows of the other shard, and of no whole shard.
  refused("without the rows of token", [&](Plan& changed) { sum(changed).reads[0].row = 3; });
  refused("of one shard of the tokens or several", [&](Plan& changed) { sum(changed).reads[0].row = 1; });
  refused("for the tokens 10..20", [&](Plan& changed) {
    // Tokens of rank 0 for the groups of rank 1's tokens.
    Task& group = *tasks_of(changed, Body::pool)[0];
    group.reads[1].row += 3 * (group.reads[1].row < 3 ? 1 : -1);
    group.writes[0].to.row = group.reads[1].row;
  });
  refused("want 2 x 3 of int32", [&](Plan& changed) { route(changed).route->shards = 1; });
  refused("shards = 0", [&](Plan& changed) { route(changed).route->shards = 0; });
  refused("shards = 1000000000000", [&](Plan& changed) { route(changed).route->shards = 1000000000000; });
  refused("on two ranks", [&](Plan& changed) { route(changed).writes[2].to.rank = 1; });
  refused("routes to groups of rank 1", [&](Plan& changed) {
    for (Write& write : route(changed).writes) write.to.rank = 1;
  });
  refused("extents", without_wait(Body::pool, "routed"));
  refused("expert_y", without_wait(Body::pool, "made"));
  refused("expert_x", without_wait(Body::grouped_gemm, "grouped"));
  // A rank may not end before the owners have read its rows.
  refused("rank 0", [](Plan& changed) {
    for (Lane& lane : changed.lanes) {
      std::erase_if(lane.tasks, [&](const Task& task) { return lane.name == "route" && task.kind == TaskKind::sync; });
    }
  });
}

TEST(Groups, BoundsAndSharedExpertsNeedAllTokens) {
  Problem problem = kLayer;
  problem.experts->max_rows = 7;
  problem.experts->drops = true;
  problem.experts->shared = 1;
  const Plan plan = make_plan(problem, {.num_ranks = 2}, {});
  expect_accepted(plan);
  const auto refused = [&](const std::string& text, const std::function<void(RouteParams&)>& damage) {
    expect_damage_refused(text, plan, [&](Plan& changed) { damage(*tasks_of(changed, Body::route)[0]->route); });
  };
  refused("routes by", [](RouteParams& route) { route.max_rows = 6; });
  refused("max_rows = 0, drops = true", [](RouteParams& route) { route.max_rows = 0; });
  refused("want 4", [](RouteParams& route) { route.drops = false; });
  refused("as replica 0 of 1", [](RouteParams& route) { route.groups[1] = route.groups[0]; });
  refused("replica 0 of 0", [](RouteParams& route) { route.groups[0].replicas = 0; });
  expect_damage_refused("12 of 20 tokens", plan, [](Plan& changed) {
    Task& task = *tasks_of(changed, Body::route)[0];
    task.reads[0].rows = task.reads[1].rows = task.writes[2].to.rows = task.writes[3].to.rows = 12;
  });
  // Twice as many rows at most: all are kept, and less time is not taken.
  const auto time_of = [](const Plan& made) { return simulate(fix_groups(made), load_machine("h200x4")).total_ns; };
  problem.m = 4096;
  problem.experts->max_rows = 64;
  const double bounded = time_of(make_plan(problem, {.num_ranks = 4}, {}));
  problem.experts->max_rows = 1 << 20;
  EXPECT_LT(bounded, time_of(make_plan(problem, {.num_ranks = 4}, {})));
}

TEST(Groups, FixedRowsAreTimed) {
  for (const Dispatch dispatch : {Dispatch::per_rank, Dispatch::per_expert}) {
    const Plan fixed = fix_groups(layer("fused", 4, dispatch));
    EXPECT_NO_THROW(validate(fixed));
    EXPECT_GT(simulate(fixed, load_machine("h200x4")).total_ns, 0);
  }
  const Plan plan = layer("fused", 4);
  EXPECT_TRUE(has_groups(plan));
  EXPECT_THROW(static_cast<void>(simulate(plan, load_machine("h200x4"))), Error);
  const Plan fixed = fix_groups(plan);
  EXPECT_FALSE(has_groups(fixed));
  EXPECT_NO_THROW(validate(fixed));
  EXPECT_GT(simulate(fixed, load_machine("h200x4")).total_ns, 0);
  // All pairs of token and expert are multiplied: gate and up of 8 columns by 16, then 12 columns by 8.
  double multiplied = 0;
  for (const Lane& lane : gemm_only(fixed).lanes) {
    for (const Task& task : lane.tasks) multiplied += multiply_adds(task);
  }
  EXPECT_NEAR(multiplied, 20 * 2 * (2 * 8 * 16 + 12 * 8), 20 * 2 * 30) << "rows are rounded";
}

TEST(Groups, SkewTakesLonger) {
  Problem large = kLayer;
  large.m = 4096;
  large.n = large.k = 2048;
  large.experts = {.count = 32, .top_k = 4, .ffn = 1024};
  const Plan plan = make_plan(large, {.num_ranks = 4}, {.schedule = "fused"});
  const Machine machine = load_machine("h200x4");
  EXPECT_GT(simulate(fix_groups(plan, zipf_rows), machine).total_ns, simulate(fix_groups(plan), machine).total_ns);
}

}  // namespace
}  // namespace tilewire
