// Cores that a process may use: masks, quotas of made-up control groups, shares of ranks.
#include "core/cores.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "core/machine.hpp"

namespace tilewire {
namespace {

namespace fs = std::filesystem;

/// The files of a made-up system.
class CpuQuotas : public ::testing::Test {
 protected:
  void SetUp() override { root_ = fs::temp_directory_path() / ("cores_test_" + std::to_string(getpid())); }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_.string() + path).substr(0, root_.string().size() + path.rfind('/')));
    std::ofstream(root_.string() + path) << text;
  }
  /// Only version 2; this process is in `group`, and the mount shows `top` at /sys/fs/cgroup.
  void unified(const std::string& top, const std::string& group) const {
    write("/proc/self/cgroup", "0::" + group + "\n");
    write("/proc/self/mountinfo", "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n30 22 0:26 " + top +
                                      " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  [[nodiscard]] std::vector<double> found() const {
    std::vector<double> cores;
    for (const CpuQuota& quota : cpu_quotas(root_)) cores.push_back(quota.cores);
    return cores;
  }

  fs::path root_;
};

using Limits = std::vector<double>;

TEST_F(CpuQuotas, OfMyGroupAndAllAroundIt) {
  unified("/", "/pods/mine/rank");
  write("/sys/fs/cgroup/pods/mine/rank/cpu.max", "150000 100000\n");
  write("/sys/fs/cgroup/pods/mine/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/pods/cpu.max", "25000 50000\n");
  write("/sys/fs/cgroup/pods/other/cpu.max", "1000 100000\n");
  EXPECT_EQ(found(), (Limits{1.5, 0.5}));
}

TEST_F(CpuQuotas, InANamespaceOfControlGroups) {
  unified("/", "/");
  write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(found(), Limits{0.5});
}

TEST_F(CpuQuotas, WhereTheMountShowsOneContainerOnly) {
  unified("/docker/abc", "/docker/abc/child");
  write("/sys/fs/cgroup/cpu.max", "300000 100000\n");
  write("/sys/fs/cgroup/child/cpu.max", "200000 100000\n");
  EXPECT_EQ(found(), (Limits{2, 3}));
  // Groups outside of the mount; the name of one begins like the mount's top.
  unified("/docker/abc", "/docker/abcd");
  EXPECT_EQ(found(), Limits{});
  unified("/", "/../elsewhere");
  EXPECT_EQ(found(), Limits{});
}

TEST_F(CpuQuotas, OfVersionOneBesideAUnifiedHierarchyWithoutThem) {
  write("/proc/self/cgroup", "9:cpuset:/x\n4:cpu,cpuacct:/slice/job:1\n1:name=systemd:/\n0::/user.slice\n");
  write("/proc/self/mountinfo",
        "31 23 0:28 / /cg\\040v1/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "32 23 0:29 / /cg\\040v1/cpuset rw - cgroup cgroup rw,cpuset\n"
        "33 23 0:30 / /cg\\040v1/unified rw - cgroup2 cgroup2 rw\n");
  write("/cg v1/cpu/slice/job:1/cpu.cfs_quota_us", "-1\n");
  write("/cg v1/cpu/slice/job:1/cpu.cfs_period_us", "100000\n");
  write("/cg v1/cpu/slice/cpu.cfs_quota_us", "250000\n");
  write("/cg v1/cpu/slice/cpu.cfs_period_us", "100000\n");
  write("/cg v1/cpuset/x/cpu.cfs_quota_us", "1000\n");
  write("/cg v1/cpuset/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(found(), Limits{2.5});
}

TEST_F(CpuQuotas, FilesThatAreMissingOrStrangeSetNoLimit) {
  EXPECT_EQ(found(), Limits{});
  unified("/", "/mine");
  EXPECT_EQ(found(), Limits{});
  for (const char* text : {"", "max\n", "0 100000\n", "-5 100000\n", "100000 0\n", "100000\n", "\xff\n"}) {
    write("/sys/fs/cgroup/mine/cpu.max", text);
    EXPECT_EQ(found(), Limits{}) << text;
  }
  write("/proc/self/mountinfo", "\n- - -\n1 2 3 4 5 6 7 8\n1 2 3:4 / /sys/fs/cgroup rw - cgroup2\n");
  write("/proc/self/cgroup", "\n:\n0:\n");
  EXPECT_EQ(found(), Limits{});
}

TEST_F(CpuQuotas, AGroupIsTheSameWhereverItIsSeen) {
  unified("/", "/pod/one");
  write("/sys/fs/cgroup/pod/cpu.max", "400000 100000\n");
  const auto from_one = cpu_quotas(root_);
  unified("/", "/pod/two");
  EXPECT_EQ(from_one, cpu_quotas(root_));
  unified("/", "/pod");
  EXPECT_EQ(from_one, cpu_quotas(root_));
}

std::vector<int> run_of(int first, int count) {
  std::vector<int> cores(static_cast<size_t>(count));
  std::iota(cores.begin(), cores.end(), first);
  return cores;
}

std::vector<int> shares_of(const std::vector<Cores>& ranks) {
  std::vector<int> shares;
  for (int rank = 0; rank < std::ssize(ranks); ++rank) shares.push_back(share_of_cores(ranks, rank));
  return shares;
}

using Shares = std::vector<int>;

TEST(ShareOfCores, OneMaskOfAllIsDivided) {
  EXPECT_EQ(shares_of({{run_of(0, 64), {}}}), Shares{64});
  EXPECT_EQ(shares_of(std::vector<Cores>(4, {run_of(0, 64), {}})), Shares(4, 16));
  EXPECT_EQ(shares_of(std::vector<Cores>(3, {run_of(0, 3), {}})), Shares(3, 1));
  EXPECT_EQ(shares_of(std::vector<Cores>(3, {run_of(5, 8), {}})), Shares(3, 2));
  EXPECT_EQ(shares_of(std::vector<Cores>(8, {run_of(0, 2), {}})), Shares(8, 1));
  EXPECT_EQ(shares_of(std::vector<Cores>(49, {run_of(0, 49), {}})), Shares(49, 1));
}

TEST(ShareOfCores, MasksOfOnesOwnAreOnesOwn) {
  EXPECT_EQ(shares_of({{run_of(0, 16), {}}, {run_of(16, 16), {}}, {run_of(32, 16), {}}, {run_of(48, 16), {}}}),
            Shares(4, 16));
  EXPECT_EQ(shares_of({{{3}, {}}, {run_of(4, 60), {}}}), (Shares{1, 60}));
}

TEST(ShareOfCores, MasksThatOverlapShareWhatTheyHaveInCommon) {
  EXPECT_EQ(shares_of({{run_of(0, 8), {}}, {run_of(4, 8), {}}}), (Shares{6, 6}));
  // Two ranks with one mask, one without.
  EXPECT_EQ(shares_of({{run_of(0, 4), {}}, {run_of(0, 4), {}}, {run_of(0, 8), {}}}), (Shares{1, 1, 5}));
}

TEST(ShareOfCores, QuotasAreSharedByTheirGroupAndRoundedUp) {
  const auto with = [](std::vector<CpuQuota> quotas) { return Cores{run_of(0, 64), std::move(quotas)}; };
  EXPECT_EQ(shares_of({with({{"pod", 0.5}})}), Shares{1});
  EXPECT_EQ(shares_of({with({{"pod", 1.5}})}), Shares{2});
  EXPECT_EQ(shares_of({with({{"pod", 3}})}), Shares{3});
  EXPECT_EQ(shares_of({with({{"pod", 1000}})}), Shares{64});
  EXPECT_EQ(shares_of(std::vector<Cores>(4, with({{"pod", 6}}))), Shares(4, 2));
  EXPECT_EQ(shares_of(std::vector<Cores>(4, with({{"pod", 0.5}}))), Shares(4, 1));
  // Containers of their own in one slice, and a rank outside of both.
  EXPECT_EQ(shares_of({with({{"a", 4}, {"slice", 6}}), with({{"b", 2}, {"slice", 6}}), with({})}), (Shares{3, 2, 21}));
}

TEST(ShareOfCores, RandomMasksAreNeverGivenTwice) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::minstd_rand random(seed);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<Cores> ranks(1 + random() % 8);
    std::vector<bool> used(40);
    for (Cores& cores : ranks) {
      for (int core = 0; core < 40; ++core) {
        if (random() % 3 == 0) cores.mask.push_back(core);
      }
      if (cores.mask.empty()) cores.mask = {static_cast<int>(random() % 40)};
      for (const int core : cores.mask) used[core] = true;
      if (random() % 2 == 0)
        cores.quotas = {{"group " + std::to_string(random() % 3), 0.25 * static_cast<double>(random() % 9 + 1)}};
      EXPECT_EQ(decode_cores(encode_cores(cores)), cores);
    }
    const auto shares = shares_of(ranks);
    const auto all = std::accumulate(shares.begin(), shares.end(), 0);
    const auto least = std::count(shares.begin(), shares.end(), 1);
    EXPECT_LE(all - least, std::count(used.begin(), used.end(), true));
  }
}

TEST(AllowedCores, AreThoseOfTheCallingThread) {
  const std::vector<int> before = allowed_cores();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(before.back(), &one);
  cpu_set_t old;
  ASSERT_EQ(sched_getaffinity(0, sizeof old, &old), 0);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(allowed_cores(), std::vector<int>{before.back()});
  EXPECT_EQ(usable_cores(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof old, &old), 0);
  EXPECT_EQ(allowed_cores(), before);
  EXPECT_LE(usable_cores(), std::ssize(before));
}

}  // namespace
}  // namespace tilewire
