// Threads that execute the calls of a group's programs, and the workers' memory that is reused by later calls.
// Owned by a group. Its operators are called one at a time, so they share the threads.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "backends/host/slot.hpp"
#include "backends/host/tasks.hpp"
#include "core/cores.hpp"

namespace tilewire::host {

class Pool {
 public:
  /// The work of worker `index` in a call; `runner` is shared by all workers of that index. Must not throw.
  using Step = std::function<void(int index, TaskRunner& runner)>;

  Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();

  /// Exclusive use of the pool. Throws Error(invalid_input) if another thread has it.
  class Turn {
   public:
    explicit Turn(Pool& pool);
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() { pool_.busy_.store(false, std::memory_order_release); }

   private:
    Pool& pool_;
  };

  /// The rank's share of cores.
  [[nodiscard]] CoreShare& share() { return share_; }
  /// Have threads for calls of `workers` workers, one of which is the calling thread. Threads of earlier calls remain.
  /// They run on the cores on which the calling thread may run now. Takes a Turn. Throws Error(unsupported) if the
  /// system refuses a thread.
  void grow(int workers);
  /// Call step(0) in this thread and all other step(i), i < workers, at the same time. Returns when all have ended.
  /// Each step has a thread to itself. The caller must hold a Turn, and the pool must be large enough.
  void run(int workers, const Step& step);

 private:
  struct Thread;
  void serve(const Thread& me);
  /// Run a step of this call that no thread has taken. False if there is none.
  bool help();
  /// End all threads except the first `count`.
  void shrink(size_t count);
  /// Release threads that exist only in the parent process.
  void disown();

  CoreShare share_;
  std::vector<std::unique_ptr<TaskRunner>> runners_;  // by worker
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<int> cores_;  // cores on which the threads may run
  pid_t process_;           // process of the threads
  std::atomic<bool> busy_{false};
  uint64_t calls_ = 0;  // calls with several steps
  // All steps except the first of each call are numbered, over all calls.
  Slot begun_;  // steps that calls have handed out
  Slot ended_;  // calls that have ended
  // NOTE: the fields that all threads read during a call are in one cache line.
  alignas(64) std::atomic<uint64_t> taken_{0};  // steps that threads have taken
  uint64_t first_ = 0;                          // number of step(1) of this call
  const Step* step_ = nullptr;
  std::atomic<int> unfinished_{0};  // steps of this call
};

}  // namespace tilewire::host
