// Facts about this machine and build.
// Called by bench and info.
#include "cli/facts.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <string>

#include "backends/host/gemm.hpp"
#include "commit.hpp"
#include "core/machine.hpp"

namespace tilewire::cli {
namespace {

#ifdef __clang__
constexpr const char* kCompiler = __VERSION__;  // begins with the compiler's name
#else
constexpr const char* kCompiler = "g++ " __VERSION__;
#endif

}  // namespace

nlohmann::json machine_facts() {
  struct utsname system {};
  ::uname(&system);
  return {{"cpu", cpu_model()},
          {"cores", usable_cores()},
          {"memory_bytes", int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGE_SIZE)},
          {"kernel", std::string(system.sysname) + " " + system.release + " " + system.machine},
          {"compiler", kCompiler},
          {"build", TILEWIRE_BUILD_TYPE},
          {"tilewire", TILEWIRE_VERSION},
          {"commit", kCommit},
          {"gemm", host::host_gemm_library()}};
}

nlohmann::json gpu_facts(const cuda::CudaFacts& facts) {
  const auto known = [](const std::string& text) { return text.empty() ? nlohmann::json() : nlohmann::json(text); };
  nlohmann::json json = {{"driver", known(facts.driver)},   {"driver_version", known(facts.driver_version)},
                         {"runtime", known(facts.runtime)}, {"nccl", known(facts.nccl)},
                         {"gpus", nlohmann::json::array()}, {"limits", nlohmann::json::array()}};
  const auto above_0 = [](int value) { return value > 0 ? nlohmann::json(value) : nlohmann::json(); };
  for (const cuda::Gpu& gpu : facts.gpus) {
    json["gpus"].push_back(gpu.name);
    json["limits"].push_back({{"sm_mhz", above_0(gpu.sm_mhz)}, {"power_w", above_0(gpu.power_w)}});
  }
  return json;
}

}  // namespace tilewire::cli
