// The names of all enumerators and fields, each once. json.cpp derives JSON, printing, hashing, `--set` and the
// comparison of the ranks' requests from these tables.
#pragma once

#include <array>
#include <string_view>
#include <tuple>
#include <utility>

#include "tilewire/config.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/print.hpp"
#include "tilewire/problem.hpp"
#include "tilewire/sim/sim.hpp"

namespace tilewire {

/// All enumerators of E with their names in JSON and on the command line.
template <class E>
struct Names;

/// All fields of the struct T: a tuple of {name, pointer to member}.
template <class T>
struct Fields;

template <class T, class Member>
struct Field {
  const char* name;
  Member T::*member;
};

template <class T, class Member>
constexpr Field<T, Member> field(const char* name, Member T::*member) {
  return {name, member};
}

#define TILEWIRE_NAMES(E, ...)                                                                  \
  template <>                                                                                   \
  struct Names<E> {                                                                             \
    using enum E;                                                                               \
    static constexpr const char* kType = #E;                                                    \
    static constexpr auto kList = std::to_array<std::pair<E, std::string_view>>({__VA_ARGS__}); \
  };
#define TILEWIRE_FIELDS(T, ...)                            \
  template <>                                              \
  struct Fields<T> {                                       \
    using S = T;                                           \
    static constexpr const char* kType = #T;               \
    static constexpr auto kList = std::tuple{__VA_ARGS__}; \
  };
#define F(name) field(#name, &S::name)

// clang-format off
TILEWIRE_NAMES(ErrorKind, {invalid_input, "invalid_input"}, {unsupported, "unsupported"}, {refused_plan, "refused_plan"},
               {wrong_result, "wrong_result"}, {rank_lost, "rank_lost"}, {timeout, "timeout"}, {internal, "internal"})
TILEWIRE_NAMES(DType, {fp32, "fp32"}, {bf16, "bf16"}, {fp16, "fp16"}, {int32, "int32"}, {fp8_e4m3, "fp8_e4m3"}, {int8, "int8"})
TILEWIRE_NAMES(Reach, {load_store, "load_store"}, {copy, "copy"}, {network, "network"}, {none, "none"})
TILEWIRE_NAMES(BLayout, {nk, "nk"}, {kn, "kn"})
TILEWIRE_NAMES(Reduction, {repeatable, "repeatable"}, {any, "any"})
TILEWIRE_NAMES(EpilogueKind, {bias, "bias"}, {gelu, "gelu"}, {relu, "relu"}, {scale, "scale"}, {residual, "residual"}, {swiglu_pairs, "swiglu_pairs"})
TILEWIRE_NAMES(Activation, {none, "none"}, {relu, "relu"}, {gelu, "gelu"}, {silu, "silu"}, {swiglu, "swiglu"},
               {swiglu_pairs, "swiglu_pairs"})
TILEWIRE_NAMES(NormKind, {rms, "rms"}, {layer, "layer"})
TILEWIRE_NAMES(Direction, {push, "push"}, {pull, "pull"})
TILEWIRE_NAMES(Transport, {store, "store"}, {bulk, "bulk"}, {tma, "tma"}, {copy_engine, "copy_engine"}, {ll, "ll"})
TILEWIRE_NAMES(Algorithm, {direct, "direct"}, {ring, "ring"}, {one_shot, "one_shot"}, {two_phase, "two_phase"})
TILEWIRE_NAMES(ReduceMode, {staged, "staged"}, {pull, "pull"}, {accumulate, "accumulate"})
TILEWIRE_NAMES(ReduceWhen, {beside, "beside"}, {after, "after"})
TILEWIRE_NAMES(TileOrder, {naive, "naive"}, {rank_shifted, "rank_shifted"}, {in_step, "in_step"})
TILEWIRE_NAMES(Release, {tile, "tile"}, {all, "all"})
TILEWIRE_NAMES(Dispatch, {all_gather, "all_gather"}, {per_rank, "per_rank"}, {per_expert, "per_expert"})
TILEWIRE_NAMES(Pacing, {unpaced, "unpaced"}, {lockstep, "lockstep"})
TILEWIRE_NAMES(Provider, {tiles, "tiles"}, {library, "library"})
TILEWIRE_NAMES(Tuning, {off, "off"}, {quick, "quick"}, {full, "full"}, {again, "again"})
TILEWIRE_NAMES(Scope, {input, "input"}, {output, "output"}, {local, "local"}, {symmetric, "symmetric"})
TILEWIRE_NAMES(Purpose, {data, "data"}, {ready, "ready"}, {pace, "pace"})
TILEWIRE_NAMES(WriteMode, {store, "store"}, {accumulate, "accumulate"})
TILEWIRE_NAMES(Via, {automatic, "automatic"}, {threads, "threads"}, {bulk, "bulk"}, {tma, "tma"})
TILEWIRE_NAMES(CacheHint, {automatic, "automatic"}, {none, "none"}, {evict_first, "evict_first"}, {evict_normal, "evict_normal"})
TILEWIRE_NAMES(TaskKind, {compute, "compute"}, {copy, "copy"}, {reduce, "reduce"}, {fill, "fill"}, {sync, "sync"},
               {gemm_call, "gemm_call"}, {collective_call, "collective_call"})
TILEWIRE_NAMES(Body, {gemm, "gemm"}, {pool, "pool"}, {norm, "norm"}, {route, "route"}, {grouped_gemm, "grouped_gemm"}, {select, "select"})
TILEWIRE_NAMES(Collective, {none, "none"}, {all_gather, "all_gather"}, {reduce_scatter, "reduce_scatter"},
               {all_reduce, "all_reduce"}, {all_to_all, "all_to_all"})
TILEWIRE_NAMES(Engine, {tiles, "tiles"}, {reduce, "reduce"}, {copy, "copy"}, {serial, "serial"}, {library, "library"})
TILEWIRE_NAMES(Role, {a, "a"}, {b, "b"}, {bias, "bias"}, {partial, "partial"}, {residual, "residual"}, {indices, "indices"},
               {norm_weight, "norm_weight"}, {norm_bias, "norm_bias"}, {normed, "normed"}, {norm_scale, "norm_scale"},
               {topk_ids, "topk_ids"}, {topk_weights, "topk_weights"}, {w13, "w13"}, {w2, "w2"}, {dropped, "dropped"},
               {extents, "extents"}, {places, "places"}, {place_weights, "place_weights"}, {expert_x, "expert_x"},
               {expert_h, "expert_h"}, {expert_y, "expert_y"})
TILEWIRE_NAMES(Rule, {structure, "structure"}, {progress, "progress"}, {coverage, "coverage"}, {race, "race"},
               {unsupported, "unsupported"})
TILEWIRE_NAMES(Topology, {ring, "ring"}, {fully_connected, "fully_connected"}, {switched, "switched"}, {torus2d, "torus2d"},
               {two_level, "two_level"})
TILEWIRE_NAMES(Arbitration, {round_robin, "round_robin"}, {compute_first, "compute_first"},
               {communication_aware, "communication_aware"})
TILEWIRE_NAMES(NearMemory, {op_and_store, "op_and_store"}, {atomics, "atomics"})
TILEWIRE_NAMES(Forwarding, {cut_through, "cut_through"}, {store_and_forward, "store_and_forward"})
TILEWIRE_NAMES(CollectiveAlgorithm, {ring, "ring"}, {direct, "direct"}, {halving_doubling, "halving_doubling"})

TILEWIRE_FIELDS(Device, F(node), F(copy_engines), F(sms))
TILEWIRE_FIELDS(Link, F(reach), F(bandwidth_GBps), F(latency_us))
TILEWIRE_FIELDS(Team, F(num_ranks), F(rank), F(devices), F(links))
TILEWIRE_FIELDS(Epilogue, F(kind), F(value))
TILEWIRE_FIELDS(Norm, F(kind), F(eps), F(out_dtype))
TILEWIRE_FIELDS(Experts, F(count), F(top_k), F(ffn), F(shared), F(max_rows), F(drops), F(activation), F(placement), F(load))
TILEWIRE_FIELDS(ExpertGroup, F(expert), F(replica), F(replicas))
TILEWIRE_FIELDS(RouteParams, F(groups), F(first_group), F(experts), F(align), F(shards), F(max_rows), F(drops), F(load))
TILEWIRE_FIELDS(Range, F(begin), F(end))
TILEWIRE_FIELDS(Problem, F(op), F(m), F(n), F(k), F(more_n), F(dtype), F(out_dtype), F(b_layout), F(epilogue),
                F(norm), F(experts), F(reduction), F(gathered_output), F(allow_tf32), F(arena), F(constant))
TILEWIRE_FIELDS(Config, F(schedule), F(tile_m), F(tile_n), F(cluster_m), F(cluster_n), F(cluster_split_k), F(group_m), F(split_k),
                F(tile_workers), F(launches), F(reduce_workers), F(copy_workers), F(chunk_rows), F(chunk_cols), F(direction), F(transport),
                F(algorithm), F(reduce_mode), F(reduce_when), F(wire), F(tile_order), F(group_owners), F(rounds), F(release), F(copy_lanes),
                F(pacing), F(dispatch), F(compute), F(collective))
TILEWIRE_FIELDS(Shape, F(rows), F(cols))
TILEWIRE_FIELDS(Buffer, F(name), F(dtype), F(rows), F(cols), F(scope), F(in_arena), F(constant), F(ll), F(copies), F(shared),
                F(extents), F(most_rows), F(reuses), F(shapes))
TILEWIRE_FIELDS(Region, F(rank), F(buffer), F(row), F(rows), F(col), F(cols))
TILEWIRE_FIELDS(Signal, F(rank), F(index))
TILEWIRE_FIELDS(SignalBlock, F(name), F(first), F(count))
TILEWIRE_FIELDS(Wait, F(signal), F(at_least), F(purpose), F(from_col))
TILEWIRE_FIELDS(Post, F(signal), F(add))
TILEWIRE_FIELDS(Write, F(to), F(first_row), F(mode), F(first_col), F(via))
TILEWIRE_FIELDS(EpilogueStep, F(kind), F(value), F(operand))
TILEWIRE_FIELDS(GemmParams, F(b_layout), F(allow_tf32), F(tile_m), F(tile_n), F(cluster_m), F(cluster_n), F(cluster_split_k), F(a_hint),
                F(b_hint))
TILEWIRE_FIELDS(Task, F(kind), F(body), F(gemm), F(norm), F(route), F(activation), F(collective), F(reads), F(writes), F(waits), F(posts), F(epilogue),
                F(addends), F(product_place), F(value))
TILEWIRE_FIELDS(Lane, F(rank), F(engine), F(name), F(workers), F(warpgroups), F(helped), F(kernel), F(stage), F(joined), F(tasks))
TILEWIRE_FIELDS(PlanNote, F(problem), F(config))
TILEWIRE_FIELDS(Plan, F(op), F(note), F(target), F(team), F(buffers), F(signals), F(lanes))
TILEWIRE_FIELDS(TraceEvent, F(lane), F(worker), F(task), F(taken_ns), F(start_ns), F(end_ns), F(sum_taken_ns), F(sum_ns))
TILEWIRE_FIELDS(Trace, F(events))
TILEWIRE_FIELDS(Meaning, F(buffer), F(rank), F(role), F(row), F(col), F(terms), F(finished), F(rows))
TILEWIRE_FIELDS(Violation, F(rule), F(text))
TILEWIRE_FIELDS(LinkTraffic, F(from), F(to), F(bytes))
TILEWIRE_FIELDS(ComputeUnits, F(units), F(clock_GHz), F(flops_per_clock_per_unit), F(fp32_speed), F(tf32_speed), F(efficiency), F(tile_ns),
                F(tile_efficiency), F(side_units), F(waits_by_columns))
TILEWIRE_FIELDS(DeviceMemory, F(bandwidth_GBps), F(unit_bandwidth_GBps), F(cache_MiB))
TILEWIRE_FIELDS(MemoryController, F(channels), F(clock_GHz), F(request_bytes), F(column_bytes), F(bank_groups),
                F(column_clocks), F(update_clocks), F(queue), F(latency_ns), F(arbitration), F(thresholds),
                F(starvation_clocks), F(near_memory), F(caches_outputs), F(step_k))
TILEWIRE_FIELDS(Tracker, F(entries), F(ways), F(address_bits), F(counter_bits), F(workgroup_bits), F(wavefront_bits))
TILEWIRE_FIELDS(CopyEngines, F(engines), F(issue_ns), F(doorbell_ns))
TILEWIRE_FIELDS(Links, F(topology), F(dims), F(bandwidth_GBps), F(latency_ns), F(forwarding), F(store_efficiency),
                F(unit_bandwidth_GBps), F(add_efficiency), F(meeting_efficiency), F(between_bandwidth_GBps), F(between_latency_ns))
TILEWIRE_FIELDS(Overheads, F(launch_ns), F(signal_ns), F(library_ns), F(collective_ns), F(collective_efficiency),
                F(library_efficiency))
TILEWIRE_FIELDS(Machine, F(name), F(summary), F(compute), F(memory), F(controller), F(tracker), F(copy), F(links), F(overheads), F(sources))
// clang-format on

#undef F
#undef TILEWIRE_FIELDS
#undef TILEWIRE_NAMES

}  // namespace tilewire
