// tilewire info: facts of this machine and this build, available backends, and why others are not available.
// Called by main.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "backends/cuda/cuda.hpp"
#include "cli/facts.hpp"
#include "cli/flag_files.hpp"
#include "cli/knob_table.hpp"
#include "cli/models.hpp"
#include "cli/options.hpp"
#include "cli/verbs.hpp"
#include "core/json_text.hpp"
#include "tilewire/env.hpp"
#include "tilewire/spi/backend.hpp"
#include "tilewire/spi/operator.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire::cli {
namespace {

nlohmann::json gpu_json(const cuda::Gpu& gpu) {
  nlohmann::json json = {{"name", gpu.name},
                         {"uuid", gpu.uuid},
                         {"pci", gpu.pci},
                         {"capability", gpu.capability},
                         {"sms", gpu.sms},
                         {"memory_bytes", gpu.memory_bytes},
                         {"copy_engines", gpu.copy_engines},
                         {"virtual_memory", gpu.virtual_memory},
                         {"descriptors", gpu.descriptors},
                         {"nvlinks", gpu.nvlinks < 0 ? nlohmann::json() : nlohmann::json(gpu.nvlinks)},
                         {"pcie", {{"generation", gpu.pcie_generation}, {"width", gpu.pcie_width}}},
                         {"peers", nlohmann::json::array()}};
  for (const cuda::PeerAccess& peer : gpu.peers) {
    json["peers"].push_back({{"gpu", peer.gpu},
                             {"load_store", peer.load_store},
                             {"atomics", peer.atomics},
                             {"performance_rank", peer.performance_rank}});
  }
  return json;
}

nlohmann::json cuda_json() {
  const cuda::CudaFacts facts = cuda::cuda_facts();
  nlohmann::json json = gpu_facts(facts);
  json["gpus"] = nlohmann::json::array();
  json["missing"] = facts.missing;
  for (const cuda::Gpu& gpu : facts.gpus) json["gpus"].push_back(gpu_json(gpu));
  return json;
}

nlohmann::json info_json() {
  nlohmann::json json = {{"machine", machine_facts()}, {"tuner_file", env::tuner_file()}, {"cuda", cuda_json()}};
  for (const Backend& backend : backends()) {
    const auto reason = backend.unavailable();
    json["backends"].push_back({{"name", backend.name},
                                {"summary", backend.summary},
                                {"unavailable", reason ? nlohmann::json(*reason) : nullptr}});
  }
  for (const Operator& op : operators()) json["operators"].push_back({{"name", op.name}, {"summary", op.summary}});
  for (const Schedule& schedule : schedules()) {
    json["schedules"].push_back({{"name", schedule.name}, {"summary", schedule.summary}});
  }
  for (const Model& model : models()) json["models"].push_back(model.name);
  return json;
}

/// "NVLink x18, PCIe 5 x16".
std::string links_text(const nlohmann::json& gpu) {
  std::string text;
  if (!gpu["nvlinks"].is_null() && gpu["nvlinks"] != 0) text += fmt::format("NVLink x{}, ", gpu["nvlinks"].get<int>());
  const nlohmann::json& pcie = gpu["pcie"];
  if (pcie["generation"] == 0) return text + "PCIe";
  return text + fmt::format("PCIe {} x{}", pcie["generation"].get<int>(), pcie["width"].get<int>());
}

/// ", 1980 MHz, 700 W": the limits.
std::string limits_text(const nlohmann::json& limits) {
  std::string text;
  if (!limits["sm_mhz"].is_null()) text += fmt::format(", {} MHz", limits["sm_mhz"].get<int>());
  if (!limits["power_w"].is_null()) text += fmt::format(", {} W", limits["power_w"].get<int>());
  return text;
}

/// "loads and stores to 1, 2, 3".
std::string peers_text(const nlohmann::json& gpu) {
  std::vector<int> reached;
  for (const auto& peer : gpu["peers"]) {
    if (peer["load_store"].get<bool>()) reached.push_back(peer["gpu"]);
  }
  return reached.empty() ? "reaches no other GPU" : fmt::format("loads and stores to {}", fmt::join(reached, ", "));
}

std::string cuda_text(const nlohmann::json& cuda) {
  std::string text = "gpus\n";
  if (!cuda["driver"].is_null()) {
    text += fmt::format("  {:<20} driver {} for {}, built with {}\n", "CUDA",
                        cuda["driver_version"].is_null() ? "unknown" : cuda["driver_version"].get<std::string>(),
                        cuda["driver"].get<std::string>(), cuda["runtime"].get<std::string>());
  }
  if (!cuda["nccl"].is_null()) text += fmt::format("  {:<20} {}\n", "NCCL", cuda["nccl"].get<std::string>());
  for (size_t index = 0; index < cuda["gpus"].size(); ++index) {
    const nlohmann::json& gpu = cuda["gpus"][index];
    text += fmt::format("  {:<20} {}, {} SMs, capability {}, {:.0f} GiB{}\n", index, gpu["name"].get<std::string>(),
                        gpu["sms"].get<int>(), gpu["capability"].get<std::string>(),
                        gpu["memory_bytes"].get<double>() / (int64_t{1} << 30), limits_text(cuda["limits"][index]));
    text += fmt::format("  {:<20} {}, {} copy engines, {}\n", "", links_text(gpu), gpu["copy_engines"].get<int>(),
                        peers_text(gpu));
  }
  for (const auto& missing : cuda["missing"])
    text += fmt::format("  {:<20} {}\n", "missing", missing.get<std::string>());
  return text;
}

void print_info(const nlohmann::json& json) {
  std::string text;
  for (const auto& [key, value] : json["machine"].items()) text += fmt::format("{:<13} {}\n", key, plain_text(value));
  text += fmt::format("{:<13} {}\n", "tuner_file", json["tuner_file"].get<std::string>());
  for (const char* table : {"backends", "operators", "schedules"}) {
    text += fmt::format("{}\n", table);
    for (const auto& row : json[table]) {
      text += fmt::format("  {:<20} {}\n", row["name"].get<std::string>(), row["summary"].get<std::string>());
      if (row.contains("unavailable") && !row["unavailable"].is_null()) {
        text += fmt::format("  {:<20} not available: {}\n", "", row["unavailable"].get<std::string>());
      }
    }
  }
  text += cuda_text(json["cuda"]);
  text += "models\n ";
  for (const auto& name : json["models"]) text += " " + name.get<std::string>();
  print(text + "\n");
}

}  // namespace

void add_info(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("info", "Show machine, build, and what is available");
  verb->footer("Example:\n  tilewire info --json -");
  add_json_flag(*verb, *options, "Write it as JSON to a file, or - for standard output (then nothing else)");
  auto knobs = std::make_shared<bool>(false);
  verb->add_flag("--knobs", *knobs,
                 "The knobs of each schedule instead: for which operators (AG: all-gather, RS: reduce-scatter, AR, ar: "
                 "all-reduce after a GEMM and alone, A2A: all-to-all, C: by columns), and which values");
  verb->callback([options, knobs] {
    if (*knobs) {
      require(options->json.empty(), "--knobs prints a table: leave out --json");
      print(knob_table());
      return;
    }
    check_files({{"--json", options->json}}, {});
    const nlohmann::json json = info_json();
    if (!options->json.empty()) write_file(options->json, json_text(json, 1) + "\n");
    if (options->json != "-") print_info(json);
  });
}

}  // namespace tilewire::cli
