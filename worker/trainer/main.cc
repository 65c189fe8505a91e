// ablate-trainer: the child process that trains and evaluates, one task at a time, for a slot of ablate-worker.
#include "worker/trainer/program.h"

int main(int argc, char** argv) { return ablate::TrainerMain(argc, argv, ablate::NewDevice); }
