package vm

import (
	"os"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// maxVolumes is the maximum number of a machine's volumes. Each takes one of the 32 slots of qemu's PCI bus.
const maxVolumes = 16

// volumeName returns the name of a machine's volume in the container around the machine, which is also the serial number
// of the guest's disk.
func volumeName(i int) string { return "volume" + strconv.Itoa(i) }

func volumeDevice(i int) string { return "/dev/" + volumeName(i) }

// volumeDisk returns the arguments that make qemu give a volume to the guest. The host does not cache its data, so the data is on
// the disk when the guest has flushed it. The blocks are as large as those of the volume's device and file system.
func volumeDisk(i int) []string {
	name := volumeName(i)
	return []string{
		"-drive", "if=none,format=raw,file.locking=off,cache=none,discard=unmap,werror=report,rerror=report,id=" + name + ",file=" + volumeDevice(i),
		"-device", "virtio-blk-pci,drive=" + name + ",serial=" + name + ",logical_block_size=4096,physical_block_size=4096",
	}
}

// addVolumes gives the container around a machine access to the devices of the machine's volumes.
func addVolumes(s *specs.Spec, mounts []driver.Mount) error {
	for i, m := range mounts {
		major, minor, ok := blockNumbers(m.Source)
		if !ok || m.ReadOnly {
			return bourse.Errorf(bourse.CodeInvalid, "mount at %s: a virtual machine can only mount volumes, and only for writing", bourse.Quoted(m.Target))
		}
		mode, user := os.FileMode(0o600), s.Process.User.UID
		s.Linux.Devices = append(s.Linux.Devices, specs.LinuxDevice{Path: volumeDevice(i), Type: "b", Major: major, Minor: minor, FileMode: &mode, UID: &user, GID: &user})
		r := s.Linux.Resources
		r.Devices = append(r.Devices, specs.LinuxDeviceCgroup{Allow: true, Type: "b", Major: &major, Minor: &minor, Access: "rw"})
	}
	return nil
}
