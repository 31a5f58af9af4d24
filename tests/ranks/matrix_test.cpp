// Products as tasks: tiles and whole calls, with epilogue, several destinations and every output type.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/convert.hpp"
#include "ranks/plans.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire {
namespace {

using testing::add_buffer;
using testing::add_lane;
using testing::whole;

struct Case {
  TaskKind kind;
  DType dtype;
  DType out;
  BLayout b_layout;
  bool bias;
};

std::vector<std::byte> random_values(DType dtype, int64_t count, std::minstd_rand& random) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<std::byte> bytes(static_cast<size_t>(count * bytes_of(dtype)));
  for (int64_t i = 0; i < count; ++i) store_one(uniform(random), &bytes[i * bytes_of(dtype)], dtype);
  return bytes;
}

constexpr int64_t kM = 45;
constexpr int64_t kN = 37;
constexpr int64_t kK = 101;

/// C = A B in two tiles of rows (or one call), each also written to the second output.
Plan plan_of(const Case& c) {
  Plan plan = testing::new_plan("product", 1);
  const bool nk = c.b_layout == BLayout::nk;
  const int a = add_buffer(plan, "a", c.dtype, {kM, kK}, Scope::input);
  const int b = add_buffer(plan, "b", c.dtype, nk ? Shape{kN, kK} : Shape{kK, kN}, Scope::input);
  const int bias = add_buffer(plan, "bias", c.dtype, {1, kN}, Scope::input);
  const int first = add_buffer(plan, "first", c.out, {kM, kN}, Scope::output);
  const int second = add_buffer(plan, "second", DType::fp32, {kM, kN}, Scope::output);
  const bool call = c.kind == TaskKind::gemm_call;
  Lane& lane = add_lane(plan, 0, call ? Engine::library : Engine::tiles, "gemm", call ? 0 : 2);
  for (int64_t row = 0; row < kM; row += call ? kM : 32) {
    const int64_t rows = std::min<int64_t>(call ? kM : 32, kM - row);
    Task task;
    task.kind = c.kind;
    task.gemm.b_layout = c.b_layout;
    task.reads = {{0, a, row, rows, 0, kK}, whole(plan, 0, b)};
    task.writes = {{{0, first, row, rows, 0, kN}, 0, WriteMode::store}};
    if (c.bias) task.epilogue = {{EpilogueKind::bias, 1, whole(plan, 0, bias)}};
    lane.tasks.push_back(task);
  }
  Task widen;
  widen.kind = TaskKind::reduce;
  widen.reads = {whole(plan, 0, first)};
  widen.writes = {{whole(plan, 0, second), 0, WriteMode::store}};
  const int done = testing::add_signals(plan, "done");
  for (Task& task : plan.lanes[0].tasks) task.posts = {{{0, done}, 1}};
  widen.waits = {{{0, done}, std::ssize(plan.lanes[0].tasks), Purpose::data}};
  add_lane(plan, 0, Engine::reduce, "widen").tasks = {widen};
  return plan;
}

void run_case(const Case& c, std::minstd_rand& random) {
  const Plan plan = plan_of(c);
  const bool nk = c.b_layout == BLayout::nk;
  auto a_data = random_values(c.dtype, kM * kK, random);
  auto b_data = random_values(c.dtype, kK * kN, random);
  auto bias_data = random_values(c.dtype, kN, random);
  std::vector<std::byte> first_data(static_cast<size_t>(kM * kN * bytes_of(c.out)));
  std::vector<float> second_data(static_cast<size_t>(kM * kN), 99);
  launch(1, testing::small_launch(true), [&](Group& group) {
    const std::vector<Tensor> inputs = {make_tensor(a_data.data(), c.dtype, kM, kK),
                                        make_tensor(b_data.data(), c.dtype, nk ? kN : kK, nk ? kK : kN),
                                        make_tensor(bias_data.data(), c.dtype, 1, kN)};
    const std::vector<Tensor> outputs = {make_tensor(first_data.data(), c.out, kM, kN),
                                         make_tensor(second_data.data(), DType::fp32, kM, kN)};
    group.load(plan)->run(inputs, outputs, {});
  });
  const auto value = [&](const std::vector<std::byte>& data, int64_t index) {
    return static_cast<double>(load_one(&data[index * bytes_of(c.dtype)], c.dtype));
  };
  const double rounding = c.out == DType::fp32 ? 0 : c.out == DType::bf16 ? 1.0 / 256 : 1.0 / 2048;
  for (int64_t i = 0; i < kM; ++i) {
    for (int64_t j = 0; j < kN; ++j) {
      double sum = c.bias ? value(bias_data, j) : 0;
      for (int64_t l = 0; l < kK; ++l) sum += value(a_data, i * kK + l) * value(b_data, nk ? j * kK + l : l * kN + j);
      ASSERT_NEAR(second_data[i * kN + j], sum, 1e-4 + rounding * std::abs(sum))
          << to_string(c.kind) << " " << to_string(c.dtype) << " " << to_string(c.b_layout) << " at " << i << ", " << j;
    }
  }
}

TEST(Products, EveryKindTypeAndLayout) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::minstd_rand random(seed);
  for (const TaskKind kind : {TaskKind::compute, TaskKind::gemm_call}) {
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      for (const DType out : {DType::fp32, DType::bf16, DType::fp16}) {
        for (const BLayout b : {BLayout::nk, BLayout::kn}) {
          for (const bool bias : {false, true}) run_case({kind, dtype, out, b, bias}, random);
        }
      }
    }
  }
}

TEST(Products, NoDepthGivesZerosAndTheBias) {
  Plan plan = testing::new_plan("product", 1);
  const int a = add_buffer(plan, "a", DType::bf16, {3, 0}, Scope::input);
  const int b = add_buffer(plan, "b", DType::bf16, {2, 0}, Scope::input);
  const int bias = add_buffer(plan, "bias", DType::bf16, {1, 2}, Scope::input);
  const int out = add_buffer(plan, "out", DType::bf16, {3, 2}, Scope::output);
  Task task;
  task.kind = TaskKind::compute;
  task.reads = {whole(plan, 0, a), whole(plan, 0, b)};
  task.writes = {{whole(plan, 0, out), 0, WriteMode::store}};
  task.epilogue = {{EpilogueKind::bias, 1, whole(plan, 0, bias)}};
  add_lane(plan, 0, Engine::tiles, "tiles").tasks = {task};
  std::vector<uint16_t> bias_data = {bf16_from(1.5F), bf16_from(-2)};
  std::vector<uint16_t> result(6, 99);
  launch(1, testing::small_launch(true), [&](Group& group) {
    const std::vector<Tensor> inputs = {make_tensor(nullptr, DType::bf16, 3, 0),
                                        make_tensor(nullptr, DType::bf16, 2, 0),
                                        make_tensor(bias_data.data(), DType::bf16, 1, 2)};
    const Tensor output = make_tensor(result.data(), DType::bf16, 3, 2);
    group.load(plan)->run(inputs, {&output, 1}, {});
  });
  for (int i = 0; i < 6; ++i) EXPECT_EQ(result[i], bias_data[i % 2]);
}

}  // namespace
}  // namespace tilewire
