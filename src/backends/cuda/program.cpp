// Execution of plans on GPUs: not there yet.
// Called by make_op through Group.
#include "backends/cuda/group.hpp"
#include "core/text.hpp"

namespace tilewire::cuda {

std::vector<std::string> CudaGroup::unsupported(const Plan&) const { return {"any plan yet"}; }

std::unique_ptr<Program> CudaGroup::load(const Plan&) {
  fail(ErrorKind::unsupported, "the cuda backend joins ranks and shares memory, but executes no plans yet");
}

}  // namespace tilewire::cuda
