// Calls of operators on streams and in graphs.
// Used by calls_test.cpp, failures_test.cpp, host_side_test.cpp and trace_test.cpp.
#include "cuda/calls.hpp"

#include <algorithm>
#include <ostream>

#include "backends/cuda/cuda.hpp"
#include "backends/cuda/runtime/group.hpp"
#include "core/text.hpp"
#include "cuda/call_kernels.hpp"
#include "cuda/child.hpp"
#include "operators/verify.hpp"
#include "ranks/plans.hpp"
#include "tilewire/env.hpp"
#include "tilewire/print.hpp"

namespace tilewire::testing {

void PrintTo(const Place& place, std::ostream* out) { *out << place.name; }

std::vector<Place> places() {
  return {{"one_rank", 1, true, true},
          {"ranks_on_one_gpu", 3, true, true},
          {"threads_on_their_gpus", 4, true, false},
          {"processes", 4, false, false}};
}

void InPlaces::SetUp() {
  if (const auto reason = cuda::cuda_unavailable()) GTEST_SKIP() << *reason;
  place_ = GetParam();
  if (place_.shared() && env::device_connections() == 1) GTEST_SKIP() << "sharing a GPU takes several queues";
  if (place_.one_gpu) return;
  place_.num_ranks = std::min(place_.num_ranks, num_gpus_here());
  if (place_.num_ranks < 2) GTEST_SKIP() << "this machine has fewer than 2 GPUs";
}

void InPlaces::launch_ranks(const std::function<void(Group&)>& body, CallOrder order) const {
  in_child([&] {
    if (place_.one_gpu) see_one_gpu();
    const LaunchOptions options{.backend = "cuda", .threads = place_.threads, .timeout_s = 20, .order = order};
    launch(place_.num_ranks, options, [&](Group& group) {
      load_call_kernels();
      group.barrier();
      body(group);
    });
    return std::string();
  });
}

std::vector<Sample> samples() {
  const Config tiles{.tile_m = 128, .tile_n = 128};
  Config engines = tiles;
  engines.transport = Transport::copy_engine;
  Config lockstep = engines;
  lockstep.pacing = Pacing::lockstep;
  Config pulls = engines;
  pulls.direction = Direction::pull;
  pulls.copy_lanes = 2;
  Config two_stream = tiles;
  two_stream.schedule = "two_stream";
  Config in_turn = tiles;
  in_turn.transport = Transport::tma;
  in_turn.reduce_mode = ReduceMode::accumulate;
  Config many = engines;  // with notify streams of two lanes
  many.chunk_rows = 256;
  many.copy_lanes = 2;
  const Config flags{.tile_m = 64, .tile_n = 128, .reduce_workers = 4, .transport = Transport::ll};
  // Kernels for few rows, which may begin early.
  const Config gemv{.tile_m = 16, .tile_n = 32, .transport = Transport::ll, .algorithm = Algorithm::one_shot};
  Config rows = gemv;
  rows.tile_m = 1;
  rows.tile_n = 256;
  const std::vector<Epilogue> residual{{EpilogueKind::residual}};
  const Problem few{.op = "gemm_all_reduce", .m = 8, .n = 1024, .k = 768};
  Problem few_normed = few;
  few_normed.norm = Norm{};
  few_normed.epilogue = residual;
  const Problem rows_normed{.op = "all_reduce", .m = 5, .n = 1024, .epilogue = residual, .norm = Norm{NormKind::layer}};
  return {{few, gemv},
          {few_normed, gemv},
          {rows_normed, rows},
          {{.op = "gemm_reduce_scatter", .m = 640, .n = 512, .k = 384}, tiles},
          {{.op = "all_gather_gemm", .m = 2048, .n = 512, .k = 1024}, lockstep},
          {{.op = "all_gather_gemm", .m = 2048, .n = 512, .k = 1024, .gathered_output = true}, pulls},
          {{.op = "gemm_reduce_scatter", .m = 2048, .n = 1024, .k = 256}, engines},
          {{.op = "gemm_all_reduce", .m = 256, .n = 512, .k = 512}, two_stream},
          {{.op = "all_reduce", .m = 300, .n = 512, .dtype = DType::fp32}, tiles},
          {{.op = "gemm_all_reduce", .m = 40, .n = 1024, .k = 512}, flags},
          {{.op = "gemm_all_reduce", .m = 640, .n = 512, .k = 256, .reduction = Reduction::any}, in_turn},
          {{.op = "gemm_all_to_all", .m = 640, .n = 512, .k = 384}, tiles},
          {{.op = "gemm_all_to_all", .m = 4096, .n = 1024, .k = 256}, engines},
          {{.op = "gemm_all_to_all_rows", .m = 640, .n = 512, .k = 384}, tiles},
          {{.op = "gemm_all_to_all_rows", .m = 4096, .n = 1024, .k = 256}, engines},
          {{.op = "all_gather_cols_gemm", .m = 2048, .n = 512, .k = 1024}, engines},
          {{.op = "gemm_reduce_scatter_cols", .m = 640, .n = 512, .k = 384}, tiles},
          {{.op = "all_gather_gemm", .m = 8192, .n = 128, .k = 4096}, many}};
}

std::vector<Sample> library_samples() {
  const Config one_call{.schedule = "sequential", .compute = Provider::library};
  Config beside{.schedule = "fused", .compute = Provider::library};
  beside.transport = Transport::copy_engine;
  beside.chunk_rows = 256;
  Config after = beside;
  after.reduce_when = ReduceWhen::after;
  const Problem gather{.op = "all_gather_gemm", .m = 2048, .n = 512, .k = 1024};
  const Problem scatter{.op = "gemm_reduce_scatter", .m = 2048, .n = 1024, .k = 256};
  // The call between two kernels of one stream.
  Config workers = one_call;
  workers.copy_workers = 16;
  workers.chunk_rows = 64;
  Config pulls = one_call;
  pulls.reduce_mode = ReduceMode::pull;
  pulls.tile_m = 16;
  pulls.tile_n = 256;
  const Config at_owners{.tile_m = 16, .tile_n = 256, .compute = Provider::library};
  // Other streams work beside this stream's kernel.
  const Problem sum{.op = "gemm_all_reduce", .m = 256, .n = 512, .k = 512};
  Problem in_arena = sum;
  in_arena.arena = {"c"};
  const Config two_launches{.schedule = "two_stream", .tile_m = 128, .tile_n = 128, .launches = 2};
  // The kernel of rows behind the call.
  const Config rows{.tile_m = 1,
                    .tile_n = 256,
                    .transport = Transport::ll,
                    .algorithm = Algorithm::one_shot,
                    .compute = Provider::library};
  const Problem few{.op = "gemm_all_reduce", .m = 24, .n = 1024, .k = 512, .b_layout = BLayout::kn};
  Problem quantised = few;
  quantised.norm = Norm{NormKind::rms, 1e-6, DType::int8};
  return {{gather, one_call},  {gather, beside}, {gather, workers}, {scatter, one_call}, {scatter, beside},
          {scatter, after},    {scatter, pulls}, {sum, pulls},      {sum, at_owners},    {in_arena, at_owners},
          {sum, two_launches}, {few, rows},      {quantised, rows}};
}

std::vector<Sample> collective_samples() {
  const Config one_call{.schedule = "sequential", .compute = Provider::library, .collective = Provider::library};
  const Config alone{.schedule = "sequential", .collective = Provider::library};
  Problem gather{.op = "all_gather_gemm", .m = 2048, .n = 512, .k = 1024};
  Problem scatter{.op = "gemm_reduce_scatter", .m = 2048, .n = 1024, .k = 256};
  Problem with_bias{.op = "gemm_all_reduce", .m = 256, .n = 512, .k = 512, .epilogue = {{EpilogueKind::bias}}};
  Problem sum{.op = "all_reduce", .m = 300, .n = 512, .dtype = DType::fp32};
  for (Problem* problem : {&scatter, &with_bias, &sum}) problem->reduction = Reduction::any;
  return {{gather, one_call}, {scatter, one_call}, {with_bias, one_call}, {sum, alone}};
}

namespace {

/// The driver's function for the type of a graph node.
PFN_cuGraphNodeGetType_v10000 node_type_getter() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
  cuda::check(cudaGetDriverEntryPointByVersion("cuGraphNodeGetType", &found, 10000, cudaEnableDefault, &status),
              "cuGraphNodeGetType");
  return reinterpret_cast<PFN_cuGraphNodeGetType_v10000>(found);
}

/// Require that a call neither allocates nor frees memory.
void want_no_memory_nodes(cudaGraph_t graph) {
  // NOTE: cudaGraphNodeGetType fails on nodes that wait for or write a value: the runtime has no type for them.
  const auto get_type = node_type_getter();
  size_t count = 0;
  cuda::check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  cuda::check(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
  for (const cudaGraphNode_t node : nodes) {
    CUgraphNodeType type{};
    const CUresult result = get_type(node, &type);
    want(result == CUDA_SUCCESS, "cuGraphNodeGetType gives {}", static_cast<int>(result));
    want(type != CU_GRAPH_NODE_TYPE_MEM_ALLOC && type != CU_GRAPH_NODE_TYPE_MEM_FREE,
         "a captured call has a node of type {}", static_cast<int>(type));
  }
}

}  // namespace

cuda::Graph capture(Group& group, cudaStream_t stream, const std::function<void()>& body) {
  cudaGraph_t graph = nullptr;
  group.barrier();
  cuda::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  body();
  cuda::check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  group.barrier();
  want_no_memory_nodes(graph);
  cudaGraphExec_t ready = nullptr;
  const cudaError_t result = cudaGraphInstantiate(&ready, graph, 0);
  cudaGraphDestroy(graph);
  cuda::check(result, "cudaGraphInstantiate");
  cuda::Graph owned(ready);
  cuda::check(cudaGraphUpload(ready, stream), "cudaGraphUpload");
  settle(stream);
  group.barrier();
  return owned;
}

cuda::Stream new_stream() {
  cudaStream_t stream = nullptr;
  cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return cuda::Stream(stream);
}

uint64_t used_by_pool() {
  int device = 0;
  cudaMemPool_t pool = nullptr;
  uint64_t used = 0;
  cuda::check(cudaGetDevice(&device), "cudaGetDevice");
  cuda::check(cudaDeviceGetDefaultMemPool(&pool, device), "cudaDeviceGetDefaultMemPool");
  cuda::check(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used), "cudaMemPoolGetAttribute");
  return used;
}

void settle(cudaStream_t stream) { cuda::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }

bool shares_gpu(const Group& group) { return dynamic_cast<const cuda::CudaGroup&>(group).shares_device(); }

void keep_in_step(Group& group, cudaStream_t stream) {
  if (!shares_gpu(group)) return;
  settle(stream);
  group.barrier();
}

Caller::Caller(Group& group, Op& op, cudaStream_t stream)
    : group_(group), op_(op), tensors_(group, op.problem()), stream_(stream) {
  if (stream != nullptr) return;
  own_stream_ = new_stream();
  stream_ = own_stream_.get();
}

namespace {

/// The rank that gives the values of a rank's input: the lowest one with the same elements of the operand.
int rank_of_values(const std::vector<Meaning>& meanings, int rank, int buffer) {
  const auto of = [&](int owner) {
    return *std::ranges::find_if(meanings, [&](const Meaning& m) { return m.rank == owner && m.buffer == buffer; });
  };
  const Meaning mine = of(rank);
  for (int lower = 0; lower < rank && mine.role != Role::partial; ++lower) {
    if (of(lower).row == mine.row && of(lower).col == mine.col) return lower;
  }
  return rank;
}

}  // namespace

void Caller::fill(uint64_t seed) const {
  const auto meanings = find_operator(op_.problem().op).meanings(op_.problem(), group_.team().num_ranks);
  int buffer = 0;
  for (const Tensor& input : tensors_.inputs()) {
    const int rank = rank_of_values(meanings, group_.team().rank, buffer);
    fill_input(input, key_of(seed, rank, buffer++), stream_);
  }
  for (const Tensor& output : tensors_.outputs()) poison(output, stream_);
}

void Caller::run_and_wait_at_strides(int64_t more) {
  if (more > widest_) strided_memory_.clear();
  widest_ = std::max(widest_, more);
  std::vector<Tensor> inputs(tensors_.inputs().begin(), tensors_.inputs().end());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor from = inputs[i];
    const int64_t size = bytes_of(from.dtype);
    inputs[i].row_stride = from.cols + more;
    if (i == strided_memory_.size())
      strided_memory_.push_back(group_.new_memory(from.rows * inputs[i].row_stride * size));
    inputs[i].data = strided_memory_[i].get();
    cuda::check(cudaMemcpy2DAsync(inputs[i].data, inputs[i].row_stride * size, from.data, from.row_stride * size,
                                  from.cols * size, from.rows, cudaMemcpyDefault, stream_),
                "cudaMemcpy2DAsync");
  }
  settle(stream_);
  group_.barrier();
  op_.run_and_wait(inputs, tensors_.outputs());
}

void Caller::make_graph() {
  if (!graph_) graph_ = capture(group_, stream_, [&] { run(); });
}

void Caller::hash(uint64_t* sum) const {
  for (const Tensor& output : tensors_.outputs()) add_hash(output, sum, stream_);
}

void Caller::want_right(uint64_t seed) const {
  const Problem& problem = op_.problem();
  const int num_ranks = group_.team().num_ranks;
  const auto buffers = find_operator(problem.op).buffers(problem, num_ranks);
  const auto meanings = find_operator(problem.op).meanings(problem, num_ranks);
  const ReadRow read = [&](int buffer, int rank, int64_t row, float* to) {
    const int64_t cols = shape_on(buffers[buffer], rank).cols;
    const uint64_t key = key_of(seed, rank_of_values(meanings, rank, buffer), buffer);
    for (int64_t col = 0; col < cols; ++col) to[col] = input_value(key, row * cols + col);
  };
  const Expected expected(problem, num_ranks, group_.team().rank, read);
  const Comparison comparison = expected.compare(tensors_.results(), tolerance_of(problem, op_.config()));
  want(comparison.ok(), "{} with {}, seed {}: {}", to_string(problem), to_string(op_.config()), seed,
       comparison.text());
}

Hashes::Hashes(Group& group, int64_t count) : group_(group), count_(count), memory_(group.new_memory(8 * count)) {
  const std::vector<uint64_t> zeros(count, 0);
  group.copy(memory_.get(), zeros.data(), 8 * count);
}

std::vector<uint64_t> Hashes::values() const {
  std::vector<uint64_t> values(count_);
  group_.copy(values.data(), memory_.get(), 8 * count_);
  return values;
}

void want_same(const std::vector<uint64_t>& got, const std::vector<uint64_t>& expected, const std::string& what) {
  const auto [mine, theirs] = std::ranges::mismatch(got, expected);
  want(mine == got.end() && theirs == expected.end(), "{}: result {} of {} differs", what, mine - got.begin(),
       expected.size());
}

}  // namespace tilewire::testing
