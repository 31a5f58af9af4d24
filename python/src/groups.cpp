// Groups and operators for Python: join, make_op, run. Calls release the GIL.
// Called by module.cpp.
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "core/text.hpp"
#include "tilewire/json.hpp"

namespace tilewire::python {
namespace {

class PyOp {
 public:
  PyOp(std::shared_ptr<SharedGroup> group, Op op)
      : group_(std::move(group)), op_(std::make_unique<Op>(std::move(op))) {}
  PyOp(const PyOp&) = delete;
  PyOp& operator=(const PyOp&) = delete;
  ~PyOp() { free(); }

  void free() {
    if (op_ == nullptr) return;
    {
      const nb::gil_scoped_release without_gil;
      const std::scoped_lock alone(group_->busy);
      op_.reset();
    }
    group_.reset();
  }
  [[nodiscard]] Op& get() const {
    require(op_ != nullptr, "the operator has been freed");
    return *op_;
  }
  template <class Call>
  auto in(const Call& call) const {
    Op& op = get();
    const nb::gil_scoped_release without_gil;
    const std::scoped_lock alone(group_->busy);
    return call(op);
  }

  void run(const std::vector<const View*>& inputs, const std::vector<const View*>& outputs,
           std::optional<uintptr_t> stream) const {
    static_cast<void>(get());
    for (const View* output : outputs) require(output->writable, "the output is read-only");
    const bool on_host = group_->group->host_addresses_memory();
    const auto tensors_of = [&](const std::vector<const View*>& views) {
      std::vector<Tensor> tensors;
      for (const View* view : views) {
        require(!on_host || !view->on_gpu, "a tensor on GPU {}, but the group has CPU ranks", view->device);
        tensors.push_back(view->tensor);
      }
      return tensors;
    };
    const std::vector<Tensor> from = tensors_of(inputs);
    const std::vector<Tensor> to = tensors_of(outputs);
    in([&](Op& op) {
      if (stream) {
        op.run(from, to, reinterpret_cast<void*>(*stream));
      } else {
        op.run_and_wait(from, to);
      }
    });
  }

  /// (name, dtype, rows, cols, is an output) of each tensor on this rank, in the order of a call.
  [[nodiscard]] std::vector<std::tuple<std::string, std::string, int64_t, int64_t, bool>> tensors() const {
    std::vector<std::tuple<std::string, std::string, int64_t, int64_t, bool>> all;
    const Plan& plan = get().plan();
    for (const Buffer& buffer : plan.buffers) {
      if (buffer.scope != Scope::input && buffer.scope != Scope::output) continue;
      const Shape shape = memory_shape_on(buffer, group_->group->team().rank);
      all.emplace_back(buffer.name, to_string(buffer.dtype), shape.rows, shape.cols, buffer.scope == Scope::output);
    }
    return all;
  }

 private:
  std::shared_ptr<SharedGroup> group_;
  std::unique_ptr<Op> op_;
};

/// A tensor of the arena, freed with the last Python object that uses it.
struct ArenaTensor {
  std::shared_ptr<SharedGroup> group;
  Tensor tensor;

  ArenaTensor(std::shared_ptr<SharedGroup> of, const Tensor& is) : group(std::move(of)), tensor(is) {}
  ArenaTensor(const ArenaTensor&) = delete;
  ArenaTensor& operator=(const ArenaTensor&) = delete;
  ~ArenaTensor() {
    const nb::gil_scoped_release without_gil;
    const std::scoped_lock alone(group->busy);
    try {
      group->group->free(tensor);
    } catch (const std::exception&) {  // the group is broken: the memory is freed with the group
    }
  }
};

struct Memory {
  std::shared_ptr<std::byte> bytes;
};

std::unique_ptr<PyGroup> join_team(const std::string& backend, std::optional<int> rank, std::optional<int> num_ranks,
                                   const std::string& job, std::optional<int64_t> arena_bytes,
                                   std::optional<double> timeout_s, std::optional<int> local_rank, bool stream_order,
                                   int sms) {
  require(rank.has_value() == num_ranks.has_value(), "rank and num_ranks go together");
  JoinOptions options = rank ? JoinOptions{} : join_options_from_env();
  if (rank) options.rank = *rank, options.num_ranks = *num_ranks, options.job = env::job();
  if (!job.empty()) options.job = job;
  if (arena_bytes) options.arena_bytes = *arena_bytes;
  if (timeout_s) options.timeout_s = *timeout_s;
  if (local_rank) options.local_rank = *local_rank;
  if (stream_order) options.order = CallOrder::stream;
  options.sms = sms;
  const nb::gil_scoped_release without_gil;
  return std::make_unique<PyGroup>(join(backend, options));
}

std::unique_ptr<PyOp> op_of_problem(const PyGroup& group, const std::string& problem, const std::string& config,
                                    std::optional<bool> check, bool trace, const std::string& tuner_file) {
  const OpOptions options{.check = check, .trace = trace, .tuner_file = tuner_file};
  return group.in([&](Group& team) {
    return std::make_unique<PyOp>(group.shared(), make_op_from_text(team, problem, config, options));
  });
}

std::unique_ptr<PyOp> op_of_plan(const PyGroup& group, const Plan& plan, bool trace) {
  return group.in([&](Group& team) {
    return std::make_unique<PyOp>(group.shared(), make_op(team, plan, OpOptions{.trace = trace}));
  });
}

View arena_tensor(const PyGroup& group, const std::string& dtype, int64_t rows, int64_t cols) {
  const auto type = parse<DType>(dtype, "dtype");
  const Tensor tensor = group.in([&](Group& team) { return team.allocate(type, rows, cols); });
  const bool on_gpu = !group.shared()->group->host_addresses_memory();
  return {tensor, nb::cast(new ArenaTensor(group.shared(), tensor), nb::rv_policy::take_ownership), true, on_gpu,
          group.shared()->group->device()};
}

/// Memory for a result, on this rank's device.
View new_tensor(const PyGroup& group, const std::string& dtype, int64_t rows, int64_t cols) {
  const auto type = parse<DType>(dtype, "dtype");
  const int64_t bytes = std::max<int64_t>(1, rows * cols * bytes_of(type));
  auto memory = group.in([&](Group& team) { return team.new_memory(bytes); });
  const bool on_gpu = !group.shared()->group->host_addresses_memory();
  const Tensor tensor = make_tensor(memory.get(), type, rows, cols);
  return {tensor, nb::cast(new Memory{std::move(memory)}, nb::rv_policy::take_ownership), true, on_gpu,
          group.shared()->group->device()};
}

}  // namespace

void bind_groups(nb::module_& module) {
  nb::class_<ArenaTensor>(module, "ArenaTensor");
  nb::class_<Memory>(module, "Memory");
  nb::class_<PyOp>(module, "Op")
      .def("run", &PyOp::run, nb::arg("inputs"), nb::arg("outputs"), nb::arg("stream"))
      .def("wait", [](const PyOp& op) { op.in([](Op& it) { it.wait(); }); })
      .def("free", &PyOp::free)
      .def_prop_ro("tensors", &PyOp::tensors)
      .def_prop_ro("plan", [](const PyOp& op) { return op.get().plan(); })
      .def_prop_ro("explanation", [](const PyOp& op) { return op.get().explain(); })
      .def_prop_ro("config", [](const PyOp& op) { return to_string(op.get().config()); })
      .def_prop_ro("problem", [](const PyOp& op) { return to_string(op.get().problem()); })
      .def_prop_ro("workspace",
                   [](const PyOp& op) {
                     const Op::Workspace bytes = op.get().workspace();
                     return std::pair(bytes.symmetric, bytes.local);
                   })
      .def("last_trace", [](const PyOp& op) { return op.in([](Op& it) { return it.last_trace(); }); })
      .def("gather_trace", [](const PyOp& op) { return op.in([](Op& it) { return it.gather_trace(); }); });
  nb::class_<PyGroup>(module, "Group")
      .def_prop_ro("rank", [](const PyGroup& group) { return group.shared()->group->team().rank; })
      .def_prop_ro("num_ranks", [](const PyGroup& group) { return group.shared()->group->team().num_ranks; })
      .def_prop_ro("backend", [](const PyGroup& group) { return group.shared()->group->backend(); })
      .def_prop_ro("hardware", [](const PyGroup& group) { return group.shared()->group->hardware(); })
      .def("barrier", [](const PyGroup& group) { group.in([](Group& team) { team.barrier(); }); })
      .def("all_gather",
           [](const PyGroup& group, const nb::bytes& mine) {
             const std::string text(mine.c_str(), mine.size());
             const std::vector<std::string> all = group.in([&](Group& team) { return team.all_gather(text); });
             std::vector<nb::bytes> result;
             for (const std::string& each : all) result.emplace_back(each.data(), each.size());
             return result;
           })
      .def("make_op", &op_of_problem, nb::arg("problem"), nb::arg("config"), nb::arg("check"), nb::arg("trace"),
           nb::arg("tuner_file"))
      .def("make_op_of_plan", &op_of_plan, nb::arg("plan"), nb::arg("trace"))
      .def("allocate", &arena_tensor, nb::arg("dtype"), nb::arg("rows"), nb::arg("cols"))
      .def(
          "adopt",
          [](const PyGroup& group, const std::vector<uintptr_t>& at, int64_t bytes) {
            std::vector<std::byte*> all;
            for (const uintptr_t each : at) all.push_back(reinterpret_cast<std::byte*>(each));
            group.in([&](Group& team) { team.adopt(all, bytes); });
          },
          nb::arg("at"), nb::arg("bytes"))
      .def("new_tensor", &new_tensor, nb::arg("dtype"), nb::arg("rows"), nb::arg("cols"))
      .def("fail_with",
           [](const PyGroup& group, const std::string& text) {
             // NOTE: without the lock: another thread may be inside a call of this group.
             group.shared()->group->fail_with(Error(ErrorKind::rank_lost, text));
           })
      .def("leave", &PyGroup::leave);
  module.def("join", &join_team, nb::arg("backend"), nb::arg("rank"), nb::arg("num_ranks"), nb::arg("job"),
             nb::arg("arena_bytes"), nb::arg("timeout_s"), nb::arg("local_rank"), nb::arg("stream_order"),
             nb::arg("sms"));
}

}  // namespace tilewire::python
