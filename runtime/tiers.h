// The tiers beside a device, those that there are. They outlive who uses them.
#pragma once

#include "runtime/file_tier.h"
#include "runtime/host_tier.h"

namespace ringworld {

struct Tiers {
  HostTier* host = nullptr;
  FileTier* file = nullptr;  // never without `host`, which is on its way
};

}  // namespace ringworld
