#include "cli/bench_measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <thread>

#include "collectives/schedule.h"
#include "runtime/clock.h"

namespace ringworld {
namespace {

constexpr double seconds_per_algorithm = 0.3;  // and size
constexpr std::int64_t fewest_iterations = 5;
constexpr std::int64_t fewest_times_around = 3;  // each a call for every root
constexpr std::int64_t most_iterations = 1000;
constexpr std::int64_t rounds = 4;
// Ranks that share cores end a call some switches between processes after one another, now one rank
// first and now another: what an iteration takes is to be long beside that.
constexpr double shortest_iteration = 200e-6;  // seconds, when nothing disturbs
constexpr double longest_iteration = 50e-3;    // of several calls, as they are

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
  std::int64_t batch = 1;         // calls per iteration
  std::vector<double> ends = {};  // of this rank's iterations, in seconds since their round began
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
    const Estimate estimate = this->estimate(contender);
    const auto turns = static_cast<double>(call_.turns());  // a call with every root
    const double enough = std::ceil(shortest_iteration / (estimate.fastest * turns));
    const double bearable = std::floor(longest_iteration / (estimate.mean * turns));
    trial.batch =
        call_.turns() * static_cast<std::int64_t>(std::max(1.0, std::min(enough, bearable)));
    const double fill = seconds_per_algorithm / (estimate.mean * static_cast<double>(trial.batch));
    const std::int64_t fewest = call_.turns() > 1 ? fewest_times_around : fewest_iterations;
    trial.iterations = options_.iterations > 0
                           ? options_.iterations
                           : std::clamp(static_cast<std::int64_t>(fill), fewest, most_iterations);
    return trial;
  }

  void run_round(const Contender& contender, int round, Trial& trial) {
    const std::int64_t iterations = chunk_range(trial.iterations, rounds, round).count;
    if (iterations == 0) {
      return;
    }
    call_.prepare(size_, contender);
    communicator_.barrier("bench start");
    const Serving serving(communicator_, *contender.algorithm);
    call_.run();  // with nothing in the caches that is this one's
    const Clock::time_point begin = Clock::now();
    for (std::int64_t i = 0; i < iterations; ++i) {
      for (std::int64_t j = 0; j < trial.batch; ++j) {
        call_.run();
      }
      trial.ends.push_back(seconds_since(begin));
    }
  }

  Timing result(const Trial& trial) {
    Backend& backend = communicator_.backend();
    const Tensor ends =
        backend.empty(DType::f64, Shape{std::ssize(trial.ends)}, Category::communication);
    backend.upload_values(ends, trial.ends);
    communicator_.all_reduce(ends, ends, ReduceOp::max, "bench times").wait();
    std::vector<double> slowest = backend.download_values(ends);
    for (int round = 0; round < rounds; ++round) {
      const Range part = chunk_range(trial.iterations, rounds, round);
      if (part.count > 0) {
        const auto first = slowest.begin() + part.first;
        std::adjacent_difference(first, first + part.count, first);
      }
    }
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
  struct Estimate {  // seconds per call
    double fastest = std::numeric_limits<double>::infinity();
    double mean = 0;
  };

  // From more and more calls, and the most three times: beside other programs, one look says
  // little.
  Estimate estimate(const Contender& contender) {
    run(contender, options_.warmup * call_.turns());
    Estimate estimate;
    std::int64_t calls = 1;
    double sum = 0;
    std::int64_t summed = 0;  // calls
    int looks = 0;
    while (looks < 3 && sum < longest_iteration) {
      const double seconds = std::max(timed(contender, calls), 1e-9);
      estimate.fastest = std::min(estimate.fastest, seconds / static_cast<double>(calls));
      if (seconds > 2e-3 || calls >= 1024) {
        ++looks;
        sum += seconds;
        summed += calls;
      } else {
        calls *= 4;
      }
    }
    estimate.mean = sum / static_cast<double>(summed);
    return estimate;
  }

  // The slowest rank's, of so many calls.
  double timed(const Contender& contender, std::int64_t calls) {
    communicator_.barrier("bench together");
    const Clock::time_point begin = Clock::now();
    run(contender, calls);
    return communicator_.all_reduce_value(seconds_since(begin), ReduceOp::max, "bench estimate");
  }

  void run(const Contender& contender, std::int64_t calls) {
    const Serving serving(communicator_, *contender.algorithm);
    for (std::int64_t i = 0; i < calls; ++i) {
      call_.run();
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
      comparison.run_round(contenders[i], round, trials[i]);
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
