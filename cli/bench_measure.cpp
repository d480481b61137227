#include "cli/bench_measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>

#include "collectives/schedule.h"
#include "runtime/clock.h"

namespace ringworld {
namespace {

constexpr double seconds_per_algorithm = 0.2;  // and size
constexpr std::int64_t fewest_iterations = 5;
constexpr std::int64_t most_iterations = 1000;
constexpr std::int64_t rounds = 4;
// Reading the clock costs some tens of nanoseconds: a thousandth of this.
constexpr double shortest_batch = 20e-6;  // seconds
constexpr double short_call = 10e-6;      // seconds
// From here on what a first call after others costs is small beside the call.
constexpr double long_call = 10e-3;  // seconds

// While it lives, the communicator serves the operation by this algorithm.
class Serving {
 public:
  Serving(Communicator& communicator, const Algorithm& algorithm)
      : communicator_(communicator), operation_(algorithm.operation) {
    communicator_.use(operation_, algorithm.name);
  }
  ~Serving() { communicator_.use(operation_, "auto"); }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

 private:
  Communicator& communicator_;
  const Operation operation_;
};

// What one contender is to do, and has taken: the same numbers on every rank.
struct Trial {
  std::int64_t iterations = 0;
  std::int64_t batch = 1;          // calls per iteration
  double estimate = 0;             // seconds per call
  std::vector<double> times = {};  // of this rank's iterations, in seconds
};

class Comparison {
 public:
  Comparison(Communicator& communicator, BenchCall& call, const BufferSize& size,
             const MeasureOptions& options)
      : communicator_(communicator), call_(call), size_(size), options_(options) {}

  Trial begin(const Contender& contender) {
    call_.prepare(size_, contender);
    call_.fill();
    Trial trial;
    trial.estimate = estimate(contender);
    if (trial.estimate < short_call && !runs_ahead(contender)) {
      trial.batch = static_cast<std::int64_t>(std::ceil(shortest_batch / trial.estimate));
    }
    const double fill = seconds_per_algorithm / (trial.estimate * static_cast<double>(trial.batch));
    trial.iterations = options_.iterations > 0 ? options_.iterations
                                               : std::clamp(static_cast<std::int64_t>(fill),
                                                            fewest_iterations, most_iterations);
    return trial;
  }

  void run_round(const Contender& contender, std::int64_t iterations, Trial& trial) {
    call_.prepare(size_, contender);
    communicator_.barrier("bench start");
    const Serving serving(communicator_, *contender.algorithm);
    if (trial.estimate < long_call) {
      call_.run();
    }
    Clock::time_point begin = Clock::now();
    for (std::int64_t i = 0; i < iterations; ++i) {
      if (runs_ahead(contender)) {
        communicator_.barrier("bench together");
        begin = Clock::now();
      }
      for (std::int64_t j = 0; j < trial.batch; ++j) {
        call_.run();
      }
      const Clock::time_point end = Clock::now();
      trial.times.push_back(std::chrono::duration<double>(end - begin).count());
      begin = end;
    }
  }

  Timing result(const Trial& trial) {
    Backend& backend = communicator_.backend();
    const Tensor times =
        backend.empty(DType::f64, Shape{std::ssize(trial.times)}, Category::communication);
    backend.upload_values(times, trial.times);
    communicator_.all_reduce(times, times, ReduceOp::max, "bench times").wait();
    std::vector<double> slowest = backend.download_values(times);
    std::ranges::sort(slowest);
    const std::size_t middle = slowest.size() / 2;
    const double median =
        slowest.size() % 2 == 1 ? slowest[middle] : (slowest[middle - 1] + slowest[middle]) / 2;
    const auto calls = static_cast<double>(trial.batch);
    return {.min = slowest.front() / calls,
            .median = median / calls,
            .max = slowest.back() / calls,
            .iterations = trial.iterations,
            .calls_per_iteration = trial.batch};
  }

 private:
  // With a root, a rank may be through with many calls before another one has begun the first: the
  // time of a broadcast would be the root's for a send.
  static bool runs_ahead(const Contender& contender) {
    return has_root(contender.algorithm->operation);
  }

  // How long one call takes, from more and more of them.
  double estimate(const Contender& contender) {
    {
      const Serving serving(communicator_, *contender.algorithm);
      for (std::int64_t i = 0; i < options_.warmup; ++i) {
        call_.run();
      }
    }
    for (std::int64_t calls = 1;; calls *= 4) {
      double seconds = 0;
      {
        const Serving serving(communicator_, *contender.algorithm);
        for (std::int64_t i = 0; i < calls; ++i) {
          if (i == 0 || runs_ahead(contender)) {
            communicator_.barrier("bench together");
          }
          const Clock::time_point begin = Clock::now();
          call_.run();
          seconds += seconds_since(begin);
        }
      }
      seconds = communicator_.all_reduce_value(seconds, ReduceOp::max, "bench estimate");
      if (seconds > 2e-3 || calls >= 4096) {
        return std::max(seconds, 1e-9) / static_cast<double>(calls);
      }
    }
  }

  Communicator& communicator_;
  BenchCall& call_;
  const BufferSize& size_;
  const MeasureOptions& options_;
};

// How many ranks left a barrier before the last had come to it, on one machine. The last rank comes
// late, so that a barrier that does not hold shows.
std::int64_t count_early_leavers(Communicator& communicator, BenchCall& call,
                                 const Algorithm& algorithm) {
  Clock::time_point came;
  Clock::time_point left;
  communicator.barrier("bench start");
  {
    const Serving serving(communicator, algorithm);
    if (communicator.rank() == communicator.world_size() - 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    came = Clock::now();
    call.run();
    left = Clock::now();
  }
  const auto nanoseconds = [](Clock::time_point time) {
    return std::int64_t{
        std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count()};
  };
  const std::int64_t last =
      communicator.all_reduce_value(nanoseconds(came), ReduceOp::max, "bench verification");
  return nanoseconds(left) < last ? 1 : 0;
}

}  // namespace

std::vector<Timing> measure(Communicator& communicator, BenchCall& call, const BufferSize& size,
                            std::span<const Contender> contenders, const MeasureOptions& options) {
  Comparison comparison(communicator, call, size, options);
  std::vector<Trial> trials;
  trials.reserve(contenders.size());
  for (const Contender& contender : contenders) {
    trials.push_back(comparison.begin(contender));
  }
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < trials.size(); ++i) {
      const std::int64_t iterations = chunk_range(trials[i].iterations, rounds, round).count;
      if (iterations > 0) {
        comparison.run_round(contenders[i], iterations, trials[i]);
      }
    }
  }
  std::vector<Timing> timings;
  for (const Trial& trial : trials) {
    timings.push_back(comparison.result(trial));
  }
  return timings;
}

Verification verify(Communicator& communicator, BenchCall& call, const BufferSize& size,
                    const Contender& contender, bool flip, bool one_machine) {
  const auto sent = [&] {
    const auto& traffic = communicator.traffic_by_label();
    const auto found = traffic.find(BenchCall::label);
    return found == traffic.end() ? Bytes() : found->second.bytes_sent;
  };
  call.prepare(size, contender);
  call.fill();
  const Bytes before = sent();
  std::int64_t wrong = 0;
  if (contender.algorithm->operation == Operation::barrier) {
    const std::int64_t early = count_early_leavers(communicator, call, *contender.algorithm);
    wrong = one_machine ? early : 0;
  } else {
    const Serving serving(communicator, *contender.algorithm);
    call.run();
  }
  const Bytes bytes_sent = sent() - before;
  if (flip) {
    call.flip_bit();
  }
  wrong += call.count_wrong();
  return {.wrong = communicator.all_reduce_value(wrong, ReduceOp::sum, "bench verification"),
          .bytes_sent = Bytes(communicator.all_reduce_value(bytes_sent.value, ReduceOp::max,
                                                            "bench verification"))};
}

}  // namespace ringworld
