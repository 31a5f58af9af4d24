// Wrong usage: a clear message on standard error, nothing runs, exit code 2.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "cli/command.hpp"

namespace tilewire::testing {
namespace {

struct BadFlags {
  const char* name;
  const char* args;
  const char* says;  ///< part of the message
};

class Bad : public ::testing::TestWithParam<BadFlags> {};

TEST_P(Bad, IsRefusedWithWords) {
  const Outcome outcome = run_tilewire(GetParam().args);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find(GetParam().says), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

const BadFlags kBadFlags[] = {
    {"NoVerb", "", "subcommand is required"},
    {"UnknownVerb", "frobnicate",
     "unknown verb 'frobnicate'; known: demo, bench, run, plan, check, info, doctor, sim, report"},
    {"UnknownVerbWithHelp", "bogus --help", "unknown verb 'bogus'; known: demo, bench, run"},
    {"NoOperator", "bench -m 1 -n 1", "operator is required"},
    {"UnknownOperator", "bench gemm -m 1 -n 1 -k 1",
     "all_gather_gemm, gemm_reduce_scatter, gemm_all_reduce, gemm_all_to_all, gemm_all_to_all_rows, "
     "all_gather_cols_gemm, gemm_reduce_scatter_cols, all_reduce"},
    {"UnknownOperatorPlan", "plan gemm -m 1 -n 1 -k 1", "unknown operator 'gemm'"},
    {"UnknownOperatorCheck", "check gemm -m 1 -n 1 -k 1", "unknown operator 'gemm'"},
    {"UnknownFlag", "bench all_reduce -m 1 -n 1 --frob", "--frob"},
    {"NoSizes", "bench all_reduce", "-m -n -k, --shapes or --model"},
    {"TwoKindsOfSizes", "bench all_reduce -m 1 -n 1 --model llama3-70b", "one way"},
    {"NoK", "bench gemm_all_reduce -m 1 -n 1", "needs -m, -n and -k"},
    {"NotANumber", "bench all_reduce -m one -n 1", "one"},
    {"NegativeSize", "bench all_reduce -m -5 -n 1", "m = -5 is negative"},
    {"HugeSize", "bench all_reduce -m 99999999999999 -n 4", "m = 99999999999999"},
    {"OverflowingNumber", "bench all_reduce -m 99999999999999999999 -n 4", "m"},
    {"TokensWithoutModel", "bench all_reduce -m 1 -n 1 --tokens 4", "--tokens goes with --model"},
    {"UnknownModel", "bench all_reduce --model llama9", "known: llama3-8b, llama3-70b"},
    {"UnknownSchedule", "bench all_reduce -m 1 -n 1 --schedule best", "known: sequential, fused, two_stream"},
    {"ScheduleRefuses", "plan all_gather_gemm -m 8 -n 8 -k 8 --schedule two_stream", "two_stream cannot do this"},
    {"UnknownKnob", "bench all_reduce -m 1 -n 1 --set tile_q=3", "unknown knob 'tile_q'; known: "},
    {"BadKnobValue", "plan all_reduce -m 1 -n 1 --set tile_m=big", "tile_m"},
    {"KnobOutOfRange", "plan all_reduce -m 1 -n 1 --set tile_m=0", "tile_m"},
    {"KnobWithoutValue", "plan all_reduce -m 1 -n 1 --set tile_m", "KNOB=VALUE"},
    {"KnobWithAuto", "bench all_reduce -m 1 -n 1 --schedule auto --set tile_m=64", "not with auto"},
    {"UnknownDtype", "bench all_reduce -m 1 -n 1 --dtype fp8", "--dtype: unknown 'fp8'; known: fp32, bf16, fp16\n"},
    {"IntegerDtype", "bench all_reduce -m 1 -n 1 --dtype int32", "--dtype: unknown 'int32'; known: fp32, bf16, fp16\n"},
    {"IntegerOutDtype", "bench all_reduce -m 1 -n 1 --out-dtype int32", "--out-dtype: unknown 'int32'; known: fp32"},
    {"UnknownLayout", "bench gemm_all_reduce -m 1 -n 1 -k 1 --b-layout nn", "--b-layout: unknown 'nn'; known: nk, kn"},
    {"UnknownReduction", "bench all_reduce -m 1 -n 1 --reduction fast",
     "--reduction: unknown 'fast'; known: repeatable, any"},
    {"GatheredOfNothing", "plan gemm_all_reduce -m 1 -n 1 -k 1 --gathered",
     "gathered_output: gemm_all_reduce has no gather"},
    {"UnknownArenaBuffer", "plan all_reduce -m 1 -n 1 --arena z", "no buffer 'z'"},
    {"UnknownBackend", "bench all_reduce -m 1 -n 1 --backend abacus", "known: host, cuda"},
    {"UnknownBackendOfAPlan", "plan all_reduce -m 1 -n 1 --backend abacus", "known: host, cuda"},
    {"TooManyRanks", "bench all_reduce -m 1 -n 1 --ranks 100", "100 ranks"},
    {"NoRanks", "bench all_reduce -m 1 -n 1 --ranks 0", "0 ranks"},
    {"NoIterations", "bench all_reduce -m 1 -n 1 --iters 0", "--iters 0"},
    {"NegativeTimeout", "plan all_reduce -m 1 -n 1 --timeout -3", "--timeout: want more than 0 seconds, got -3"},
    {"NoArena", "bench all_reduce -m 1 -n 1 --arena-gib 0",
     "--arena-gib 0: want more than 0, and at most 8192 for 4 ranks"},
    {"HugeArena", "bench all_reduce -m 1 -n 1 --ranks 1 --arena-gib 1e5", "and at most 32768 for 1 rank\n"},
    {"SeedOfAPlan", "plan all_reduce -m 1 -n 1 --seed 3", "--seed"},
    {"OneFileForTwo", "bench all_reduce -m 1 -n 1 --json new.json --trace ./new.json",
     "--trace ./new.json: is also --json"},
    {"TraceOnStandardOutput", "bench all_reduce -m 1 -n 1 --trace -", "--trace -: want a file"},
    {"TraceOfARunOnStandardOutput", "run all_reduce --trace - --input x=/nowhere{rank}.npy", "--trace -: want a file"},
    {"UnknownOrder", "bench all_reduce -m 1 -n 1 --order some", "--order: unknown 'some'; known: any, stream"},
    {"UnknownStep", "bench gemm_all_reduce -m 1 -n 1 -k 1 --epilogue tanh", "--epilogue"},
    {"StepWithAValue", "plan gemm_all_reduce -m 1 -n 1 -k 1 --epilogue gelu=2", "only scale has a value"},
    {"ScaleWithoutAValue", "plan gemm_all_reduce -m 1 -n 1 -k 1 --epilogue scale", "want scale=FACTOR"},
    {"ScaleByAWord", "plan gemm_all_reduce -m 1 -n 1 -k 1 --epilogue scale=much", "want a number behind scale="},
    {"PairsAndBias", "plan all_gather_gemm -m 1 -n 1 -k 1 --bias --epilogue swiglu_pairs", "want it alone"},
    {"PairsOfSums", "plan gemm_all_reduce -m 1 -n 1 -k 1 --epilogue swiglu_pairs", "only all_gather_gemm has it"},
    {"BiasTwice", "plan gemm_all_reduce -m 1 -n 1 -k 1 --bias --epilogue gelu,bias", "must be the first"},
    {"TwoResiduals", "plan gemm_all_reduce -m 1 -n 1 -k 1 --epilogue residual,residual", "2 residuals"},
    {"NormOfColumns", "plan gemm_reduce_scatter_cols -m 4 -n 4 -k 4 --norm rms", "only whole rows of sums"},
    {"NormKind", "plan all_reduce -m 1 -n 1 --norm batch", "--norm"},
    {"NormEps", "plan all_reduce -m 1 -n 1 --norm rms --norm-eps 0", "eps = 0: want more than 0"},
    {"NormEpsAlone", "plan all_reduce -m 1 -n 1 --norm-eps 0.5", "--norm-eps 0.5: goes with --norm"},
    {"NormOutDtype", "plan all_reduce -m 1 -n 8 --norm rms --norm-out-dtype fp16", "out_dtype = fp16: want fp8_e4m3"},
    {"NormOutDtypeAlone", "plan all_reduce -m 1 -n 8 --norm-out-dtype int8", "--norm-out-dtype int8: goes with --norm"},
    {"NormOfNoColumns", "plan all_reduce -m 1 -n 0 --norm rms", "n = 0: a norm of no columns is undefined"},
    {"NoTimeout", "bench all_reduce -m 1 -n 1 --timeout 0", "--timeout: want more than 0 seconds, got 0"},
    {"NoShapesFile", "bench all_reduce --shapes /nowhere.json",
     "/nowhere.json: cannot open it: No such file or directory"},
    {"NoPlanFile", "check /nowhere.json", "/nowhere.json"},
    {"RunAllSchedules", "run all_reduce --schedule all --input x=/nowhere{rank}.npy", "--schedule all"},
    {"RunWithoutInput", "run all_reduce -m 4 -n 4", "--input x=FILE"},
    {"RunUnknownInput", "run all_reduce -m 4 -n 4 --input q=/nowhere.npy", "no input 'q'"},
    {"RunUnknownInputWithoutSizes", "run gemm_all_reduce --input z=/nowhere.npy", "has no input 'z'; it has: a, b\n"},
    {"RunWithoutOneInput", "run gemm_all_reduce --input a=/nowhere.npy", "no file for input 'b': give --input b=FILE"},
    {"RunWithoutBias", "run gemm_all_reduce --input a=/nowhere.npy --input b=/nowhere.npy --bias",
     "no file for input 'bias'"},
    {"RunForNothing", "run all_reduce -m 4 -n 4 --input x=/nowhere{rank}.npy",
     "give --output NAME=FILE, --verify or --trace FILE"},
    {"RunWithoutAFile", "run all_reduce --verify --input x=/nowhere{rank}.npy", "/nowhere0.npy: No such file"},
};

INSTANTIATE_TEST_SUITE_P(Flags, Bad, ::testing::ValuesIn(kBadFlags),
                         [](const auto& bad) { return std::string(bad.param.name); });

TEST(Output, ThatIsLostIsAnError) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  const std::string sizes = " -m 16 -n 16 --ranks 2";
  for (const std::string& args :
       {"plan all_reduce --json -" + sizes, "plan all_reduce" + sizes, "check all_reduce --quiet" + sizes,
        "bench all_reduce --iters 1 --json -" + sizes, "bench all_reduce --iters 1" + sizes, std::string("info"),
        std::string("info --json -"), std::string("--version"), std::string("bench --help")}) {
    const Outcome outcome = run_tilewire_on_full_device(args);
    EXPECT_EQ(outcome.code, 2) << args << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find("standard output"), std::string::npos) << args << "\n" << outcome.err;
  }
}

struct BadShapes {
  const char* name;
  const char* text;
  const char* says;
};

class Shapes : public ::testing::TestWithParam<BadShapes> {};

TEST_P(Shapes, BadFileIsRefused) {
  const std::string path = fresh_folder() + "/shapes.json";
  write_text(path, GetParam().text);
  const Outcome outcome = run_tilewire("plan gemm_all_reduce --summary --shapes " + path);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find(GetParam().says), std::string::npos) << outcome.err;
}

const BadShapes kBadShapes[] = {
    {"NotJson", "[{\"m\": 4", "malformed JSON"},
    {"NotJsonInLineTwo", "[\n {\"m\": }]",
     "shapes.json: malformed JSON: [json.exception.parse_error.101] parse error at line 2, column 8"},
    {"Negative", "[{\"m\": 4, \"n\": 4, \"k\": 4}, {\"m\": -5, \"n\": 4, \"k\": 4}]",
     "shapes.json[1]: m = -5 is negative"},
    {"NoList", "{\"m\": 4}", "want a list"},
    {"Empty", "[]", "want a list"},
    {"NoK", "[{\"m\": 4, \"n\": 4}]", "no 'k'"},
    {"Text", "[{\"m\": \"4\"}]", "want an integer"},
    {"UnknownField", "[{\"M\": 4}]", "unknown field 'M'"},
    {"NotObject", "[4]", "[0]"},
};

INSTANTIATE_TEST_SUITE_P(Files, Shapes, ::testing::ValuesIn(kBadShapes),
                         [](const auto& bad) { return std::string(bad.param.name); });

TEST(ShapesFile, FlagsAreNoEntrysFault) {
  const std::string path = fresh_folder() + "/shapes.json";
  write_text(path, R"([{"m": 4, "n": 4, "k": 4}])");
  const Outcome outcome = run_tilewire("plan gemm_all_reduce --dtype fp8 --shapes " + path);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_EQ(outcome.err, "tilewire: --dtype: unknown 'fp8'; known: fp32, bf16, fp16\n");
}

TEST(Ranks, OneAloneOfTwoTimesOut) {
  const Outcome outcome = run_tilewire("bench all_reduce -m 4 -n 4 --timeout 0.5",
                                       "RANK=0 WORLD_SIZE=2 TILEWIRE_JOB=alone" + std::to_string(::getpid()));
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_NE(outcome.err.find("rank 1"), std::string::npos) << outcome.err;
}

TEST(Ranks, AKilledOneIsLost) {
  const std::string folder = fresh_folder();
  // Kill a child of the launching process when the table's head is there: all ranks have met then.
  write_text(folder + "/kill.sh", TILEWIRE_COMMAND " bench all_reduce -m 64 -n 64 --ranks 3 --iters 100000000 >" +
                                      folder + "/out.txt 2>" + folder + R"(/err.txt &
launcher=$!
for turn in $(seq 200); do [ -s )" + folder +
                                      R"(/out.txt ] && break; sleep 0.1; done
rank=$(cat /proc/[0-9]*/stat 2>/dev/null | awk -v parent=$launcher '$4 == parent { pid = $1 } END { print pid }')
kill -9 $rank || { kill -9 $launcher; exit 99; }
wait $launcher
)");
  const int status = std::system(("sh " + folder + "/kill.sh").c_str());
  const std::string error = read_text(folder + "/err.txt");
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3) << error;
  EXPECT_NE(error.find("rank"), std::string::npos) << error;
}

TEST(Ranks, MustAgreeWithTheLauncher) {
  const Outcome outcome = run_tilewire("bench all_reduce -m 4 -n 4 --ranks 3", "RANK=0 WORLD_SIZE=2");
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find("--ranks 3, but the launcher started 2"), std::string::npos) << outcome.err;
}

TEST(Ranks, FromTheEnvironmentOnlyRankZeroPrints) {
  const std::string job = "TILEWIRE_JOB=pair" + std::to_string(::getpid());
  const std::string args = "bench all_reduce -m 64 -n 64 --iters 1";
  const std::string other = std::string("RANK=1 WORLD_SIZE=2 ") + job + " " TILEWIRE_COMMAND " " + args;
  const std::string folder = fresh_folder();
  // The shell starts rank 1 in the background, then rank 0.
  const std::string script = folder + "/both.sh";
  write_text(script, other + " >" + folder + "/one.txt 2>&1 &\nRANK=0 WORLD_SIZE=2 " + job + " " TILEWIRE_COMMAND " " +
                         args + " >" + folder + "/zero.txt 2>&1\ncode=$?\nwait $! || exit 9\nexit $code\n");
  EXPECT_EQ(std::system(("sh " + script).c_str()), 0)
      << read_text(folder + "/zero.txt") << read_text(folder + "/one.txt");
  EXPECT_EQ(read_text(folder + "/one.txt"), "");
  EXPECT_NE(read_text(folder + "/zero.txt").find("2 ranks"), std::string::npos);
}

}  // namespace
}  // namespace tilewire::testing
