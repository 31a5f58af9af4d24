// Prints a hash of every rank's tables for many plans, or with a line's number its tables as text: two builds make the
// same tables where this prints the same. Needs no GPU. Run by hand; `--few`: a fifth of the plans.
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "backends/cuda/runtime/driver.hpp"
#include "backends/cuda/tables/lane_tables.hpp"
#include "schedules/variants.hpp"
#include "tilewire/lower.hpp"
#include "tilewire/print.hpp"
#include "tilewire/schedule.hpp"

namespace tilewire::cuda {
namespace {

/// All that a map is made of, in its place.
struct Asked {
  const void* data;
  uint32_t type, rank;
  uint64_t dims[2];
  uint64_t stride;
  uint32_t box[2];
  uint32_t swizzle, promotion;
};
static_assert(sizeof(Asked) <= sizeof(CUtensorMap));

CUresult CUDAAPI note(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data, const cuuint64_t* dims,
                      const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t*, CUtensorMapInterleave,
                      CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill) {
  const Asked asked{data,
                    static_cast<uint32_t>(type),
                    rank,
                    {dims[0], dims[1]},
                    strides[0],
                    {box[0], box[1]},
                    static_cast<uint32_t>(swizzle),
                    static_cast<uint32_t>(promotion)};
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &asked, sizeof asked);
  return CUDA_SUCCESS;
}

class Text {
 public:
  template <class... Values>
  void line(const char* name, Values... values) {
    text_ += name;
    (add(values), ...);
    text_ += '\n';
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  template <class Value>
  void add(Value value) {
    if constexpr (std::is_pointer_v<Value>) {
      text_ += fmt::format(" {:x}", reinterpret_cast<uintptr_t>(value));
    } else if constexpr (std::is_enum_v<Value>) {
      text_ += fmt::format(" {}", static_cast<uint64_t>(value));
    } else {
      text_ += fmt::format(" {}", value);
    }
  }
  std::string text_;
};

void print(Text& text, const HostTable& t) {
  for (const TileRecord& x : t.tiles) {
    text.line("tile", x.a_row, x.b_col, x.k_begin, x.k_steps, x.a_map, x.b_map, x.rows, x.cols, x.first_wait,
              x.first_post, x.first_write, x.num_waits, x.num_posts, x.num_writes, x.split, x.flags, x.task,
              x.num_steps, x.first_partial, x.num_partials, x.own_partial, x.num_partial_waits);
  }
  for (const WaitRecord& x : t.waits) text.line("wait", x.signal, x.at_least, x.total, x.index, x.step);
  for (const PostRecord& x : t.posts) text.line("post", x.signal, x.add, x.remote);
  for (const WriteRecord& x : t.writes) {
    text.line("write", x.to, x.ld, x.row, x.col, x.map, x.first_row, x.rows, x.cols, x.mode, x.via, x.rest_map);
  }
  for (const PartialRecord& x : t.parts) text.line("part", x.row, x.col, x.map, x.task);
  for (const CUtensorMap& map : t.maps) {
    Asked x{};
    std::memcpy(&x, &map, sizeof x);
    text.line("map", x.data, x.type, x.rank, x.dims[0], x.dims[1], x.stride, x.box[0], x.box[1], x.swizzle,
              x.promotion);
  }
  for (const RowSplit& x : t.splits) text.line("split", x.row, x.map, x.first);
  if (!t.tiles.empty()) text.line("cache", t.cache_hints.a, t.cache_hints.b);
}

void print(Text& text, const HostWorkerTable& w) {
  for (const LaneRecord& x : w.lanes) {
    text.line("lane", x.first_op, x.num_ops, x.ctas, x.serial, x.sync_only, x.sized, x.helped, x.warpgroups, x.after,
              x.progress);
  }
  for (const OpRecord& x : w.ops) {
    text.line("step", x.code, false, x.b_is_kn, x.num_sources, x.num_targets, x.num_epilogue, x.polls, x.num_waits,
              x.num_posts, x.rows, x.cols, x.depth, x.task, x.value, x.doorbell, x.first_source, x.first_target,
              x.first_epilogue, x.first_wait, x.first_post);
  }
  for (const SourceRecord& x : w.sources) text.line("source", x.data, x.ld, x.dtype, 1.0F);
  for (const TargetRecord& x : w.targets) text.line("target", x.data, x.ld, x.first_row, x.rows, x.dtype, x.mode);
  for (const EpilogueRecord& x : w.epilogue) text.line("epilogue", x.kind, x.dtype, x.value, x.operand, x.ld);
  for (const WaitRecord& x : w.waits) text.line("wait", x.signal, x.at_least, x.total, x.index, x.step);
  for (const PostRecord& x : w.posts) text.line("post", x.signal, x.add, x.remote);
  text.line("late", w.helper_ctas);
}

void print(Text& text, const Preamble& o) {
  text.line("opening", o.num_posts, o.task, o.has_task, o.notes_begin, o.waited);
  for (uint32_t i = 0; i < o.num_posts; ++i) text.line("post", o.posts[i].signal, o.posts[i].add, o.posts[i].remote);
}

void print(Text& text, const StreamWork& work) {
  text.line("work", work.stream, work.lane, work.task, work.doorbell, work.what.index(), work.follows,
            work.notified_aside);
  if (const auto* x = std::get_if<StreamCopy>(&work.what))
    text.line("copy", x->to, x->from, x->to_pitch, x->from_pitch, x->width, x->rows);
  if (const auto* x = std::get_if<LibraryGemm>(&work.what)) {
    text.line("gemm", x->m, x->n, x->k, x->parts, x->next_part, x->a, x->b, x->c, x->bias, x->lda, x->ldb, x->ldc,
              x->dtype, x->out_dtype, x->bias_dtype, false, x->b_is_kn, x->relu, x->tf32, x->sms);
  }
  if (const auto* x = std::get_if<LibraryCollective>(&work.what))
    text.line("collective", x->kind, x->from, x->to, x->from_elements, x->to_elements, x->dtype);
  if (const auto* x = std::get_if<StreamWorkers>(&work.what)) text.line("walk", x->lane);
}

template <class T>
T* made_up(uintptr_t at) {
  return reinterpret_cast<T*>(at);
}

std::string tables_text(const Plan& made, int rank, bool streams, bool traced) {
  Target target = gpu_target("h200", made.team.num_ranks, 132);
  target.streams = streams;
  const Plan plan = lower(made, target).plan;
  Addresses addresses;
  for (int owner = 0; owner < plan.team.num_ranks; ++owner) {
    uintptr_t at = (uintptr_t{1} << 40) + (static_cast<uintptr_t>(owner) << 36);
    for (const Buffer& buffer : plan.buffers) {
      addresses.bases.push_back({made_up<std::byte>(at), shape_on(buffer, owner).cols});
      at += uintptr_t{1} << 32;
    }
  }
  addresses.signal = [&](const Signal& signal) { return made_up<uint64_t>(0x1000 + 32 * signal_id(plan, signal)); };
  addresses.progress = made_up<uint64_t>(uintptr_t{1} << 32);
  addresses.doorbells = made_up<Doorbell>(uintptr_t{1} << 33);
  Plan mine = plan;
  std::erase_if(mine.lanes, [&](const Lane& lane) { return lane.rank != rank; });
  const Room room{132, streams, traced, streams ? gemm_params_of(plan).cluster_split_k : 1};
  const RankTables tables = make_tables(mine, rank, addresses, facts_of(plan, rank), room);
  Text text;
  print(text, tables.gemm);
  if (!tables.gemm.tiles.empty())
    text.line("kind", tables.kind.dtype, tables.kind.b_is_kn, tables.kind.shape.m, tables.kind.shape.n,
              tables.kind.sums);
  text.line("ctas", tables.gemm_ctas, tables.cluster.m, tables.cluster.n, tables.cluster.k);
  print(text, tables.workers);
  for (const StreamWork& work : tables.works) print(text, work);
  for (const StreamUse& use : tables.streams) text.line("stream", use.urgent, use.has_notifier);
  text.line("apart", tables.lanes_apart, tables.stream_ordered);
  print(text, tables.first);
  print(text, tables.preamble);
  for (const TaskName& name : tables.names) text.line("name", name.lane, name.task, name.again, name.sum);
  return text.take();
}

uint64_t hash_text(const std::string& text) {
  uint64_t hash = 14695981039346656037U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash;
}

struct Case {
  std::string name;
  Problem problem;
  Team team;
  Config config;
};

Team team_of_gpus(int ranks) {
  Team team{.num_ranks = ranks};
  team.devices.assign(static_cast<size_t>(ranks), {.copy_engines = 3, .sms = 132});
  return team;
}

std::vector<Case> all_cases() {
  constexpr std::array kOps{"all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce", "gemm_all_to_all",
                            "all_reduce"};
  std::vector<Case> cases;
  const auto add = [&](const char* from, const Problem& problem, const Team& team, const Config& config) {
    cases.push_back({fmt::format("{} {} {} ranks {}", from, to_string(problem), team.num_ranks, to_string(config)),
                     problem, team, config});
  };
  // What `auto` tries for shapes of models.
  constexpr std::array<std::array<int64_t, 3>, 12> kShapes{{{8192, 8192, 8192},
                                                            {4096, 12288, 6144},
                                                            {2048, 10240, 8192},
                                                            {1024, 8192, 28672},
                                                            {512, 12288, 12288},
                                                            {300, 10240, 8192},
                                                            {144, 8192, 28672},
                                                            {64, 8192, 8192},
                                                            {1, 8192, 8192},
                                                            {1500, 4096, 11008},
                                                            {600, 8192, 3584},
                                                            {1000, 1000, 1000}}};
  for (const char* op : kOps) {
    for (const auto& [m, n, k] : kShapes) {
      for (const int ranks : {1, 2, 4}) {
        const Problem problem{.op = op, .m = m, .n = n, .k = k, .dtype = DType::bf16, .reduction = Reduction::any};
        const Team team = team_of_gpus(ranks);
        for (const Schedule& schedule : schedules()) {
          if (schedule.refuses(problem, team, {.schedule = schedule.name})) continue;
          for (const Config& config : schedule.candidates(problem, team)) add("auto", problem, team, config);
        }
      }
    }
  }
  // Every knob of small problems, with types, layouts, epilogues and tensors in the arena.
  for (const char* op : kOps) {
    for (const int ranks : {1, 2, 3, 4}) {
      Problem problem{.op = op, .m = 520, .n = 776, .k = 640, .dtype = DType::bf16, .reduction = Reduction::any};
      for (const int kind : {0, 1, 2, 3}) {
        if (kind == 1) problem.b_layout = BLayout::kn, problem.epilogue = {{EpilogueKind::bias}};
        if (kind == 2) problem.dtype = DType::fp16, problem.out_dtype = DType::fp32, problem.epilogue.clear();
        if (kind == 3) problem.dtype = DType::fp32, problem.epilogue = {{EpilogueKind::relu}};
        if (op == std::string("all_reduce")) problem.epilogue.clear(), problem.b_layout = BLayout::nk;
        const Team team = team_of_gpus(ranks);
        Config base{.tile_m = 128, .tile_n = kind == 0 ? 256 : 128, .chunk_rows = 64};
        base.cluster_m = kind == 0 ? 2 : 1;
        for (const Config& config : all_variants(problem, team, base)) add("all", problem, team, config);
      }
    }
  }
  return cases;
}

int main_of(int argc, char** argv) {
  const bool few = argc > 1 && std::strcmp(argv[1], "--few") == 0;
  const long wanted = argc > 1 && !few ? std::atol(argv[1]) : -1;
  const std::vector<Case> cases = all_cases();
  for (long i = 0; i < std::ssize(cases); i += few ? 5 : 1) {
    if (wanted >= 0 && i != wanted) continue;
    const Case& one = cases[static_cast<size_t>(i)];
    std::string text;
    try {
      const Plan plan = make_plan(one.problem, one.team, one.config);
      for (int rank = 0; rank < one.team.num_ranks; ++rank) {
        text += tables_text(plan, rank, true, false);
        if (i % 4 == 0) text += tables_text(plan, rank, i % 8 == 0, i % 16 == 0);
      }
    } catch (const std::exception& error) {
      text = fmt::format("no tables: {}\n", error.what());
    }
    const bool none = text.starts_with("no tables");
    fmt::print("{} {:016x} {}{}\n", i, none ? 0 : hash_text(text), none ? text.substr(0, text.size() - 1) + " " : "",
               one.name);
    if (wanted >= 0) fmt::print("{}", text);
  }
  return 0;
}

}  // namespace

/// NOTE: comes before the library's own, which needs a driver.
Driver load_driver() {
  Driver driver;
  driver.tensor_map_encode_tiled = note;
  return driver;
}

}  // namespace tilewire::cuda

int main(int argc, char** argv) { return tilewire::cuda::main_of(argc, argv); }
