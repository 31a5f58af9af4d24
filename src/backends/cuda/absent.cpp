// The cuda backend of a build without CUDA: each function reports that CUDA is absent.
// Called by the table of backends, and by `tilewire info`.
#include "backends/cuda/cuda.hpp"
#include "core/text.hpp"

namespace tilewire::cuda {
namespace {

constexpr const char* kReason = "this build has no CUDA (configure with -DTILEWIRE_CUDA=ON)";

}  // namespace

std::optional<std::string> cuda_unavailable() { return kReason; }

std::unique_ptr<Group> make_cuda_group(std::unique_ptr<host::HostGroup>, const JoinOptions&) {
  fail(ErrorKind::unsupported, "{}", kReason);
}

CudaFacts cuda_facts() {
  CudaFacts facts;
  facts.missing.emplace_back(kReason);
  return facts;
}

}  // namespace tilewire::cuda
