package vm

import (
	"fmt"
	"os"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/vm/session"
)

// maxVolumes is the maximum number of volumes per machine. Each volume occupies one of the 32 slots of qemu's PCI bus.
const maxVolumes = 16

// volumeName returns the name of a volume's device node in the machine's container. The name is also the serial number
// of the volume's disk in the guest.
func volumeName(i int) string { return "volume" + strconv.Itoa(i) }

func volumeDevice(i int) string { return "/dev/" + volumeName(i) }

// volumeDisk returns the qemu arguments that add a volume's disk to the guest. The host does not cache the disk, so
// data that the guest has flushed has reached the volume's device. The disk has the same block size as the device and
// its file system.
func volumeDisk(i int) []string {
	name := volumeName(i)
	return []string{
		"-drive", "if=none,format=raw,file.locking=off,cache=none,discard=unmap,werror=report,rerror=report,id=" + name + ",file=" + volumeDevice(i),
		"-device", "virtio-blk-pci,drive=" + name + ",serial=" + name + ",logical_block_size=4096,physical_block_size=4096",
	}
}

// blockDevice is a volume's device on the host.
type blockDevice struct {
	major, minor int64
	sequence     uint64
}

// findVolumes returns the block devices of a task's mounts. It returns CodeInvalid if a mount is read-only or is not a
// block device.
func findVolumes(mounts []driver.Mount) ([]blockDevice, error) {
	var out []blockDevice
	for _, m := range mounts {
		if m.ReadOnly {
			return nil, bourse.Errorf(bourse.CodeInvalid, "mount at %s: a virtual machine cannot mount a volume read-only", bourse.Quoted(m.Target))
		}
		d, err := findBlockDevice(m.Source)
		if err != nil {
			return nil, fmt.Errorf("mount at %s: %w", bourse.Quoted(m.Target), err)
		}
		out = append(out, d)
	}
	return out, nil
}

// sequencesOf returns the volumes' paths and sequence numbers, which the agent in the container checks.
func sequencesOf(volumes []blockDevice) []session.Device {
	var out []session.Device
	for i, d := range volumes {
		out = append(out, session.Device{Path: volumeDevice(i), Sequence: d.sequence})
	}
	return out
}

// addVolumes adds the volumes' block devices to a machine's container.
func addVolumes(s *specs.Spec, volumes []blockDevice) {
	mode, user := os.FileMode(0o600), s.Process.User.UID
	r := s.Linux.Resources
	for i, d := range volumes {
		s.Linux.Devices = append(s.Linux.Devices, specs.LinuxDevice{Path: volumeDevice(i), Type: "b", Major: d.major, Minor: d.minor, FileMode: &mode, UID: &user, GID: &user})
		r.Devices = append(r.Devices, specs.LinuxDeviceCgroup{Allow: true, Type: "b", Major: &d.major, Minor: &d.minor, Access: "rw"})
	}
}
