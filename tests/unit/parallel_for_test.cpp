// Jobs on all cores: each runs once, and the error of the first failed job is thrown.
#include "core/parallel_for.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "core/text.hpp"

namespace tilewire {
namespace {

TEST(ParallelFor, CallsEachJobOnce) {
  for (const size_t count : {0, 1, 7, 1000}) {
    std::vector<std::atomic<int>> calls(count);
    parallel_for(count, [&](size_t i) { ++calls[i]; });
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(calls[i], 1) << i << " of " << count;
  }
}

TEST(ParallelFor, ThrowsTheErrorOfTheFirstJobThatHasOne) {
  std::atomic<int> calls = 0;
  try {
    parallel_for(100'000, [&](size_t i) {
      ++calls;
      require(i < 3, "job {}", i);
    });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "job 3");
  }
  EXPECT_LT(calls, 100'000);  // it ended everything
}

}  // namespace
}  // namespace tilewire
