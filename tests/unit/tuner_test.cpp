// The tuner's file: what is found again, what is ignored, and several writers at the same time.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tilewire/print.hpp"
#include "tuner/winners.hpp"

namespace tilewire::tuner {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class TunerFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "tilewire_tuner_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    file_ = (folder_ / "deeper" / "tuner.json").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& text) {
    fs::create_directories(fs::path(file_).parent_path());
    std::ofstream(file_) << text;
  }
  [[nodiscard]] std::string read() const {
    std::ostringstream text;
    text << std::ifstream(file_).rdbuf();
    return text.str();
  }

  fs::path folder_;
  std::string file_;
};

Problem problem_of(int64_t m) { return {.op = "all_gather_gemm", .m = m, .n = 512, .k = 256}; }

Winner winner_of(int64_t m, const std::string& schedule) {
  Winner winner{.key = key_of("host", "a machine", 4, problem_of(m)), .config = {.schedule = schedule, .tile_m = 64}};
  winner.timings = {{winner.config, 12.5, 3}, {{.schedule = "sequential"}, 20, 3}};
  return winner;
}

TEST_F(TunerFile, AMissingFileIsNoNews) {
  const Recalled recalled = recall(file_, winner_of(64, "fused").key);
  EXPECT_FALSE(recalled.winner.has_value());
  EXPECT_EQ(recalled.note, "");
}

TEST_F(TunerFile, WhatWasRememberedIsFoundAgain) {
  ASSERT_EQ(remember(file_, winner_of(64, "fused")), std::nullopt);
  ASSERT_EQ(remember(file_, winner_of(1024, "two_stream")), std::nullopt);
  EXPECT_EQ(recall(file_, winner_of(64, "").key).winner, winner_of(64, "fused"));
  EXPECT_EQ(recall(file_, winner_of(1024, "").key).winner, winner_of(1024, "two_stream"));
  EXPECT_FALSE(recall(file_, winner_of(2048, "").key).winner.has_value());
}

TEST_F(TunerFile, AQuickWinnerIsNoneOfAFullMeasurement) {
  Winner quick = winner_of(64, "fused");
  quick.quick = true;
  ASSERT_EQ(remember(file_, quick), std::nullopt);
  EXPECT_FALSE(recall(file_, quick.key, Tuning::full).winner.has_value());
  EXPECT_EQ(recall(file_, quick.key, Tuning::quick).winner, quick);
  EXPECT_EQ(recall(file_, quick.key, Tuning::off).winner, quick);
  const Winner full = winner_of(64, "two_stream");
  ASSERT_EQ(remember(file_, full), std::nullopt);
  for (const Tuning tuning : {Tuning::off, Tuning::quick, Tuning::full})
    EXPECT_EQ(recall(file_, full.key, tuning).winner, full);
}

TEST_F(TunerFile, WithoutAMeasurementTheNearestWinnerCounts) {
  for (const int64_t m : {1, 64, 512, 4096}) ASSERT_EQ(remember(file_, winner_of(m, "fused")), std::nullopt);
  const auto rows_of_nearest = [&](int64_t m) -> int64_t {
    const auto found = recall(file_, winner_of(m, "").key, Tuning::off).winner;
    return found ? found->key["problem"]["m"].get<int64_t>() : -1;
  };
  EXPECT_EQ(rows_of_nearest(64), 64);
  EXPECT_EQ(rows_of_nearest(128), 64);
  EXPECT_EQ(rows_of_nearest(200), 512);  // of its bucket of 256
  EXPECT_EQ(rows_of_nearest(16), 64);
  EXPECT_EQ(rows_of_nearest(8), -1) << "too far from 1 and from 64";
  EXPECT_EQ(rows_of_nearest(2048), 4096);
  EXPECT_EQ(rows_of_nearest(16384), 4096);
  EXPECT_EQ(rows_of_nearest(32768), -1) << "too far";
  EXPECT_EQ(rows_of_nearest(0), -1);
  json other = winner_of(64, "").key;
  other["problem"]["n"] = 1024;
  EXPECT_FALSE(recall(file_, other, Tuning::off).winner.has_value());
  EXPECT_FALSE(recall(file_, winner_of(128, "").key, Tuning::quick).winner.has_value());
}

TEST_F(TunerFile, AFileWithOldNamesIsRead) {
  Winner winner = winner_of(64, "fused");
  winner.config.tile_order = TileOrder::in_step;
  winner.config.reduce_mode = ReduceMode::pull;
  winner.timings[0].config = winner.config;
  ASSERT_EQ(remember(file_, winner), std::nullopt);
  std::string text = read();
  for (const auto& [now, before] : {std::pair{"tile_order", "order"}, std::pair{"reduce_mode", "reduction"}}) {
    for (size_t at = text.find(now); at != std::string::npos; at = text.find(now))
      text.replace(at, std::strlen(now), before);
  }
  ASSERT_NE(text.find("\"order\""), std::string::npos);
  write(text);
  EXPECT_EQ(recall(file_, winner.key).winner, winner);
}

TEST_F(TunerFile, ALaterWinnerReplacesTheFormer) {
  ASSERT_EQ(remember(file_, winner_of(64, "fused")), std::nullopt);
  ASSERT_EQ(remember(file_, winner_of(64, "sequential")), std::nullopt);
  EXPECT_EQ(recall(file_, winner_of(64, "").key).winner, winner_of(64, "sequential"));
  EXPECT_EQ(json::parse(read()).at("winners").size(), 1U);
}

TEST_F(TunerFile, TheKeyRoundsMUpAndKeepsTheRest) {
  const auto key = [](const Problem& problem, int ranks = 4, const std::string& machine = "a machine") {
    return key_of("host", machine, ranks, problem);
  };
  EXPECT_EQ(key(problem_of(65)), key(problem_of(128)));
  EXPECT_NE(key(problem_of(64)), key(problem_of(65)));
  EXPECT_NE(key(problem_of(0)), key(problem_of(1)));
  EXPECT_NE(key(problem_of(64)), key(problem_of(64), 2));
  EXPECT_NE(key(problem_of(64)), key(problem_of(64), 4, "another machine"));
  const auto changed = [&](auto change) {
    Problem problem = problem_of(64);
    change(problem);
    return key(problem) != key(problem_of(64));
  };
  EXPECT_TRUE(changed([](Problem& p) { p.op = "gemm_all_reduce"; }));
  EXPECT_TRUE(changed([](Problem& p) { p.n += 1; }));
  EXPECT_TRUE(changed([](Problem& p) { p.k += 1; }));
  EXPECT_TRUE(changed([](Problem& p) { p.dtype = DType::fp32; }));
  EXPECT_TRUE(changed([](Problem& p) { p.out_dtype = DType::fp32; }));
  EXPECT_TRUE(changed([](Problem& p) { p.b_layout = BLayout::kn; }));
  EXPECT_TRUE(changed([](Problem& p) { p.reduction = Reduction::any; }));
  EXPECT_TRUE(changed([](Problem& p) { p.arena = {"a"}; }));
}

TEST_F(TunerFile, OnGpusFewRowsHaveWinnersOfTheirOwn) {
  const auto key = [](int64_t m) {
    return key_of("cuda", machine_name("2 x NVIDIA H200, 132 SMs"), 2, problem_of(m), true);
  };
  EXPECT_EQ(key(137), key(144));
  EXPECT_NE(key(136), key(137));
  EXPECT_NE(key(1000), key(1024)) << "tiles are cut for 1000 rows";
  EXPECT_NE(key(1020), key(1024));
  EXPECT_NE(key(1024), key(1025));
  EXPECT_EQ(key(1025), key(2048));
  EXPECT_NE(key(0), key(1));
  EXPECT_NE(machine_name("2 x NVIDIA H200, 132 SMs"), machine_name("2 x NVIDIA H100 80GB HBM3, 132 SMs"));
  EXPECT_NE(machine_name("2 x NVIDIA H200, 132 SMs"), machine_name());
}

TEST_F(TunerFile, AnotherVersionsWinnersAreNotUsedButKept) {
  Winner other = winner_of(64, "fused");
  other.key["tilewire"] = "999.0.0";
  ASSERT_EQ(remember(file_, other), std::nullopt);
  EXPECT_FALSE(recall(file_, winner_of(64, "").key).winner.has_value());
  ASSERT_EQ(remember(file_, winner_of(64, "sequential")), std::nullopt);
  EXPECT_EQ(recall(file_, other.key).winner, other);
}

TEST_F(TunerFile, ACorruptFileIsIgnoredWithAReasonAndThenReplaced) {
  const auto key = winner_of(64, "").key;
  const std::string entry = json{{"key", key}, {"config", {{"schedule", 7}}}, {"timings", json::array()}}.dump();
  for (const std::string& text :
       {std::string("{\"format\": 2, \"winn"), std::string(""), std::string("[]"), std::string("{\"format\": 2}"),
        std::string("{\"format\": 2, \"winners\": [3]}"), "{\"format\": 2, \"winners\": [" + entry + "]}"}) {
    write(text);
    const Recalled recalled = recall(file_, key);
    EXPECT_FALSE(recalled.winner.has_value()) << text;
    EXPECT_NE(recalled.note.find(file_ + " was ignored: "), std::string::npos) << text << ": " << recalled.note;
    ASSERT_EQ(remember(file_, winner_of(64, "fused")), std::nullopt) << text;
    EXPECT_EQ(recall(file_, key).winner, winner_of(64, "fused")) << text;
  }
}

TEST_F(TunerFile, AFileOfANewerFormatIsKept) {
  write("{\"format\": 3, \"winners\": []}");
  EXPECT_NE(recall(file_, winner_of(64, "").key).note.find(" was ignored: "), std::string::npos);
  const auto failure = remember(file_, winner_of(64, "fused"));
  ASSERT_TRUE(failure.has_value());
  EXPECT_NE(failure->find("newer than 2"), std::string::npos) << *failure;
}

TEST_F(TunerFile, APlaceThatCannotBeWrittenIsAReasonNotAnError) {
  std::ofstream(folder_ / "deeper") << "a file where a folder should be";
  const auto failure = remember(file_, winner_of(64, "fused"));
  ASSERT_TRUE(failure.has_value());
  EXPECT_NE(failure->find(file_ + " was not written: "), std::string::npos) << *failure;
}

TEST_F(TunerFile, OnlyARegularFileIsReplaced) {
  file_ = (folder_ / "pipe").string();
  ASSERT_EQ(mkfifo(file_.c_str(), 0600), 0);
  EXPECT_TRUE(remember(file_, winner_of(64, "fused")).has_value());
  EXPECT_TRUE(fs::is_fifo(file_));
}

TEST_F(TunerFile, AFileThatCannotBeReadNowIsLeftAlone) {
  ASSERT_EQ(remember(file_, winner_of(64, "fused")), std::nullopt);
  const std::string before = read();
  const auto expect_left_alone = [&](const std::string& why) {
    const std::string note = recall(file_, winner_of(64, "").key).note;
    EXPECT_NE(note.find(file_ + " was ignored: it cannot be read now: " + why), std::string::npos) << note;
    const auto failure = remember(file_, winner_of(1024, "fused"));
    ASSERT_TRUE(failure.has_value());
    EXPECT_NE(failure->find(file_ + " was not written: "), std::string::npos) << *failure;
    EXPECT_NE(failure->find(why), std::string::npos) << *failure;
    EXPECT_EQ(failure->find(file_, 1), std::string::npos) << *failure << ": it names the file twice";
  };
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_NOFILE, &none);
    expect_left_alone("Too many open files");
    _exit(HasFailure() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  fs::rename(file_, folder_ / "elsewhere");
  fs::create_symlink("tuner.json", file_);
  expect_left_alone("Too many levels of symbolic links");
  fs::rename(folder_ / "elsewhere", file_);
  EXPECT_EQ(read(), before);
}

TEST_F(TunerFile, AFileThatOthersMayNotReadIsLeftAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  ASSERT_EQ(remember(file_, winner_of(64, "fused")), std::nullopt);
  const std::string before = read();
  fs::permissions(file_, fs::perms::none);
  fs::permissions(file_ + ".lock", static_cast<fs::perms>(0666));
  for (const fs::path& folder : {folder_, folder_ / "deeper"}) fs::permissions(folder, fs::perms::all);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(2);
    const bool said = recall(file_, winner_of(64, "").key).note.find("Permission denied") != std::string::npos;
    const auto failure = remember(file_, winner_of(1024, "fused"));
    _exit(said && failure && failure->find("Permission denied") != std::string::npos ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read(), before);
}

TEST_F(TunerFile, ALinkLeadsToTheFile) {
  fs::create_directories(folder_ / "deeper");
  fs::create_directories(folder_ / "shared");
  fs::create_symlink("../shared/winners.json", file_);
  ASSERT_EQ(remember(file_, winner_of(64, "fused")), std::nullopt);
  ASSERT_EQ(remember(file_, winner_of(1024, "fused")), std::nullopt);
  EXPECT_TRUE(fs::is_symlink(file_));
  EXPECT_TRUE(fs::is_regular_file(folder_ / "shared" / "winners.json"));
  EXPECT_EQ(json::parse(read()).at("winners").size(), 2U);
}

TEST_F(TunerFile, WritersAtOnceLoseNothing) {
  constexpr int kWriters = 8;
  std::vector<pid_t> children;
  for (int writer = 0; writer < kWriters; ++writer) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      bool good = true;
      for (int i = 0; i < 4; ++i) good = good && !remember(file_, winner_of(int64_t{1} << (4 * writer + i), "fused"));
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(json::parse(read()).at("winners").size(), 4U * kWriters);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "deeper"), fs::directory_iterator()), 2)
      << "only the file and its lock stay behind";
}

}  // namespace
}  // namespace tilewire::tuner
