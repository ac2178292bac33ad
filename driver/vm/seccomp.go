package vm

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// loopType is the type byte of the ioctls with which a program detaches a loop device from its file, binds it to another one, or makes
// the host's kernel read its partitions. See linux/loop.h and the kernel's ioctl-number.rst.
const loopType = 'L'

// intrusive are system calls with which a program could take over the agent, which keeps the numbers of the machine's devices in use.
var intrusive = []string{"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp"}

// restrict removes system calls from a profile that qemu does not need, but that a guest that has broken out of it could use against
// the agent and the devices of the machine's volumes.
func restrict(profile *specs.LinuxSeccomp) {
	for i := range profile.Syscalls {
		rule := &profile.Syscalls[i]
		rule.Names = slices.DeleteFunc(slices.Clone(rule.Names), func(name string) bool { return name == "ioctl" || slices.Contains(intrusive, name) })
	}
	profile.Syscalls = slices.DeleteFunc(profile.Syscalls, func(rule specs.LinuxSyscall) bool { return len(rule.Names) == 0 })
	// There is a rule for each bit of the type, because a rule can only test whether some bits of an argument have a certain value, and a
	// type differs from loopType if any bit does. The rules must not test the upper half of the argument, which the kernel ignores.
	for bit := uint64(1) << 8; bit < 1<<16; bit <<= 1 {
		profile.Syscalls = append(profile.Syscalls, specs.LinuxSyscall{
			Names: []string{"ioctl"}, Action: specs.ActAllow,
			Args: []specs.LinuxSeccompArg{{Index: 1, Op: specs.OpMaskedEqual, Value: bit, ValueTwo: ^uint64(loopType<<8) & bit}},
		})
	}
}
