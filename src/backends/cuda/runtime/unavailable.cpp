// Looks for the driver's library and for device files.
// Called by the table of backends.
#include "backends/cuda/runtime/unavailable.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>

namespace tilewire::cuda {
namespace {

bool is_gpu(const std::string& file) {
  constexpr std::string_view kPrefix = "nvidia";
  return file.size() > kPrefix.size() && file.starts_with(kPrefix) &&
         std::all_of(file.begin() + kPrefix.size(), file.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

}  // namespace

std::optional<std::string> missing_gpu(const char* driver_library, const std::string& devices) {
  // NOTE: never unloaded, as CUDA's runtime would load it again.
  void* library = dlopen(driver_library, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return std::string("no NVIDIA driver (") + driver_library + " cannot be loaded)";
  dlclose(library);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(devices, error)) {
    if (is_gpu(entry.path().filename())) return std::nullopt;
  }
  return "no GPU (no file nvidia<number> in " + devices + ")";
}

}  // namespace tilewire::cuda
