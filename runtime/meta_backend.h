// The meta backend, for dry runs: it computes nothing and holds nothing.
//
// Every verb takes from the device what the CPU backend's takes with as many threads, and counts
// floating-point operations, so that ledger and flops() of a program are those of a real run while
// its tensors may be larger than this machine. No shapes are checked: a real run does that.
//
// What a program reads is zero: download, sum and fingerprint give 0, whatever was uploaded.
#pragma once

#include <memory>

#include "runtime/backend.h"

namespace ringworld {

// A device for it, whose memory is make_no_memory. `budget` as in DeviceOptions.
std::shared_ptr<Device> make_meta_device(Bytes budget);

// `threads` are those of the CPU backend that it stands for; it starts none.
std::unique_ptr<Backend> make_meta_backend(std::shared_ptr<Device> device, int threads);

}  // namespace ringworld
