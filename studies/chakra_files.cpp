// Chakra's protobuf encoding, and ASTRA-sim's files.
// Called by chakra_verb.cpp.
#include "studies/chakra_files.hpp"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "chakra.pb.h"
#include "cli/counted.hpp"
#include "core/gemm_tasks.hpp"
#include "core/json_text.hpp"
#include "core/output_file.hpp"
#include "core/text.hpp"
#include "schedules/parts.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/print.hpp"

namespace tilewire::cli {
namespace {

constexpr const char* kNetwork = "network.yml";
constexpr const char* kSystem = "system.json";
constexpr const char* kRemoteMemory = "remote_memory.json";
constexpr double kBytesPerGiB = 1 << 30;
constexpr double kBeginNs = 2;  // the smallest that is not rounded to zero

// One dimension of ASTRA-sim's networks; the first one is the innermost.
struct Dimension {
  const char* kind;
  int size;
  double bandwidth_GBps;
  double latency_ns;
};

std::string trace_name(int rank) { return fmt::format("trace.{}.et", rank); }

// Quoted as one word for a shell.
std::string shell_quoted(const std::string& text) {
  constexpr const char* kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

void append(std::string& text, const google::protobuf::MessageLite& message) {
  google::protobuf::io::StringOutputStream stream(&text);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.WriteVarint32(static_cast<uint32_t>(message.ByteSizeLong()));
  ensure(message.SerializeToCodedStream(&coded), "a message of Chakra has no encoding");
}

template <class Message>
ChakraProtoMsg::AttributeProto& attribute(Message& message, const char* name) {
  ChakraProtoMsg::AttributeProto& attribute = *message.add_attr();
  attribute.set_name(name);
  return attribute;
}

ChakraProtoMsg::CollectiveCommType type_of(Collective collective) {
  switch (collective) {
    case Collective::all_gather:
      return ChakraProtoMsg::ALL_GATHER;
    case Collective::reduce_scatter:
      return ChakraProtoMsg::REDUCE_SCATTER;
    case Collective::all_reduce:
      return ChakraProtoMsg::ALL_REDUCE;
    case Collective::all_to_all:
      return ChakraProtoMsg::ALL_TO_ALL;
    case Collective::none:
      break;
  }
  fail(ErrorKind::internal, "a collective of no kind");
}

// NOTE: attributes have the types that Chakra's older readers require.
void describe(ChakraProtoMsg::Node& message, const ChakraNode& node, int rank) {
  attribute(message, "is_cpu_op").set_bool_val(false);
  switch (node.kind) {
    case ChakraKind::work:
      message.set_type(ChakraProtoMsg::COMP_NODE);
      attribute(message, "num_ops").set_int64_val(node.num_ops);
      attribute(message, "tensor_size").set_uint64_val(static_cast<uint64_t>(node.memory_bytes));
      return;
    case ChakraKind::collective:
      message.set_type(ChakraProtoMsg::COMM_COLL_NODE);
      attribute(message, "comm_type").set_int64_val(type_of(node.collective));
      attribute(message, "comm_size").set_int64_val(node.bytes);
      return;
    case ChakraKind::send:
    case ChakraKind::receive: {
      const bool sends = node.kind == ChakraKind::send;
      message.set_type(sends ? ChakraProtoMsg::COMM_SEND_NODE : ChakraProtoMsg::COMM_RECV_NODE);
      attribute(message, "comm_size").set_int64_val(node.bytes);
      attribute(message, "comm_src").set_int32_val(sends ? rank : node.peer);
      attribute(message, "comm_dst").set_int32_val(sends ? node.peer : rank);
      attribute(message, "comm_tag").set_int32_val(node.tag);
      return;
    }
  }
}

std::vector<Dimension> dimensions_of(const Machine& machine, int num_ranks) {
  const Links& links = machine.links;
  const double bandwidth = links.bandwidth_GBps;
  std::vector<Dimension> dimensions;
  switch (links.topology) {
    case Topology::ring:
      dimensions = {{"Ring", links.dims[0], bandwidth, links.latency_ns}};
      break;
    case Topology::fully_connected:
      dimensions = {{"FullyConnected", num_ranks, bandwidth, links.latency_ns}};
      break;
    case Topology::switched:
      dimensions = {{"Switch", num_ranks, bandwidth, links.latency_ns}};
      break;
    case Topology::torus2d:
      dimensions = {{"Ring", links.dims[1], bandwidth, links.latency_ns},
                    {"Ring", links.dims[0], bandwidth, links.latency_ns}};
      break;
    case Topology::two_level:
      dimensions = {{"FullyConnected", links.dims[1], bandwidth, links.latency_ns},
                    {"Switch", links.dims[0], links.between_bandwidth_GBps, links.between_latency_ns}};
      break;
  }
  int devices = 1;
  for (const Dimension& each : dimensions) devices *= each.size;
  if (devices != num_ranks) {
    fail(ErrorKind::unsupported, "{} ranks on the {} devices of a {}: there, ASTRA-sim wants a rank on each", num_ranks,
         devices, to_string(links.topology));
  }
  if (num_ranks < 2) fail(ErrorKind::unsupported, "{} rank, want at least 2: ASTRA-sim's networks have", num_ranks);
  std::erase_if(dimensions, [](const Dimension& each) { return each.size == 1; });
  return dimensions;
}

// TFLOPS that the plan's GEMMs sustain.
double peak_tflops(const Machine& machine, const Plan& plan) {
  const ComputeUnits& compute = machine.compute;
  Task product;
  for (const Lane& lane : plan.lanes) {
    const auto found = std::ranges::find_if(lane.tasks, computes);
    if (found != lane.tasks.end()) product = *found;
  }
  const bool fp32 = !product.reads.empty() && plan.buffers[product.reads[0].buffer].dtype == DType::fp32;
  const double speed = !fp32 ? 1 : product.gemm.allow_tf32 ? compute.tf32_speed : compute.fp32_speed;
  const double gflops = compute.units * compute.clock_GHz * compute.flops_per_clock_per_unit;
  const bool library = std::ranges::any_of(plan.lanes, [](const Lane& lane) {
    return std::ranges::any_of(lane.tasks, [](const Task& task) { return task.kind == TaskKind::gemm_call; });
  });
  const auto known = compute.tile_efficiency.find(fmt::format("{}x{}", product.gemm.tile_m, product.gemm.tile_n));
  const double tiles = known == compute.tile_efficiency.end() ? 1 : known->second;
  return gflops * 1e-3 * speed * compute.efficiency * (library ? machine.overheads.library_efficiency : tiles);
}

void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require(std::filesystem::is_directory(folder), "--out {}: want a folder: {}", folder,
          error ? error.message() : "it is a file");
}

}  // namespace

std::string trace_text(const std::vector<ChakraNode>& nodes, const Plan& plan, int rank) {
  std::string text;
  ChakraProtoMsg::GlobalMetadata head;
  head.set_version("0.0.4");
  attribute(head, "operator").set_string_val(plan.op);
  attribute(head, "schedule")
      .set_string_val(plan.note.text.empty() ? std::string("by hand") : note_of(plan).config.schedule);
  attribute(head, "rank").set_int64_val(rank);
  attribute(head, "ranks").set_int64_val(plan.team.num_ranks);
  append(text, head);
  for (const ChakraNode& node : nodes) {
    ChakraProtoMsg::Node message;
    message.set_id(node.id);
    message.set_name(node.name);
    message.mutable_ctrl_deps()->Add(node.ctrl_deps.begin(), node.ctrl_deps.end());
    message.mutable_data_deps()->Add(node.data_deps.begin(), node.data_deps.end());
    describe(message, node, rank);
    append(text, message);
  }
  return text;
}

// NOTE: in ASTRA-sim's analytical networks a GB is 2^30 bytes.
std::string network_text(const Machine& machine, int num_ranks) {
  std::vector<std::string> kinds, sizes, bandwidths, latencies;
  for (const Dimension& each : dimensions_of(machine, num_ranks)) {
    kinds.emplace_back(each.kind);
    sizes.push_back(fmt::format("{}", each.size));
    bandwidths.push_back(fmt::format("{:.9g}", each.bandwidth_GBps * 1e9 / kBytesPerGiB));
    latencies.push_back(fmt::format("{:.9g}", each.latency_ns));
  }
  return fmt::format("topology: [ {} ]\nnpus_count: [ {} ]\nbandwidth: [ {} ]  # 2^30 bytes/s\nlatency: [ {} ]  # ns\n",
                     fmt::join(kinds, ", "), fmt::join(sizes, ", "), fmt::join(bandwidths, ", "),
                     fmt::join(latencies, ", "));
}

std::string system_text(const Machine& machine, const Plan& plan) {
  nlohmann::json how = nlohmann::json::array();
  const std::vector<Dimension> dimensions = dimensions_of(machine, plan.team.num_ranks);
  for (const Dimension& each : dimensions) how.push_back(each.kind == std::string("Ring") ? "ring" : "direct");
  const nlohmann::json system = {{"scheduling-policy", "FIFO"},
                                 {"endpoint-delay", 1},
                                 {"active-chunks-per-dimension", 1},
                                 {"preferred-dataset-splits", dimensions.size() == 1 ? 1 : 4},
                                 {"all-reduce-implementation", how},
                                 {"all-gather-implementation", how},
                                 {"reduce-scatter-implementation", how},
                                 {"all-to-all-implementation", how},
                                 {"collective-optimization", "localBWAware"},
                                 {"local-mem-bw", machine.memory.bandwidth_GBps},
                                 {"peak-perf", peak_tflops(machine, plan)},
                                 {"roofline-enabled", 1},
                                 {"boost-mode", 0}};
  return json_text(system, 2) + "\n";
}

std::vector<std::string> chakra_files(const std::string& folder, int num_ranks) {
  const std::filesystem::path to(folder);
  std::vector<std::string> files;
  for (const char* name : {kNetwork, kSystem, kRemoteMemory}) files.push_back(to / name);
  for (int rank = 0; rank < num_ranks; ++rank) files.push_back(to / trace_name(rank));
  return files;
}

void check_chakra_folder(const std::string& folder, int num_ranks) {
  require(!folder.empty(), "--out: want a folder");
  namespace fs = std::filesystem;
  std::error_code unknown;
  fs::path there = fs::absolute(folder);
  while (!fs::exists(there, unknown) && there.has_relative_path()) there = there.parent_path();
  require(fs::is_directory(there, unknown), "--out {}: want a folder: {} is a file", folder, there.string());
  if (fs::is_directory(folder, unknown)) {
    for (const std::string& file : chakra_files(folder, num_ranks)) check_output(file);
    return;
  }
  const ScratchFile scratch(there);
  require(scratch.made().ok(), "--out {}: want a folder: cannot write {}: {}", folder, there.string(),
          scratch.made().why());
}

std::string write_chakra(const std::string& folder, const Plan& plan, const Machine& machine) {
  const std::string network = network_text(machine, plan.team.num_ranks);
  const ChakraTraces traces = chakra_of(plan, static_cast<int64_t>(kBeginNs * machine.memory.bandwidth_GBps) + 1);
  make_folder(folder);
  const std::filesystem::path to(folder);
  size_t nodes = 0;
  for (int rank = 0; rank < std::ssize(traces.ranks); ++rank) {
    nodes += traces.ranks[rank].size();
    write_output(to / trace_name(rank), trace_text(traces.ranks[rank], plan, rank));
  }
  write_output(to / kNetwork, network);
  write_output(to / kSystem, system_text(machine, plan));
  write_output(to / kRemoteMemory, "{\"memory-type\": \"NO_MEMORY_EXPANSION\"}\n");
  const bool aware = dimensions_of(machine, plan.team.num_ranks).size() == 1;
  const auto quoted = [&](const char* name) { return shell_quoted(to / name); };
  return fmt::format(
      "{}: {} of {}; by ASTRA-sim:\n"
      "  AstraSim_Analytical_Congestion_{} --workload-configuration={} --system-configuration={} "
      "--network-configuration={} --remote-memory-configuration={}\n",
      to.string(), counted(nodes, "node"), counted(traces.ranks.size(), "rank"), aware ? "Aware" : "Unaware",
      quoted("trace"), quoted(kSystem), quoted(kNetwork), quoted(kRemoteMemory));
}

}  // namespace tilewire::cli
