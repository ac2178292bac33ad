package driver

import "github.com/bourse-dev/bourse"

// Keys of a container driver's labels; see Driver.Labels.
const (
	LabelVM          = "runtime." + bourse.RuntimeVM // Accelerated or Emulated
	LabelVMEmulation = "vm.emulation"                // if set, machines may be emulated even if their orders do not allow it

	LabelDefaultRuntime = "default.runtime" // the runtime of machines that do not select one
)

// Values of LabelVM.
const (
	Accelerated = "kvm" // the host's processor runs the guests' programs
	Emulated    = "tcg" // qemu emulates the guests' processors, which is about ten times slower
)
