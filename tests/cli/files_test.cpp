// The files that the command writes: devices, pipes, links and mounted files; names with {rank}; files that collide.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/command.hpp"
#include "cli/npy.hpp"

namespace tilewire::testing {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSize = 24;

/// `run` and its inputs: A is the identity, all elements of B are different.
class Written : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fresh_folder();
    ::setenv("TMPDIR", fresh_below("tmp").c_str(), 1);
    std::vector<float> a(kSize * kSize);
    b_.resize(kSize * kSize);
    for (int64_t i = 0; i < kSize * kSize; ++i) {
      a[i] = i % (kSize + 1) == 0 ? 1.0F : 0.0F;
      b_[(i % kSize) * kSize + i / kSize] = static_cast<float>(i);
    }
    save(at("a.npy"), a);
    save(at("b.npy"), b_);
    // C = A * B^T, so B's rows as columns.
    ASSERT_EQ(run_tilewire(command("c=" + at("wanted.npy"))).code, 0);
    wanted_ = read_text(at("wanted.npy"));
    ASSERT_GT(wanted_.size(), kSize * kSize * sizeof(float));
  }
  void TearDown() override {
    ::unsetenv("TMPDIR");
    EXPECT_TRUE(fs::is_empty(folder_ + "/tmp"));
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      EXPECT_EQ(entry.path().string().find(".tilewire."), std::string::npos) << entry.path();
    }
  }
  [[nodiscard]] std::string at(const std::string& name) const { return folder_ + "/" + name; }
  std::string fresh_below(const std::string& name) const {
    fs::create_directories(at(name));
    return at(name);
  }
  static void save(const std::string& path, std::vector<float> values) {
    const auto header = cli::create_npy(path, {.dtype = DType::fp32, .rows = kSize, .cols = kSize});
    cli::write_npy_block(path, header, 0, 0, make_tensor(values.data(), DType::fp32, kSize, kSize));
  }
  /// Of `run`, without the word tilewire.
  [[nodiscard]] std::string command(const std::string& output, const std::string& more = "") const {
    return "run gemm_reduce_scatter --ranks 2 --schedule sequential --input a=" + at("a.npy") +
           " --input b=" + at("b.npy") + " --output '" + output + "' " + more;
  }
  /// By bash, which has <( ) and pipes; the words' exit status.
  [[nodiscard]] Outcome shell(const std::string& script) const {
    write_text(at("script"), script);
    const int status = std::system(("bash " + at("script") + " >" + at("out") + " 2>" + at("err")).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_text(at("out")),
            read_text(at("err"))};
  }

  std::string folder_;
  std::vector<float> b_;
  std::string wanted_;
};

constexpr const char* kTilewire = TILEWIRE_COMMAND " ";
constexpr const char* kBench = "bench all_reduce -m 8 -n 8 --ranks 2 --iters 1 --schedule sequential ";

TEST_F(Written, ADeviceStaysOne) {
  if (::mknod(at("null").c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0 || !std::ofstream(at("null")))
    GTEST_SKIP() << "no devices here";
  const auto expect_device = [&](const std::string& args) {
    const Outcome outcome = run_tilewire(args);
    EXPECT_EQ(outcome.code, 0) << args << outcome.err;
    EXPECT_TRUE(fs::is_character_file(fs::symlink_status(at("null")))) << args;
  };
  expect_device(command("c=" + at("null"), "--trace " + at("null")));
  expect_device(kBench + ("--json " + at("null")) + " --trace " + at("null"));
  expect_device("info --json " + at("null"));
  expect_device("plan all_reduce -m 8 -n 8 --json " + at("null"));
  expect_device("sim all_reduce --bytes 1024 --topology ring:4 --json " + at("null") + " --trace " + at("null"));
}

TEST_F(Written, PipesAndStandardOutputGetTheWholeResult) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  const Outcome pipe = shell("cat " + at("pipe") + " >" + at("got") + " &\n" + kTilewire + command("c=" + at("pipe")) +
                             " || exit 1\nwait");
  EXPECT_EQ(pipe.code, 0) << pipe.err;
  EXPECT_EQ(read_text(at("got")), wanted_);
  // NOTE: the quotes of command() are those of a word, which a substitution ends.
  const Outcome substituted =
      shell("set -o pipefail; " + std::string(kTilewire) +
            command("c='>(cat >" + at("of_cat") + "; touch " + at("done") + ")'") +
            " || exit 1; for i in $(seq 100); do [ -e " + at("done") + " ] && break; sleep 0.05; done");
  EXPECT_EQ(substituted.code, 0) << substituted.err;
  EXPECT_EQ(read_text(at("of_cat")), wanted_);
  for (const char* out : {">", ">>", "| cat >"}) {
    const Outcome standard = shell(kTilewire + command("c=/dev/stdout") + out + at("stdout"));
    EXPECT_EQ(standard.code, 0) << standard.err;
    const std::string all = read_text(at("stdout"));
    EXPECT_EQ(all.substr(0, wanted_.size()), wanted_) << out;
    EXPECT_NE(all.find("c in /dev/stdout"), std::string::npos) << out;
    fs::remove(at("stdout"));
  }
}

TEST_F(Written, AReaderThatHasGoneAndAFullDeviceAreErrors) {
  const Outcome gone = shell(kTilewire + command("c='>(exit 0)'") + "; echo $?");
  EXPECT_EQ(gone.out, "2\n") << gone.err;
  EXPECT_NE(gone.err.find("cannot write it: Broken pipe"), std::string::npos) << gone.err;
  const Outcome table =
      shell("set -o pipefail; { " + std::string(kTilewire) + kBench + "; echo $? >" + at("code") + "; } | true");
  EXPECT_EQ(read_text(at("code")), "2\n") << table.err;
  EXPECT_NE(table.err.find("standard output: cannot write it"), std::string::npos) << table.err;
  if (::access("/dev/full", W_OK) != 0) return;
  for (const std::string& args : {command("c=/dev/full"), kBench + std::string("--json /dev/full"),
                                  kBench + std::string("--trace /dev/full"), std::string("info --json /dev/full")}) {
    const Outcome full = run_tilewire(args);
    EXPECT_EQ(full.code, 2) << args << full.err;
    EXPECT_NE(full.err.find("/dev/full: cannot write it: No space left on device; its new content is lost"),
              std::string::npos)
        << full.err;
  }
}

TEST_F(Written, AMountedFileIsWrittenInPlace) {
  write_text(at("host.npy"), std::string(100'000, 'x'));
  write_text(at("c.npy"), "");
  if (::mount(at("host.npy").c_str(), at("c.npy").c_str(), nullptr, MS_BIND, nullptr) != 0)
    GTEST_SKIP() << "no mounts here";
  const Outcome outcome = run_tilewire(command("c=" + at("c.npy")));
  ASSERT_EQ(::umount(at("c.npy").c_str()), 0);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(read_text(at("host.npy")), wanted_);
}

TEST_F(Written, UsersFilesAndLinksStay) {
  write_text(at("c.npy.partial"), "mine");
  write_text(at("target.npy"), "old");
  fs::create_symlink("target.npy", at("c.npy"));
  fs::create_symlink("target.json", at("c.json"));
  ASSERT_EQ(::chmod(at("target.npy").c_str(), 0640), 0);
  EXPECT_EQ(run_tilewire(command("c=" + at("c.npy"), "--trace " + at("c.json"))).code, 0);
  EXPECT_EQ(read_text(at("c.npy.partial")), "mine");
  EXPECT_TRUE(fs::is_symlink(at("c.npy")));
  EXPECT_TRUE(fs::is_symlink(at("c.json")));
  EXPECT_EQ(read_text(at("target.npy")), wanted_);
  EXPECT_EQ(fs::status(at("target.npy")).permissions(), static_cast<fs::perms>(0640));
  EXPECT_EQ(read_text(at("target.json")).substr(0, 1), "{");
}

TEST_F(Written, TheRankStandsEverywhereInAPath) {
  for (const char* rank : {"0", "1"}) {
    fresh_below(std::string("r") + rank);
    fresh_below(std::string("in") + rank + "/" + rank);
    for (const char* name : {"a", "b"}) {
      std::vector<float> half(kSize * kSize / 2);
      const cli::NpyHeader header = cli::read_npy_header(at(name + std::string(".npy")), DType::fp32);
      const Tensor tensor = make_tensor(half.data(), DType::fp32, kSize, kSize / 2);
      cli::read_npy_block(at(name + std::string(".npy")), header, 0, *rank == '0' ? 0 : kSize / 2, tensor);
      const std::string path = at(std::string("in") + rank + "/" + rank + "/" + name + ".npy");
      cli::write_npy_block(path, cli::create_npy(path, {.dtype = DType::fp32, .rows = kSize, .cols = kSize / 2}), 0, 0,
                           tensor);
    }
  }
  const std::string in = at("in{rank}/{rank}/");
  const Outcome outcome =
      run_tilewire("run gemm_reduce_scatter -m 24 -n 24 -k 24 --ranks 2 --schedule fused --input 'a=" + in +
                   "a.npy' --input 'b=" + in + "b.npy' --output 'c=" + at("r{rank}/c_{rank}{rank}.npy") + "'");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string upper = read_text(at("r0/c_00.npy"));
  const std::string lower = read_text(at("r1/c_11.npy"));
  const size_t bytes = kSize * kSize * sizeof(float);
  EXPECT_EQ(upper.substr(upper.size() - bytes / 2) + lower.substr(lower.size() - bytes / 2),
            wanted_.substr(wanted_.size() - bytes));
}

TEST_F(Written, FilesThatMeetAreRefusedBeforeTheWork) {
  write_text(at("one.json"), "[{\"m\": 8, \"n\": 8}]");
  fs::create_hard_link(at("one.json"), at("hard.json"));
  fs::create_symlink("one.json", at("soft.json"));
  fs::create_symlink(".", at("here"));
  fs::create_symlink("c0.npy", at("c1.npy"));
  const std::string bench = "bench all_reduce --ranks 2 --iters 1 --schedule sequential ";
  const auto refused = [&](const std::string& args, const std::string& says) {
    const Outcome outcome = run_tilewire(args);
    EXPECT_EQ(outcome.code, 2) << args;
    EXPECT_NE(outcome.err.find(says), std::string::npos) << args << "\n" << outcome.err;
    EXPECT_EQ(outcome.out, "") << args;
  };
  refused(bench + "-m 8 -n 8 --json " + at("hard.json") + " --trace " + at("soft.json"),
          "--trace " + at("soft.json") + ": is also --json");
  refused(bench + "-m 8 -n 8 --json " + at("new.json") + " --trace " + at("here/new.json"), ": is also --json");
  refused(bench + "--shapes " + at("one.json") + " --json " + at("hard.json"),
          "--json " + at("hard.json") + ": --shapes would be overwritten");
  refused("plan all_reduce --shapes " + at("one.json") + " --json " + at("./one.json"), ": --shapes would be");
  refused(command("c=" + at("a.npy")), "--output c=" + at("a.npy") + ": --input a would be overwritten");
  refused(command("c=" + at("here/b.npy")), ": --input b would be overwritten");
  refused(command("c=" + at("c.npy"), "--trace " + at("here/c.npy")), ": is also --trace");
  refused(command("c=" + at("c{rank}.npy")), "--output c=" + at("c1.npy") + ": is also --output c");
  const std::string gathered = "run all_gather_gemm --ranks 2 --schedule fused --input a=" + at("a.npy") +
                               " --input b=" + at("b.npy") + " --output gathered=" + at("x.npy");
  refused(gathered + " --output c=" + at("./x.npy"), ": is also --output c");
  // The tuner's file is read and written.
  const std::string tuned_run = "run gemm_reduce_scatter --ranks 2 --schedule auto --input a=" + at("a.npy") +
                                " --input b=" + at("b.npy") + " --output c=";
  const auto refused_tuner = [&](const std::string& args, const std::string& file, const std::string& says) {
    const Outcome outcome = run_tilewire(args, "TILEWIRE_TUNER_FILE=" + at(file));
    EXPECT_EQ(outcome.code, 2) << args;
    EXPECT_NE(outcome.err.find(says), std::string::npos) << args << "\n" << outcome.err;
  };
  refused_tuner(tuned_run + at("t.json"), "t.json", "is also the tuner's file");
  refused_tuner(tuned_run + at("c.npy"), "a.npy", "--input a would be overwritten");
  refused_tuner("bench all_reduce --ranks 2 --schedule auto --shapes " + at("one.json"), "soft.json",
                "--shapes would be overwritten");
  // The tables are output, too.
  const Outcome tables = shell(kTilewire + bench + "-m 8 -n 8 --json " + at("out"));
  EXPECT_EQ(tables.code, 2);
  EXPECT_NE(tables.err.find(": is also standard output"), std::string::npos) << tables.err;
  EXPECT_EQ(run_tilewire(bench + "-m 8 -n 8 --json /dev/null --trace /dev/null").code, 0) << "takes anything";
  EXPECT_EQ(read_text(at("one.json")), "[{\"m\": 8, \"n\": 8}]");
}

TEST_F(Written, ATableThatIsLostLosesNoFile) {
  for (const std::string& verb :
       {std::string(kBench), std::string("sim all_reduce -m 64 -n 64 --machine h200x4 --schedule sequential "),
        std::string("sim --compare " + at("rows.json") + " --machine h200x4 ")}) {
    if (verb.starts_with("sim --compare")) {
      ASSERT_EQ(run_tilewire(kBench + ("--json " + at("rows.json"))).code, 0);
    }
    fs::remove(at("x.json"));
    const Outcome full = run_tilewire_on_full_device(verb + "--json " + at("x.json"));
    EXPECT_EQ(full.code, 2) << verb;
    EXPECT_NE(full.err.find("standard output: cannot write it"), std::string::npos) << full.err;
    EXPECT_FALSE(nlohmann::json::parse(read_text(at("x.json"))).empty()) << verb;
  }
}

TEST_F(Written, AReaderThatHasGoneIsAnErrorNotASignal) {
  for (const char* args : {"--version", "bench --help", "info", "bogus"}) {
    const Outcome outcome = shell(std::string(kTilewire) + args + " > >(exec true) 2> >(exec true); sleep 0.1; " +
                                  kTilewire + args + " | true; exit ${PIPESTATUS[0]}");
    EXPECT_LE(outcome.code, 2) << args << outcome.err;
  }
}

TEST_F(Written, AClosedFolderAboveAndALongOneDoNotMatterToRelativePaths) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs another user";
  fs::create_directories(at("closed/open"));
  fs::permissions(at("closed/open"), fs::perms::all);
  ASSERT_EQ(::chmod(at("closed").c_str(), 0700), 0);
  const std::string as_nobody = "setpriv --reuid=65534 --clear-groups env HOME=/ TMPDIR=/tmp ";
  const Outcome outcome = shell("cd " + at("closed/open") + " && " + as_nobody + kTilewire + "info --json x.json");
  if (outcome.code == 126 || outcome.code == 127 || outcome.err.find("setpriv") != std::string::npos)
    GTEST_SKIP() << outcome.err;
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(fs::exists(at("closed/open/x.json")));
}

TEST_F(Written, AResultWithoutRoomIsNamedByItsOwnName) {
  fs::create_directories(at("small"));
  if (::mount("tmpfs", at("small").c_str(), "tmpfs", 0, "size=8k") != 0) GTEST_SKIP() << "no mounts here";
  const Outcome outcome = run_tilewire(command("c=" + at("small/c.npy"), "-m 24") + "");
  const std::string big = "run all_gather_gemm --ranks 2 --schedule fused --input a=" + at("a.npy") +
                          " --input b=" + at("b.npy") + " --output gathered=" + at("small/g.npy") +
                          " --output c=" + at("small/c2.npy");
  std::string text = outcome.err;
  for (int i = 0; i < 4 && text.empty(); ++i)
    text = run_tilewire(big).err + run_tilewire(command("c=" + at("small/c" + std::to_string(i) + ".npy"))).err;
  ::umount(at("small").c_str());
  ASSERT_NE(text, "") << "it had room";
  EXPECT_NE(text.find("No space left on device; its new content is lost"), std::string::npos) << text;
  EXPECT_EQ(text.find(".tilewire."), std::string::npos) << text;
}

}  // namespace
}  // namespace tilewire::testing
