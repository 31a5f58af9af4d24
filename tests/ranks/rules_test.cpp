// Refusals of CPU ranks: wrong tensors, foreign memory, missing features; hand-built plans only.
// Built into the target `ranks`.
#include <gtest/gtest.h>

#include <memory>

#include "ranks/plans.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire {
namespace {

using testing::add_buffer;
using testing::add_lane;
using testing::error_of;
using testing::new_plan;
using testing::small_launch;
using testing::want;
using testing::whole;

TEST(Rules, TensorsMustBeWhatThePlanSays) {
  launch(1, small_launch(true), [](Group& group) {
    const auto program = group.load(testing::all_gather_plan(1, 4));
    std::vector<float> memory(8);
    const Tensor good = make_tensor(memory.data(), DType::fp32, 1, 4);
    const Tensor out = make_tensor(memory.data() + 4, DType::fp32, 1, 4);
    const auto kind_of = [&](std::vector<Tensor> inputs, std::vector<Tensor> outputs) {
      return error_of([&] { program->run(inputs, outputs, {}); }).kind();
    };
    Tensor other_type = good;
    other_type.dtype = DType::bf16;
    Tensor other_shape = good;
    other_shape.cols = 3;
    Tensor short_rows = good;
    short_rows.row_stride = 3;
    Tensor no_data = good;
    no_data.data = nullptr;
    program->run({&short_rows, 1}, {&out, 1}, {});  // of one row
    for (const Tensor& bad : {other_type, other_shape, no_data, out}) {
      EXPECT_EQ(kind_of({bad}, {out}), ErrorKind::invalid_input);
    }
    EXPECT_EQ(kind_of({}, {out}), ErrorKind::invalid_input);
    EXPECT_EQ(kind_of({good}, {out, out}), ErrorKind::invalid_input);
    program->run({&good, 1}, {&out, 1}, {});
  });
}

TEST(Rules, RowsMustNotOverlap) {
  launch(2, small_launch(true), [](Group& group) {
    const auto program = group.load(testing::all_gather_plan(2, 4));
    std::vector<float> memory(16);
    const Tensor input = make_tensor(memory.data(), DType::fp32, 1, 4);
    Tensor output = make_tensor(memory.data() + 4, DType::fp32, 2, 4);
    output.row_stride = 3;
    const Error error = error_of([&] { program->run({&input, 1}, {&output, 1}, {}); });
    EXPECT_EQ(error.kind(), ErrorKind::invalid_input) << error.what();
    output.row_stride = 5;
    program->run({&input, 1}, {&output, 1}, {});
  });
}

TEST(Rules, APlanThatTouchesForeignMemoryIsRefused) {
  launch(2, small_launch(true), [](Group& group) {
    const auto refused = [&](const Plan& plan, const char* part) {
      const Error error = error_of([&] { static_cast<void>(group.load(plan)); });
      want(error.kind() == ErrorKind::invalid_input, "{}", error.what());
      want(std::string(error.what()).find(part) != std::string::npos, "{}", error.what());
    };
    Plan reach = testing::all_gather_plan(2, 4);
    reach.buffers[2].scope = Scope::local;
    refused(reach, "is not in the arena");
    Plan types = testing::all_gather_plan(2, 4);
    types.buffers[2].dtype = DType::bf16;
    refused(types, "a copy has the same dtype at both ends");
    refused(testing::all_gather_plan(3, 4), "a plan for 3 ranks in a team of 2");
    Plan product = new_plan("product", 2);
    const int a = add_buffer(product, "a", DType::fp32, {4, 8}, Scope::input);
    const int b = add_buffer(product, "b", DType::fp32, {5, 7}, Scope::input);
    const int c = add_buffer(product, "c", DType::fp32, {4, 5}, Scope::output);
    Task task;
    task.kind = TaskKind::compute;
    task.reads = {whole(product, 0, a), whole(product, 0, b)};
    task.writes = {{whole(product, 0, c), 0, WriteMode::store}};
    add_lane(product, 0, Engine::tiles, "tiles").tasks = {task};
    refused(product, "one depth");
  });
}

TEST(Rules, WhatTheHostCannotDoIsNamed) {
  launch(1, small_launch(true), [](Group& group) {
    Plan plan = testing::all_gather_plan(1, 4);
    EXPECT_TRUE(group.unsupported(plan).empty());
    plan.lanes[0].tasks[1].writes[0].via = Via::tma;
    plan.lanes[0].tasks[1].kind = TaskKind::collective_call;
    EXPECT_EQ(group.unsupported(plan), (std::vector<std::string>{"a library's none", "collective_call", "via = tma"}));
  });
}

}  // namespace
}  // namespace tilewire
