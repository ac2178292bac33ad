package volume

import (
	"slices"
	"strings"
	"testing"
)

func TestMountPoints(t *testing.T) {
	const info = "22 1 254:0 / / rw - ext4 /dev/vda rw\n" +
		"91 22 7:0 / /data/a\\040b\\134c rw,nodev shared:1 - ext4 /dev/loop0 rw\n" +
		"92 91 7:1\n\n" +
		"93 91 7:1 / /x\\0 rw - ext4 /dev/loop1 rw\n"
	if got, want := mountPoints(info), []string{"/", `/data/a b\c`, `/x\0`}; !slices.Equal(got, want) {
		t.Errorf("mount points %q, want %q", got, want)
	}
}

func FuzzMountPoints(f *testing.F) {
	f.Add("91 22 7:0 / /data/a\\040b rw - ext4 /dev/loop0 rw\n")
	f.Add("\\\\\\040 \\1 \\12 \\777 \\\\777\n")
	f.Fuzz(func(t *testing.T, info string) {
		if got := mountPoints(info); len(got) > strings.Count(info, "\n")+1 {
			t.Errorf("%d mount points in %q", len(got), info)
		}
	})
}
