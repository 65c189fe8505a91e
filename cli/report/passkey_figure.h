// The map of passkey retrieval: accuracy over length and depth, a panel an arm. Must not compute statistics: every number
// is a row's. Thread rule: pure functions.
#pragma once

#include <vector>

#include "cli/report/figures.h"
#include "proto/coordinator.pb.h"

namespace ablate {

// Of rows of the family passkey_accuracy.depth_<k>_of_<n>: one figure for each (entry's name, phase, NTK setting, n).
// Lengths go from left to right, depths from top (the beginning of the text) to bottom; a square is white at 0 and dark at
// 1, and has the mean over seeds in it; one without a value is crossed out.
std::vector<Figure> PasskeyMaps(const std::vector<v1::ConfidenceRow>& rows);

}  // namespace ablate
