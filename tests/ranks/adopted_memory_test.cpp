// Memory that callers share among the ranks themselves, adopted as buffers that peers address.
#include <gtest/gtest.h>

#include <algorithm>

#include "ranks/plans.hpp"
#include "ranks/shared_memory.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire {
namespace {

using testing::error_of;
using testing::SharedMemory;
using testing::want;

class AdoptedMemory : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Host, AdoptedMemory, ::testing::ValuesIn(testing::launch_modes()),
                         [](const auto& mode) { return mode.param ? "threads" : "processes"; });

TEST_P(AdoptedMemory, CallsUseItInTurnWithTheArena) {
  const SharedMemory first(2);
  const SharedMemory second(2);
  launch(2, testing::small_launch(GetParam()), [&](Group& group) {
    const int rank = group.team().rank;
    const auto program = group.load(testing::pull_plan());
    std::vector<Tensor> places{group.allocate(DType::fp32, 2, 3)};
    for (const SharedMemory* memory : {&first, &second}) {
      Tensor tensor = make_tensor(memory->of(rank), DType::fp32, 2, 3);
      want(!group.place_of(tensor), "memory is known before it is adopted");
      group.adopt(memory->of_all(), SharedMemory::kBytes);
      want(group.place_of(tensor).has_value(), "adopted memory is not known");
      places.push_back(tensor);
      tensor.data = memory->of(rank) + SharedMemory::kBytes - 24;
      places.push_back(tensor);
    }
    for (int call = 0; call < 20; ++call) {
      const Tensor& mine = places[static_cast<size_t>(call) % places.size()];
      std::fill_n(static_cast<float*>(mine.data), 6, static_cast<float>(10 * call + rank));
      std::vector<float> got(6, 99);
      const Tensor output = make_tensor(got.data(), DType::fp32, 2, 3);
      program->run({&mine, 1}, {&output, 1}, {});
      for (const float value : got) want(value == static_cast<float>(10 * call + 1 - rank), "got {}", value);
    }
    Tensor beyond = places[1];
    beyond.data = first.of(rank) + SharedMemory::kBytes - 20;
    want(!group.place_of(beyond), "4 bytes lie beyond it");
    Tensor strided = places[1];
    strided.row_stride = 5;
    want(!group.place_of(strided), "it is not dense");
    want(!group.place_of(make_tensor(places[1].data, DType::fp32, 0, 3)), "it is empty");
  });
}

TEST_P(AdoptedMemory, NeighboursAreToldApart) {
  const SharedMemory memory(2);
  launch(2, testing::small_launch(GetParam()), [&](Group& group) {
    const int rank = group.team().rank;
    // The second part follows the first on rank 0, and not on rank 1.
    const std::vector<std::byte*> second{memory.of(0) + 1024, memory.of(1) + 4096};
    group.adopt(memory.of_all(), 1024);
    group.adopt(second, 1024);
    const auto program = group.load(testing::pull_plan());
    for (std::byte* data : {second[rank], memory.of(rank), second[rank] + 512}) {
      const Tensor mine = make_tensor(data, DType::fp32, 2, 3);
      std::fill_n(static_cast<float*>(mine.data), 6, static_cast<float>(10 + rank));
      std::vector<float> got(6, 99);
      const Tensor output = make_tensor(got.data(), DType::fp32, 2, 3);
      program->run({&mine, 1}, {&output, 1}, {});
      for (const float value : got) want(value == static_cast<float>(11 - rank), "got {}", value);
      const std::string place = std::to_string(group.place_of(mine).value_or(-1));
      want(group.all_gather(place)[1 - rank] == place, "another place on the other rank");
    }
  });
}

TEST_P(AdoptedMemory, WhatIsNoneIsRefusedByAllRanks) {
  const SharedMemory memory(2);
  launch(2, testing::small_launch(GetParam()), [&](Group& group) {
    const int rank = group.team().rank;
    const auto refused = [&](const std::vector<std::byte*>& at, int64_t bytes, const std::string& words) {
      const Error error = error_of([&] { group.adopt(at, bytes); });
      want(error.kind() == ErrorKind::invalid_input, "{}", error.what());
      want(std::string(error.what()).find(words) != std::string::npos, "want '{}', got '{}'", words, error.what());
    };
    refused({memory.of(0)}, 8, "adopted memory of 1 ranks, the team has 2");
    refused(memory.of_all(), 0, "adopted memory of 0 bytes: want 1 or more");
    refused({memory.of(0), nullptr}, 8, "want 1 or more, on every rank");
    refused(memory.of_all(), 100 + rank, "adopted memory of 100 bytes on rank 0, 101 on rank 1");
    group.adopt(memory.of_all(), 1000);
    // On one rank only; both say so.
    std::vector<std::byte*> at = memory.of_all();
    for (std::byte*& each : at) each += rank == 0 ? 1000 : 999;
    refused(at, 8, "overlaps other memory that peers address");
    for (std::byte*& each : at) each += rank;
    group.adopt(at, 8);
  });
}

}  // namespace
}  // namespace tilewire
