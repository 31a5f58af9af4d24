// Products by oneDNN's matmul (versions 2 and 3), prepared once for each combination of sizes.
// Called by Gemm.
#include <omp.h>

#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "backends/host/gemm.hpp"
#include "core/text.hpp"

namespace tilewire::host {
namespace {

/// All properties for which a product is prepared: threads, sizes, types, strides, transposes.
using Key = std::tuple<int, int64_t, int64_t, int64_t, DType, int64_t, bool, int64_t, bool, DType, int64_t, bool>;

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc describe(int64_t rows, int64_t cols, const Operand& operand) {
  const dnnl::memory::dims strides =
      operand.transposed ? dnnl::memory::dims{1, operand.stride} : dnnl::memory::dims{operand.stride, 1};
  return {{rows, cols}, type_of(operand.dtype), strides};
}

/// A prepared product, for any operands of its sizes.
struct Prepared {
  dnnl::memory a;
  dnnl::memory b;
  dnnl::memory c;
  dnnl::memory scratch;
  dnnl::matmul run;
};

/// Sets OpenMP's number of threads, which oneDNN uses, within a scope.
class Threads {
 public:
  explicit Threads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads() { omp_set_num_threads(before_); }

 private:
  int before_;
};

}  // namespace

const int64_t Kernels::kPart = int64_t{1} << 32;

struct Kernels::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Key, Prepared> prepared;
  std::vector<std::byte> scratch;

  Prepared& prepare(const Product& product, int threads);
};

std::string host_gemm_library() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

Kernels::Kernels() : state_(std::make_unique<State>()) {}
Kernels::~Kernels() = default;

bool Kernels::takes(DType dtype) const {
  // Convert bf16 to fp32 on processors without bf16 instructions: oneDNN's emulation is slower.
  constexpr unsigned kNeeded = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return dtype == DType::fp32 || (dtype == DType::bf16 && (isa & kNeeded) == kNeeded);
}

Prepared& Kernels::State::prepare(const Product& p, int threads) {
  // NOTE: all operators of a group share this table; each has a few products per number of rows.
  constexpr size_t kMost = 4096;
  const Key key{threads,        p.m,       p.n,        p.k,  p.a.dtype, p.a.stride, p.a.transposed, p.b.stride,
                p.b.transposed, p.c_dtype, p.c_stride, p.add};
  if (const auto found = prepared.find(key); found != prepared.end()) return found->second;
  if (prepared.size() >= kMost) prepared.clear();
  const auto a = describe(p.m, p.k, p.a);
  const auto b = describe(p.k, p.n, p.b);
  const auto c = describe(p.m, p.n, {nullptr, p.c_dtype, p.c_stride, false});
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (p.add) {
    dnnl::post_ops add;
    add.append_sum(1.0F);
    attributes.set_post_ops(add);
  }
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc recipe(engine, a, b, c, attributes);
#else
  const dnnl::matmul::primitive_desc recipe(dnnl::matmul::desc(a, b, c), attributes, engine);
#endif
  const auto memory = [&](const dnnl::memory::desc& desc) { return dnnl::memory(desc, engine, nullptr); };
  return prepared
      .emplace(key, Prepared{memory(a), memory(b), memory(c), memory(recipe.scratchpad_desc()), dnnl::matmul(recipe)})
      .first->second;
}

void Kernels::multiply(const Product& product, int threads) {
  const Threads scope(threads);
  try {
    Prepared& ready = state_->prepare(product, threads);
    const size_t needed = ready.scratch.get_desc().get_size();
    if (state_->scratch.size() < needed) state_->scratch.resize(needed);
    ready.a.set_data_handle(const_cast<void*>(product.a.data));
    ready.b.set_data_handle(const_cast<void*>(product.b.data));
    ready.c.set_data_handle(product.c);
    ready.scratch.set_data_handle(state_->scratch.data());
    ready.run.execute(state_->stream, {{DNNL_ARG_SRC, ready.a},
                                       {DNNL_ARG_WEIGHTS, ready.b},
                                       {DNNL_ARG_DST, ready.c},
                                       {DNNL_ARG_SCRATCHPAD, ready.scratch}});
    state_->stream.wait();
  } catch (const dnnl::error& error) {
    fail(ErrorKind::internal, "oneDNN, {} x {} x {}: {}", product.m, product.n, product.k, error.what());
  }
}

}  // namespace tilewire::host
