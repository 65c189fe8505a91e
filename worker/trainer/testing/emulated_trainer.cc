// ablate-trainer with one more device, cuda_emulated: the CUDA backend on the emulator. For tests: it proves that the trainer
// and the kernels fit together, and is thousands of times slower than a GPU.
#include "kernels/cuda/emulated_backend.h"
#include "worker/trainer/program.h"

int main(int argc, char** argv) {
  return ablate::TrainerMain(
      argc, argv,
      [](const std::string& name,
         const ablate::DeviceOptions& options) -> absl::StatusOr<std::unique_ptr<ablate::Device>> {
        if (name != "cuda_emulated") return ablate::NewDevice(name, options);
        auto device = std::make_unique<ablate::Device>(ablate::NewEmulatedCudaBackend);
        const absl::Status opened = device->Open(ablate::Precision::kFloat32).status();
        if (!opened.ok()) return opened;
        return device;
      });
}
