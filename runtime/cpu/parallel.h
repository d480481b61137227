// Work in equal parts for the threads of one rank.
//
// The parts depend on the amount of work and the number of threads only, never on timing, so
// results are the same bits in every run. What fits one part runs on the calling thread, without
// OpenMP.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ringworld {

// Elements that are worth a thread of their own: some microseconds of work.
inline constexpr std::int64_t elements_per_part = 16384;

// Rows of `width` elements that are worth a thread.
inline std::int64_t rows_per_part(std::int64_t width) {
  return std::max<std::int64_t>(1, elements_per_part / std::max<std::int64_t>(1, width));
}

// How many parts `count` items make; a part has at least `grain` of them.
inline std::int64_t count_parts(int threads, std::int64_t count, std::int64_t grain) {
  return std::clamp<std::int64_t>(count / grain, 1, threads);
}

// body(part, begin, end) for each part of [0, count); borders are multiples of `grain`.
template <typename Body>
void for_each_part(int threads, std::int64_t count, std::int64_t grain, const Body& body) {
  const std::int64_t parts = count_parts(threads, count, grain);
  if (parts == 1) {
    body(std::int64_t{0}, std::int64_t{0}, count);
    return;
  }
  const std::int64_t grains = (count + grain - 1) / grain;
#ifdef _OPENMP
#pragma omp parallel for num_threads(static_cast <int>(parts)) schedule(static, 1)
#endif
  for (std::int64_t part = 0; part < parts; ++part) {
    body(part, std::min(count, grains * part / parts * grain),
         std::min(count, grains * (part + 1) / parts * grain));
  }
}

// body(begin, end), where the part's number does not matter.
template <typename Body>
void for_each_range(int threads, std::int64_t count, std::int64_t grain, const Body& body) {
  for_each_part(threads, count, grain,
                [&](std::int64_t, std::int64_t begin, std::int64_t end) { body(begin, end); });
}

}  // namespace ringworld
