// One rank that joins by its environment, as under mpirun: gathers twice by a hand-built plan.
// Started by join_test.cpp.
#include <cstdio>
#include <vector>

#include "ranks/plans.hpp"
#include "tilewire/spi/backend.hpp"

using namespace tilewire;

int main() {
  try {
    JoinOptions options = join_options_from_env();
    options.arena_bytes = 64 << 20;
    const auto group = join("host", options);
    const int num_ranks = group->team().num_ranks;
    const int rank = group->team().rank;
    const auto program = group->load(testing::all_gather_plan(num_ranks, 3));
    for (int call = 0; call < 2; ++call) {
      std::vector<float> mine(3, static_cast<float>(100 * call + rank));
      std::vector<float> all(3 * num_ranks, -1);
      const Tensor input = make_tensor(mine.data(), DType::fp32, 1, 3);
      const Tensor output = make_tensor(all.data(), DType::fp32, num_ranks, 3);
      program->run({&input, 1}, {&output, 1}, {});
      for (int i = 0; i < 3 * num_ranks; ++i) {
        const auto expected = static_cast<float>(100 * call + i / 3);
        testing::want(all[i] == expected, "element {}: want {}, got {}", i, expected, all[i]);
      }
    }
    std::printf("rank %d of %d is good\n", rank, num_ranks);
    return 0;
  } catch (const Error& error) {
    std::printf("rank failed: %s\n", error.what());
    return 1;
  }
}
