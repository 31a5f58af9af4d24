// JSON, printing, knobs, hashing, plan validation, dtype conversion.
// Built as part of the target `unit_core`.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "core/convert.hpp"
#include "operator_names.hpp"
#include "schedules/variants.hpp"
#include "tilewire/json.hpp"
#include "tilewire/tilewire.hpp"

namespace tilewire {
namespace {

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_input);
    return error.what();
  }
  return "accepted";
}

Plan small_plan(const char* op = "gemm_reduce_scatter") {
  return make_plan({.op = op, .m = 40, .n = 24, .k = 16, .epilogue = {{EpilogueKind::bias}}}, {.num_ranks = 3},
                   {.tile_m = 16, .tile_n = 16, .split_k = 2});
}

TEST(Json, PlansRoundTrip) {
  for (const char* op : testing::operator_names(testing::has_gemm)) {
    const Plan plan = small_plan(op);
    const Plan again = from_json_text<Plan>(to_string(plan));
    EXPECT_EQ(again, plan);
    EXPECT_EQ(hash_of(again), hash_of(plan));
  }
  const Plan experts = make_plan(testing::with_experts({.op = "moe", .m = 40, .n = 24, .k = 16}), {.num_ranks = 3}, {});
  EXPECT_EQ(from_json_text<Plan>(to_string(experts)), experts);
}

TEST(Json, FieldsThatNoScheduleUsesRoundTrip) {
  Task task{.kind = TaskKind::collective_call, .body = Body::pool, .collective = Collective::all_to_all};
  task.reads = {{.rank = 1, .buffer = 2, .row = 3, .rows = 4, .col = 5, .cols = 6}};
  task.value = 2;
  task.epilogue = {{EpilogueKind::residual, 1, Region{.buffer = 3}}, {EpilogueKind::scale, 0.25, {}}};
  EXPECT_EQ(from_json_text<Task>(to_string(task)), task);
  Team team{.num_ranks = 2, .devices = {{.node = 0}, {.node = 1, .copy_engines = 3}}};
  team.links = {{}, {Reach::network, 50, 2.5}, {Reach::copy, 25, 1}, {}};
  EXPECT_EQ(from_json_text<Team>(to_string(team)), team);
  Problem problem{.op = "x", .b_layout = BLayout::kn, .arena = {"a"}};
  EXPECT_EQ(from_json_text<Problem>(to_string(problem)), problem);
  Config config;
  config.wire = DType::fp32;
  EXPECT_EQ(from_json_text<Config>(to_string(config)), config);
}

TEST(Json, MalformedTextIsRefusedWithThePlace) {
  const auto read = [](const char* text) { return message_of([&] { static_cast<void>(from_json_text<Plan>(text)); }); };
  EXPECT_NE(read("{").find("malformed JSON"), std::string::npos);
  EXPECT_EQ(read("[]"), "Plan: want an object, got []");
  EXPECT_EQ(read(R"({"lanes": 3})"), "Plan.lanes: want a list, got 3");
  EXPECT_EQ(read(R"({"lanes": [{"tasks": [{"kind": "sink"}]}]})"),
            "Task.kind: unknown 'sink'; known: compute, copy, reduce, fill, sync, gemm_call, collective_call");
  EXPECT_EQ(read(R"({"team": {"num_ranks": 1.5}})"), "Team.num_ranks: want an integer, got 1.5");
  EXPECT_EQ(read(R"({"team": {"num_ranks": 99999999999}})"), "Team.num_ranks: 99999999999 does not fit into 32 bits");
  EXPECT_EQ(read(R"({"team": {"ranks": 1}})"), "Team: unknown field 'ranks'; known: num_ranks, rank, devices, links");
}

TEST(Knobs, AreSetByName) {
  Config config;
  set_knob(config, "tile_m", "64");
  set_knob(config, "direction", "pull");
  set_knob(config, "wire", "fp32");
  set_knob(config, "schedule", "two_stream");
  EXPECT_EQ(config.tile_m, 64);
  EXPECT_EQ(config.direction, Direction::pull);
  EXPECT_EQ(config.wire, DType::fp32);
  EXPECT_EQ(config.schedule, "two_stream");
  EXPECT_NE(message_of([&] { set_knob(config, "tile", "1"); }).find("unknown knob 'tile'; known: schedule, tile_m"),
            std::string::npos);
  EXPECT_EQ(message_of([&] { set_knob(config, "order", "naive"); }), "the knob 'order' is now called 'tile_order'");
  EXPECT_EQ(message_of([&] { static_cast<void>(from_json_text<Config>(R"({"reduction": "pull"})")); }),
            "Config: the field 'reduction' is now called 'reduce_mode'");
  EXPECT_EQ(message_of([&] { set_knob(config, "tile_m", "big"); }), "knob tile_m: want an integer, got \"big\"");
  EXPECT_EQ(message_of([&] { set_knob(config, "tile_order", "odd"); }),
            "knob tile_order: unknown 'odd'; known: naive, rank_shifted, in_step");
}

TEST(Print, WritesOneLine) {
  std::ostringstream out;
  out << Range{1, 2} << ' ' << DType::bf16;
  EXPECT_EQ(out.str(), R"({"begin":1,"end":2} bf16)");
}

TEST(Validate, NamesTheTaskAndTheRule) {
  const auto broken = [](const auto& change) {
    Plan plan = small_plan();
    change(plan);
    return message_of([&] { validate(plan); });
  };
  EXPECT_EQ(broken([](Plan&) {}), "accepted");
  EXPECT_NE(broken([](Plan& p) {
              p.lanes[0].tasks[1].reads[0].rows = 1000;
            }).find("task 1 of lane tiles on rank 0 (compute): rank 0 a rows"),
            std::string::npos);
  EXPECT_NE(broken([](Plan& p) { p.lanes[0].tasks[1].reads[0].buffer = 99; }).find("buffer 99 of"), std::string::npos);
  EXPECT_NE(broken([](Plan& p) { p.lanes[0].tasks[1].posts[0].signal.index = 12345; }).find("signal 12345 on rank"),
            std::string::npos);
  EXPECT_NE(broken([](Plan& p) { p.lanes[0].tasks[1].posts[0].add = 0; }).find("want at least 1"), std::string::npos);
  EXPECT_NE(broken([](Plan& p) { p.lanes[0].tasks[1].writes.clear(); }).find("0 writes"), std::string::npos);
  EXPECT_NE(broken([](Plan& p) { p.lanes[0].tasks[1].writes[0].first_col = -1; }).find("first_col -1 is negative"),
            std::string::npos);
  const auto narrow = [](Plan& p) { --p.lanes[0].tasks[1].writes[0].to.cols; };
  EXPECT_NE(broken(narrow).find("columns 0.."), std::string::npos) << "only calls of the library cut columns";
  const auto call = [&](Plan& p) { narrow(p), p.lanes[0].tasks[1].kind = TaskKind::gemm_call; };
  EXPECT_EQ(broken(call), "accepted");
  EXPECT_NE(broken([&](Plan& p) { call(p), p.lanes[0].tasks[1].writes[0].first_col = 2; }).find("columns 2.."),
            std::string::npos);
  EXPECT_NE(broken([](Plan& p) { p.lanes[0].rank = 3; }).find("rank 3 of 3"), std::string::npos);
  EXPECT_NE(broken([](Plan& p) { p.buffers[0].rows = -1; }).find("negative"), std::string::npos);
  EXPECT_NE(broken([](Plan& p) { p.team.num_ranks = 0; }).find("0 ranks"), std::string::npos);
  EXPECT_EQ(broken([](Plan& p) { p.team.devices.resize(1); }), "team: 1 devices for 3 ranks");
}

TEST(Hash, SeesEveryChange) {
  const Plan plan = small_plan();
  Plan other = plan;
  other.lanes[0].tasks[1].waits.clear();
  other.lanes[0].tasks[1].posts[0].add += 1;
  EXPECT_NE(hash_of(other), hash_of(plan));
}

TEST(Convert, Bf16RoundsToNearestEven) {
  EXPECT_EQ(from_bf16(bf16_from(1.0F)), 1.0F);
  EXPECT_EQ(bf16_from(1.00390625F), 0x3F80);  // half way, even below
  EXPECT_EQ(bf16_from(1.01171875F), 0x3F82);  // half way, even above
  EXPECT_TRUE(std::isnan(from_bf16(bf16_from(std::nanf("")))));
  EXPECT_EQ(from_bf16(bf16_from(INFINITY)), INFINITY);
  EXPECT_EQ(from_bf16(bf16_from(std::numeric_limits<float>::max())), INFINITY);
}

TEST(Convert, Fp16AllValuesRoundTripAndRoundToNearestEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = from_fp16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(from_fp16(fp16_from(value))));
      continue;
    }
    ASSERT_EQ(fp16_from(value), bits);
    const float next = from_fp16(static_cast<uint16_t>(bits + 1));
    if ((bits & 0x7FFF) >= 0x7BFF || std::isnan(next)) continue;
    const float middle = (value + next) / 2;
    ASSERT_EQ(fp16_from(middle), (bits & 1U) != 0 ? bits + 1 : bits) << bits;
  }
  EXPECT_EQ(fp16_from(65519.0F), 0x7BFF);
  EXPECT_EQ(fp16_from(65520.0F), 0x7C00);
  EXPECT_EQ(fp16_from(-INFINITY), 0xFC00);
  EXPECT_EQ(fp16_from(1e-10F), 0);
}

TEST(Convert, QuantisedTypesRoundToNearestEven) {
  const auto stored = [](float value, DType dtype) {
    uint8_t byte = 0;
    store_one(value, &byte, dtype);
    return byte;
  };
  for (uint32_t bits = 0; bits < 0x100; ++bits) {
    const auto byte = static_cast<uint8_t>(bits);
    const float value = load_one(&byte, DType::fp8_e4m3);
    if ((bits & 0x7FU) == 0x7FU) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_EQ(stored(value, DType::fp8_e4m3) & 0x7FU, 0x7FU);
      continue;
    }
    ASSERT_EQ(stored(value, DType::fp8_e4m3), byte);
    const auto above = static_cast<uint8_t>(byte + 1);
    if ((above & 0x7FU) == 0x7FU) continue;
    const float middle = (value + load_one(&above, DType::fp8_e4m3)) / 2;
    ASSERT_EQ(stored(middle, DType::fp8_e4m3), (bits & 1U) != 0 ? above : byte) << bits;
  }
  const uint8_t largest = 0x7E;
  EXPECT_EQ(load_one(&largest, DType::fp8_e4m3), 448);
  EXPECT_EQ(stored(1e9F, DType::fp8_e4m3), 0x7E);
  EXPECT_EQ(stored(-INFINITY, DType::fp8_e4m3), 0xFE);
  EXPECT_EQ(static_cast<int8_t>(stored(2.5F, DType::int8)), 2);
  EXPECT_EQ(static_cast<int8_t>(stored(-3.5F, DType::int8)), -4);
  EXPECT_EQ(static_cast<int8_t>(stored(300, DType::int8)), 127);
  EXPECT_EQ(static_cast<int8_t>(stored(-300, DType::int8)), -127);
  EXPECT_EQ(stored(std::nanf(""), DType::int8), 0);
}

TEST(Overlap, FollowsFlux) {
  EXPECT_DOUBLE_EQ(overlap_efficiency(10, 10, 14), 1);
  EXPECT_DOUBLE_EQ(overlap_efficiency(14, 10, 14), 0);
  EXPECT_DOUBLE_EQ(overlap_efficiency(16, 10, 14), -0.5);
}

}  // namespace
}  // namespace tilewire
