// Threads that execute the calls of a group's programs, and the memory that workers keep from call to call.
// One per group, which owns it: its operators are called one at a time, so they share its threads.
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
  /// What worker `index` of a call does, with the memory of all workers of that number. Throws nothing.
  using Step = std::function<void(int index, TaskRunner& runner)>;

  Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();

  /// Exclusive use of the pool. Throws Error(invalid_input) where another thread has it.
  class Turn {
   public:
    explicit Turn(Pool& pool);
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() { pool_.busy_.store(false, std::memory_order_release); }

   private:
    Pool& pool_;
  };

  /// How many cores this rank may use.
  [[nodiscard]] CoreShare& share() { return share_; }
  /// Have threads for calls of so many workers, one of which is the thread that calls; those of earlier calls remain.
  /// They run on the cores where the calling thread may run now. Takes a turn. Throws Error(unsupported) where the
  /// system gives no more threads.
  void grow(int workers);
  /// Do step(0) here and every other step(i), i < workers, at once; returns when all have ended. Each has a thread that
  /// does nothing else until it ends. Whoever calls has a turn, and has seen to it that the pool is large enough.
  void run(int workers, const Step& step);

 private:
  struct Thread;
  void serve(const Thread& me);
  /// Do a step of this call that nobody has begun. False where there is none.
  bool help();
  /// End all threads but the first `count`.
  void shrink(size_t count);
  /// Forget threads that another process has.
  void disown();

  CoreShare share_;
  std::vector<std::unique_ptr<TaskRunner>> runners_;  // by worker
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<int> cores_;  // where they may run
  pid_t process_;           // that has them
  std::atomic<bool> busy_{false};
  uint64_t calls_ = 0;  // that had several steps
  // Steps but the first of each call are numbered, from call to call.
  Slot begun_;  // numbers that calls have given out
  Slot ended_;  // calls
  // NOTE: what all threads look at during a call is one cache line.
  alignas(64) std::atomic<uint64_t> taken_{0};  // numbers
  uint64_t first_ = 0;                          // number of step(1) of this call
  const Step* step_ = nullptr;
  std::atomic<int> unfinished_{0};  // steps of this call
};

}  // namespace tilewire::host
