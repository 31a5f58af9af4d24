// Invalid JSON files for every flag that takes one: exit code 2, and a sentence that names the file.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"

namespace tilewire::testing {
namespace {

using nlohmann::json;

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

/// A command that reads FILE.
const char* const kReaders[] = {
    "check FILE",
    "sim FILE --machine h200x4",
    "sim all_reduce -m 64 -n 64 --machine FILE",
    "sim all_reduce --shapes FILE --machine h200x4",
    "sim all_reduce -m 64 -n 64 --machine h200x4 --configs FILE",
    "sim --compare FILE --machine h200x4",
    "plan all_reduce --summary --shapes FILE",
    "bench all_reduce -m 8 -n 8 --ranks 2 --iters 1 --configs FILE",
};

class ForeignFile : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Readers, ForeignFile, ::testing::ValuesIn(kReaders));

TEST_P(ForeignFile, IsRefusedInASentence) {
  const std::string path = fresh_folder() + "/foreign.json";
  std::string command = GetParam();
  command.replace(command.find("FILE"), 4, path);
  const std::pair<std::string, const char*> texts[] = {
      {repeated("[", 100'000) + repeated("]", 100'000), "deeper than 100 levels"},
      {repeated("{\"m\":", 100'000), "deeper than 100 levels"},
      {"{\"name\": \"\xff\"}", "malformed JSON"},
      {"[{\"m\": 4, \"m\": 5}]", "key \"m\" appears twice"},
      {"{\"problem\": {\"op\": \"all_reduce\", \"op\": \"x\"}}", "key \"op\" appears twice"},
      {"[{\"m\": " + repeated("[", 90) + repeated("]", 90) + ", \"n\": 4}]", ""},
      {"[{\"name\": " + repeated("{\"a\":", 90) + "1" + repeated("}", 90) + "}]", ""},
      {"", "malformed JSON"},
  };
  for (const auto& [text, words] : texts) {
    write_text(path, text);
    const Outcome outcome = run_tilewire(command);
    EXPECT_EQ(outcome.code, 2) << command << "\n" << text.substr(0, 60) << "\n" << outcome.err.substr(0, 400);
    EXPECT_NE(outcome.err.find("foreign.json"), std::string::npos) << outcome.err.substr(0, 400);
    EXPECT_NE(outcome.err.find(words), std::string::npos) << command << ": " << outcome.err.substr(0, 400);
    EXPECT_LT(outcome.err.size(), 1'000U);
  }
}

TEST(ForeignNames, FilesOfAnyBytesMayBeRead) {
  const std::string folder = fresh_folder();
  const std::string machine = folder + "/m\xe9.json";
  const std::string plan = folder + "/p\xe9.json";
  std::string text = run_tilewire("sim --show --machine h200x4").out;
  json without_name = json::parse(text);
  without_name.erase("name");
  write_text(machine, without_name.dump());
  const Outcome sim = run_tilewire("sim all_reduce -m 64 -n 64 --machine " + machine + " --json " + folder + "/s.json");
  ASSERT_EQ(sim.code, 0) << sim.err;
  EXPECT_EQ(json::parse(read_text(folder + "/s.json"))["machine"]["name"], "m\xEF\xBF\xBD");
  ASSERT_EQ(run_tilewire("plan all_reduce -m 8 -n 8 --ranks 2 --schedule sequential --json " + plan).code, 0);
  const Outcome of_plan = run_tilewire("sim " + plan + " --machine h200x4 --json " + folder + "/p.json");
  ASSERT_EQ(of_plan.code, 0) << of_plan.err;
  EXPECT_FALSE(json::parse(read_text(folder + "/p.json")).empty());
}

TEST(ForeignNames, FlagsOfAnyBytesEndInASentence) {
  for (const char* flags : {"--set tile_order='\xfc'", "--schedule '\xfc'", "--dtype '\xfc'", "--arena '\xfc'",
                            "--b-layout '\xfc'", "--set tile_m=$(printf '[%.0s' $(seq 20000))"}) {
    const Outcome outcome = run_tilewire(std::string("bench all_reduce -m 8 -n 8 --ranks 2 ") + flags);
    EXPECT_EQ(outcome.code, 2) << flags << outcome.err;
  }
  EXPECT_EQ(run_tilewire("bench '\xfc' -m 8 -n 8").code, 2);
}

TEST(ForeignTunerFile, IsIgnoredWithANote) {
  const std::string file = fresh_folder() + "/tuner.json";
  for (const std::string& text :
       {repeated("[", 100'000), std::string("{\"format\": 2, \"format\": 2, \"winners\": []}"),
        "{\"format\": 2, \"winners\": [" + repeated("{\"key\":", 50'000) + "}", std::string("{\"format\": \"\xff\"}"),
        std::string(R"({"format": 2, "winners": [{"key": 1, "config": 2}, 3, [], null]})")}) {
    write_text(file, text);
    const Outcome outcome = run_tilewire("bench gemm_all_reduce -m 8 -n 8 -k 8 --ranks 2 --iters 1 --schedule auto",
                                         "TILEWIRE_TUNER_FILE=" + file);
    EXPECT_EQ(outcome.code, 0) << outcome.err.substr(0, 400);
    EXPECT_NE(outcome.out.find("tuner.json was ignored: "), std::string::npos) << outcome.out;
  }
}

}  // namespace
}  // namespace tilewire::testing
