// Plans as execution traces: graphs that can run, with the bytes and the FLOP of the plan, and files that protobuf can
// read. Built as the target `chakra_test`.
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "chakra.pb.h"
#include "every.hpp"
#include "operator_names.hpp"
#include "schedules/variants.hpp"
#include "studies/chakra_files.hpp"
#include "studies/run_studies.hpp"
#include "tilewire/error.hpp"
#include "tilewire/print.hpp"
#include "tilewire/sim/sim.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire::cli {
namespace {

using google::protobuf::io::CodedInputStream;

// A rank's file, read in the way of its users.
struct File {
  ChakraProtoMsg::GlobalMetadata head;
  std::vector<ChakraProtoMsg::Node> nodes;
};

template <class Message>
bool read_one(CodedInputStream& stream, Message& message) {
  uint32_t size = 0;
  if (!stream.ReadVarint32(&size)) return false;
  const CodedInputStream::Limit limit = stream.PushLimit(static_cast<int>(size));
  EXPECT_TRUE(message.ParseFromCodedStream(&stream));
  EXPECT_EQ(stream.BytesUntilLimit(), 0);
  stream.PopLimit(limit);
  return true;
}

File read_file(const std::string& text) {
  CodedInputStream stream(reinterpret_cast<const uint8_t*>(text.data()), static_cast<int>(text.size()));
  File file;
  EXPECT_TRUE(read_one(stream, file.head));
  for (ChakraProtoMsg::Node node; read_one(stream, node); node.Clear()) file.nodes.push_back(node);
  return file;
}

std::vector<File> files_of(const Plan& plan) {
  const ChakraTraces traces = chakra_of(plan);
  std::vector<File> files;
  for (int rank = 0; rank < std::ssize(traces.ranks); ++rank) {
    files.push_back(read_file(trace_text(traces.ranks[rank], plan, rank)));
  }
  return files;
}

int64_t value_of(const ChakraProtoMsg::Node& node, const std::string& name) {
  for (const ChakraProtoMsg::AttributeProto& each : node.attr()) {
    if (each.name() != name) continue;
    if (each.has_int64_val()) return each.int64_val();
    if (each.has_int32_val()) return each.int32_val();
    return each.has_bool_val() ? each.bool_val() : static_cast<int64_t>(each.uint64_val());
  }
  ADD_FAILURE() << node.name() << " has no " << name;
  return 0;
}

bool ends_with(const std::string& text, const std::string& end) { return text.ends_with(end); }

// Every dependency is an earlier node: ids are distinct, nothing is missing, there is no cycle.
void expect_order(const File& file) {
  for (size_t i = 0; i < file.nodes.size(); ++i) {
    const ChakraProtoMsg::Node& node = file.nodes[i];
    EXPECT_EQ(node.id(), i);
    for (const uint64_t before : node.data_deps()) EXPECT_LT(before, node.id()) << node.name();
    for (const uint64_t before : node.ctrl_deps()) EXPECT_LT(before, node.id()) << node.name();
    if (i > 0 && node.type() != ChakraProtoMsg::COMM_RECV_NODE) {
      EXPECT_GT(node.data_deps_size() + node.ctrl_deps_size(), 0) << node.name() << " begins at time 0";
    }
    if (node.type() != ChakraProtoMsg::COMP_NODE) continue;
    EXPECT_EQ(value_of(node, "is_cpu_op"), 0) << "ASTRA-sim's statistics do not take it";
    EXPECT_GE(value_of(node, "num_ops"), 1) << "ASTRA-sim divides by it";
    EXPECT_GE(value_of(node, "tensor_size"), 1) << "ASTRA-sim skips it, and wakes nothing";
  }
}

// Each message from one rank to another is sent once and received once, with its size.
void expect_pairs(const std::vector<File>& files) {
  std::map<std::tuple<int64_t, int64_t, int64_t>, std::vector<int64_t>> sent, received;
  for (int64_t rank = 0; rank < std::ssize(files); ++rank) {
    for (const ChakraProtoMsg::Node& node : files[rank].nodes) {
      const bool sends = node.type() == ChakraProtoMsg::COMM_SEND_NODE;
      if (!sends && node.type() != ChakraProtoMsg::COMM_RECV_NODE) continue;
      const std::tuple key{value_of(node, "comm_src"), value_of(node, "comm_dst"), value_of(node, "comm_tag")};
      EXPECT_EQ(sends ? std::get<0>(key) : std::get<1>(key), rank);
      EXPECT_NE(std::get<0>(key), std::get<1>(key));
      EXPECT_GE(value_of(node, "comm_size"), 1);
      (sends ? sent : received)[key].push_back(value_of(node, "comm_size"));
    }
  }
  EXPECT_EQ(sent, received);
  for (const auto& [key, sizes] : sent) EXPECT_EQ(sizes.size(), 1) << "tag " << std::get<2>(key);
}

// Run the graphs of all ranks together; returns how many nodes never run.
size_t left_over(const std::vector<File>& files) {
  std::vector<std::vector<bool>> ran;
  for (const File& file : files) ran.emplace_back(file.nodes.size());
  std::map<std::tuple<int64_t, int64_t, int64_t>, bool> there;
  size_t left = 0;
  for (size_t before = SIZE_MAX; before != left;) {
    before = left;
    left = 0;
    for (size_t rank = 0; rank < files.size(); ++rank) {
      for (const ChakraProtoMsg::Node& node : files[rank].nodes) {
        if (ran[rank][node.id()]) continue;
        const auto over = [&](uint64_t id) { return static_cast<bool>(ran[rank][id]); };
        bool may = std::ranges::all_of(node.data_deps(), over) && std::ranges::all_of(node.ctrl_deps(), over);
        const bool sends = node.type() == ChakraProtoMsg::COMM_SEND_NODE;
        if (may && (sends || node.type() == ChakraProtoMsg::COMM_RECV_NODE)) {
          bool& here = there[{value_of(node, "comm_src"), value_of(node, "comm_dst"), value_of(node, "comm_tag")}];
          here = here || sends;
          may = here;
        }
        ran[rank][node.id()] = may;
        left += may ? 0 : 1;
      }
    }
    if (left == 0) break;
  }
  return left;
}

int64_t total(const std::vector<File>& files, ChakraProtoMsg::NodeType type, const std::string& end,
              const std::string& attribute) {
  int64_t sum = 0;
  for (const File& file : files) {
    for (const ChakraProtoMsg::Node& node : file.nodes) {
      if (node.type() == type && ends_with(node.name(), end)) sum += value_of(node, attribute);
    }
  }
  return sum;
}

// The bytes that tasks write to peers and read from them.
int64_t payload(const std::vector<File>& files) {
  return total(files, ChakraProtoMsg::COMM_SEND_NODE, " write", "comm_size") +
         total(files, ChakraProtoMsg::COMM_SEND_NODE, " read", "comm_size");
}

Plan plan_of(const std::string& op, const std::string& schedule, int ranks, bool library = false) {
  const Problem problem{.op = op, .m = 256, .n = 512, .k = 384, .reduction = Reduction::any};
  const Team team{.num_ranks = ranks};
  Config config = find_schedule(schedule).candidates(problem, team).front();
  if (library) {
    config.compute = Provider::library;
    config.collective = Provider::library;
  }
  return make_plan(problem, team, config);
}

// Require everything that holds for any plan's traces.
void expect_sound(const Plan& plan) {
  const std::vector<File> files = files_of(plan);
  ASSERT_EQ(std::ssize(files), plan.team.num_ranks);
  for (const File& file : files) expect_order(file);
  expect_pairs(files);
  EXPECT_EQ(left_over(files), 0);
  int64_t bytes = 0;
  for (int rank = 0; rank < plan.team.num_ranks; ++rank) bytes += peer_bytes(plan, rank);
  EXPECT_EQ(payload(files), bytes);
  const Problem p = note_of(plan).problem;
  const int64_t flop = total(files, ChakraProtoMsg::COMP_NODE, "] compute", "num_ops") +
                       total(files, ChakraProtoMsg::COMP_NODE, "] gemm_call", "num_ops");
  EXPECT_EQ(flop, 2 * p.m * p.n * p.k);
}

TEST(Chakra, GraphsRunAndKeepTheBooks) {
  for (const char* op : {"gemm_reduce_scatter", "all_gather_gemm", "gemm_all_reduce"}) {
    for (const char* schedule : {"sequential", "fused"}) {
      for (const int ranks : {1, 2, 4}) {
        SCOPED_TRACE(fmt::format("{} {} on {} ranks", op, schedule, ranks));
        expect_sound(plan_of(op, schedule, ranks));
      }
    }
  }
}

TEST(Chakra, EveryVariantHasGraphsThatRun) {
  int plans = 0;
  for (const char* op : testing::operator_names()) {
    Problem problem{.op = op, .m = 96, .n = 64, .k = 64, .reduction = Reduction::any};
    if (problem.op == "all_reduce") problem.k = 0;
    for (const Config& config :
         testing::every(all_variants(problem, {.num_ranks = 4}, {.tile_m = 16, .tile_n = 16, .chunk_rows = 8}))) {
      expect_sound(make_plan(problem, {.num_ranks = 4}, config));
      ASSERT_FALSE(HasFailure()) << op << " " << to_string(config);
      ++plans;
    }
  }
  EXPECT_GT(plans, 500 / testing::kEvery);
}

TEST(Chakra, ALibrarysCollectiveIsOneNodeOnEachRank) {
  const Plan plan = plan_of("gemm_reduce_scatter", "sequential", 2, true);
  for (const File& file : files_of(plan)) {
    const auto is_collective = [](const ChakraProtoMsg::Node& node) {
      return node.type() == ChakraProtoMsg::COMM_COLL_NODE;
    };
    ASSERT_EQ(std::ranges::count_if(file.nodes, is_collective), 1);
    const ChakraProtoMsg::Node& node = *std::ranges::find_if(file.nodes, is_collective);
    EXPECT_EQ(value_of(node, "comm_type"), ChakraProtoMsg::REDUCE_SCATTER);
    EXPECT_EQ(value_of(node, "comm_size"), 256 * 512 * 2) << "what a rank brings";
    EXPECT_FALSE(node.ctrl_deps().empty()) << "it follows the GEMM in its lane";
  }
}

TEST(Chakra, WhatIsPulledIsAskedFor) {
  Plan plan{.op = "all_reduce", .team = {.num_ranks = 2}};
  plan.buffers = {{.name = "here", .rows = 2, .cols = 4, .scope = Scope::symmetric}};
  const auto half = [](int rank, int64_t row) { return Region{.rank = rank, .row = row, .rows = 1, .cols = 4}; };
  plan.lanes = {{.rank = 0, .engine = Engine::copy, .name = "copies"}};
  plan.lanes[0].tasks = {{.kind = TaskKind::copy, .reads = {half(1, 0)}, .writes = {{.to = half(0, 1)}}}};
  const std::vector<File> files = files_of(plan);
  ASSERT_EQ(files[0].nodes.size(), 3);
  ASSERT_EQ(files[1].nodes.size(), 3);
  EXPECT_EQ(files[0].nodes[1].name(), "copies[0] copy ask");
  EXPECT_EQ(value_of(files[0].nodes[1], "comm_size"), 1);
  EXPECT_EQ(files[1].nodes[2].data_deps(0), 1) << "the answer comes after the question";
  EXPECT_EQ(value_of(files[1].nodes[2], "comm_size"), 16);
}

TEST(Chakra, AWaitForSomeOfThePostsTakesTheFirst) {
  Plan plan{.op = "all_reduce", .team = {.num_ranks = 1}};
  plan.signals = {{"s", 0, 1}};
  const Task posts{.kind = TaskKind::sync, .posts = {{{0, 0}, 1}}};
  plan.lanes = {{.engine = Engine::copy, .name = "a", .tasks = {posts, posts}},
                {.engine = Engine::copy, .name = "b", .tasks = {{.waits = {{{0, 0}, 1}}}, {.waits = {{{0, 0}, 2}}}}}};
  const std::vector<ChakraNode> nodes = chakra_of(plan).ranks[0];
  ASSERT_EQ(nodes.size(), 5);
  EXPECT_EQ(nodes[2].name, "b[0] sync");
  EXPECT_EQ(nodes[2].data_deps, std::vector<uint64_t>{1});
  EXPECT_EQ(nodes[4].data_deps, (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(nodes[4].ctrl_deps, std::vector<uint64_t>{2}) << "the lane's task before";
  plan.lanes[1].tasks[1].waits[0].at_least = 3;
  try {
    (void)chakra_of(plan);
    FAIL() << "it waits for a post that never comes";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the plan deadlocks at task 1 of lane b on rank 0 (sync)");
  }
}

TEST(Chakra, LlDataIsADependency) {
  Plan plan{.op = "all_reduce", .team = {.num_ranks = 1}};
  plan.buffers = {{.name = "x", .rows = 1, .cols = 4, .scope = Scope::input},
                  {.name = "there", .rows = 1, .cols = 4, .scope = Scope::symmetric, .ll = true},
                  {.name = "y", .rows = 1, .cols = 4, .scope = Scope::output}};
  const auto row = [](int buffer) { return Region{.buffer = buffer, .rows = 1, .cols = 4}; };
  plan.lanes = {{.engine = Engine::tiles, .name = "a", .tasks = {{.kind = TaskKind::copy}}},
                {.engine = Engine::tiles, .name = "b", .tasks = {{.kind = TaskKind::copy}}}};
  for (int lane = 0; lane < 2; ++lane) {
    plan.lanes[lane].tasks[0].reads = {row(lane)};
    plan.lanes[lane].tasks[0].writes = {{.to = row(lane + 1)}};
  }
  const std::vector<ChakraNode> nodes = chakra_of(plan).ranks[0];
  const auto find = [&](const std::string& name) { return *std::ranges::find(nodes, name, &ChakraNode::name); };
  EXPECT_EQ(find("b[0] copy").data_deps, std::vector<uint64_t>{find("a[0] copy").id});
}

TEST(Chakra, NetworksAreASTRASims) {
  Machine machine = bare_network("two_level:2x4");
  machine.links.bandwidth_GBps = 1.073741824;
  EXPECT_EQ(network_text(machine, 8),
            "topology: [ FullyConnected, Switch ]\nnpus_count: [ 4, 2 ]\n"
            "bandwidth: [ 1, 93.1322575 ]  # 2^30 bytes/s\nlatency: [ 500, 500 ]  # ns\n");
  EXPECT_NE(network_text(bare_network("torus2d:1x4"), 4).find("topology: [ Ring ]\nnpus_count: [ 4 ]"),
            std::string::npos);
  EXPECT_NE(network_text(bare_network("switch:16"), 2).find("npus_count: [ 2 ]"), std::string::npos);
  EXPECT_THROW((void)network_text(bare_network("ring:4"), 2), Error) << "two of four are no ring";
  EXPECT_THROW((void)network_text(bare_network("switch:4"), 1), Error) << "one rank has no network";
}

}  // namespace
}  // namespace tilewire::cli

namespace tilewire::testing {
namespace {

constexpr const char* kProblem = "chakra gemm_reduce_scatter -m 256 -n 256 -k 512 --machine h200x4 ";

TEST(ChakraVerb, WritesTracesAndConfiguration) {
  const std::string folder = fresh_folder() + "/new/traces";
  const Outcome outcome = run_studies(kProblem + ("--schedule fused --out " + folder));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("--workload-configuration=" + folder + "/trace "), std::string::npos) << outcome.out;
  for (int rank = 0; rank < 4; ++rank) {
    const cli::File file = cli::read_file(read_text(folder + "/trace." + std::to_string(rank) + ".et"));
    EXPECT_EQ(file.head.version(), "0.0.4");
    cli::expect_order(file);
  }
  EXPECT_EQ(read_text(folder + "/network.yml").substr(0, 39), "topology: [ Switch ]\nnpus_count: [ 4 ]\n");
  const nlohmann::json system = nlohmann::json::parse(read_text(folder + "/system.json"));
  EXPECT_EQ(system["roofline-enabled"], 1);
  EXPECT_EQ(system["local-mem-bw"], 3900);
  EXPECT_EQ(nlohmann::json::parse(read_text(folder + "/remote_memory.json"))["memory-type"], "NO_MEMORY_EXPANSION");
}

TEST(ChakraVerb, ThePrintedCommandCanBePasted) {
  const std::string base = fresh_folder();
  for (const std::string name : {"my dir", "it's $HOME; `x`", "~", "line\nbreak"}) {
    const std::string folder = base + "/" + name;
    std::string quoted;
    for (const char c : folder) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    const Outcome outcome = run_studies(kProblem + ("--schedule fused --out '" + quoted + "'"));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const size_t command = outcome.out.find("  AstraSim_Analytical_Congestion_Aware ");
    ASSERT_NE(command, std::string::npos) << outcome.out;
    // A shell function of that name prints its words.
    write_text(base + "/words.sh",
               "AstraSim_Analytical_Congestion_Aware() { printf '<%s>' \"$@\"; }\n" + outcome.out.substr(command));
    ASSERT_EQ(std::system(("sh " + base + "/words.sh >" + base + "/words").c_str()), 0);
    EXPECT_EQ(read_text(base + "/words"),
              "<--workload-configuration=" + folder + "/trace><--system-configuration=" + folder +
                  "/system.json><--network-configuration=" + folder +
                  "/network.yml><--remote-memory-configuration=" + folder + "/remote_memory.json>");
  }
}

TEST(ChakraVerb, RefusesWhatItCannotWrite) {
  const std::string folder = fresh_folder();
  write_text(folder + "/file", "");
  const auto refused = [&](const std::string& flags, const std::string& why) {
    const Outcome outcome = run_studies(kProblem + flags);
    EXPECT_NE(outcome.code, 0);
    EXPECT_NE(outcome.err.find(why), std::string::npos) << outcome.err;
  };
  refused("--out " + folder, "the flags name 4 plans; name one schedule and one shape");
  refused("--schedule fused --out " + folder + "/file", "file: want a folder");
  refused("--schedule fused --out /proc/none", "/proc/none: want a folder");
  refused("--schedule fused --ranks 1 --out " + folder, "1 rank, want at least 2");
  refused("--schedule fused --out " + folder + "/file/below", "want a folder: " + folder + "/file is a file");
  std::filesystem::create_directories(folder + "/old/network.yml");
  refused("--schedule fused --out " + folder + "/old", "network.yml: cannot write it: it is a directory");
  std::filesystem::create_directories(folder + "/in");
  write_text(folder + "/in/system.json", "[]");
  refused("--shapes " + folder + "/in/system.json --schedule fused --out " + folder + "/in",
          "/in/system.json: --shapes would be overwritten");
  refused("--out " + folder + "/n1/n2", "name one schedule and one shape");
  refused("--schedule fused --ranks 1 --out " + folder + "/n1/n2", "want at least 2");
  EXPECT_FALSE(std::filesystem::exists(folder + "/n1")) << "what is refused makes no folders";
}

}  // namespace
}  // namespace tilewire::testing
