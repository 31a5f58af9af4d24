// The cuda backend's decisions without a GPU: growth of memory, and reasons why it is not available.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "backends/cuda/cuda.hpp"
#include "backends/cuda/runtime/chunks.hpp"
#include "backends/cuda/runtime/unavailable.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(CudaChunks, AreMultiplesThatCoverWhatIsWanted) {
  const int64_t limit = 16384 * kMiB;
  for (const int64_t backed : {int64_t{0}, 64 * kMiB, 66 * kMiB, 5000 * kMiB, limit - 2 * kMiB}) {
    for (const int64_t wanted : {int64_t{0}, int64_t{1}, 2 * kMiB, 64 * kMiB + 1, 4999 * kMiB, limit - 1, limit}) {
      const int64_t chunk = cuda::next_chunk(backed, wanted, limit);
      EXPECT_EQ(chunk % cuda::kGranularity, 0);
      EXPECT_GE(backed + chunk, wanted);
      EXPECT_LE(backed + chunk, limit);
      EXPECT_EQ(chunk == 0, wanted <= backed) << backed << " " << wanted;
    }
  }
}

TEST(CudaChunks, DoubleTheTotalWithinBounds) {
  const int64_t limit = 16384 * kMiB;
  EXPECT_EQ(cuda::next_chunk(0, 1, limit), 64 * kMiB);
  EXPECT_EQ(cuda::next_chunk(64 * kMiB, 64 * kMiB + 1, limit), 64 * kMiB);
  EXPECT_EQ(cuda::next_chunk(128 * kMiB, 129 * kMiB, limit), 128 * kMiB);
  EXPECT_EQ(cuda::next_chunk(128 * kMiB, 1000 * kMiB, limit), 872 * kMiB);
  EXPECT_EQ(cuda::next_chunk(4096 * kMiB, 4097 * kMiB, limit), 1024 * kMiB);
  EXPECT_EQ(cuda::next_chunk(4096 * kMiB, 4097 * kMiB, 4100 * kMiB), 4 * kMiB);
  EXPECT_EQ(cuda::next_chunk(0, 1, 2 * kMiB), 2 * kMiB);
}

TEST(CudaUnavailable, SaysWhatIsMissing) {
  const std::filesystem::path folder = ::testing::TempDir() + "/tilewire_devices" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  EXPECT_NE(cuda::missing_gpu("libnosuchdriver.so", folder)->find("no NVIDIA driver"), std::string::npos);
  EXPECT_NE(cuda::missing_gpu("libc.so.6", folder)->find("no GPU"), std::string::npos);
  EXPECT_NE(cuda::missing_gpu("libc.so.6", folder / "nowhere")->find("no GPU"), std::string::npos);
  std::ofstream(folder / "nvidiactl");
  std::ofstream(folder / "nvidia");
  EXPECT_NE(cuda::missing_gpu("libc.so.6", folder)->find("no GPU"), std::string::npos);
  std::ofstream(folder / "nvidia12");
  EXPECT_FALSE(cuda::missing_gpu("libc.so.6", folder).has_value());
  std::filesystem::remove_all(folder);
}

TEST(CudaUnavailable, StopsJoinAndLaunchWithTheReason) {
  const auto reason = find_backend("cuda").unavailable();
  if (!reason) GTEST_SKIP() << "there is a GPU";
  const auto expect_reason = [&](const std::function<void()>& start) {
    try {
      start();
      ADD_FAILURE() << "no error was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unsupported);
      EXPECT_NE(std::string(error.what()).find(*reason), std::string::npos) << error.what();
    }
  };
  expect_reason([] { static_cast<void>(join("cuda", {.job = "cuda-test"})); });
  for (const bool threads : {false, true}) {
    expect_reason([&] { launch(2, {.backend = "cuda", .threads = threads}, [](Group&) {}); });
  }
  const cuda::CudaFacts facts = cuda::cuda_facts();
  EXPECT_TRUE(facts.gpus.empty());
  ASSERT_FALSE(facts.missing.empty());
  EXPECT_NE(facts.missing[0].find(*reason), std::string::npos) << facts.missing[0];
}

}  // namespace
}  // namespace tilewire
