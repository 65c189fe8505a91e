// Why jobs of a sweep failed, in a few lines. Must not know how results are printed.
#pragma once

#include <string>
#include <vector>

#include "cli/client.h"
#include "proto/resources.pb.h"

namespace ablate {

// "code_error: the text is too short", in one line of at most `width` columns; "" where nothing failed.
std::string FailureLine(const v1::Failure& failure, size_t width);

// The distinct causes with their counts and one job each, most frequent first; then how many failed because another
// had.
std::vector<std::string> FailureLines(const std::vector<v1::Job>& failed);

// Says on stderr how many jobs of the sweep failed, why, and where to look. `where`: flags that name the coordinator,
// as WhereFlags gives them.
void SayFailures(Client* client, const v1::Sweep& sweep, const std::string& where);

// Every job of the sweep ("": of all) in these states (none: in all).
absl::StatusOr<std::vector<v1::Job>> ListAllJobs(Client* client, const std::string& sweep,
                                                 const std::vector<v1::JobState>& states);

}  // namespace ablate
