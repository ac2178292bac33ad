package volume

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

func FuzzHeader(f *testing.F) {
	f.Add([]byte(`{"moment":"vs_0000000000000001","bytes":4096}` + "\n"))
	f.Add([]byte(`{"bytes":-1}` + "\n"))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := readHeader(bufio.NewReader(bytes.NewReader(b)))
		if err == nil && (h.Bytes <= 0 || h.Bytes%blockSize != 0 || h.Bytes > bourse.MaxVolumeGB*gib) {
			t.Errorf("header of %d bytes", h.Bytes)
		}
	})
}

func FuzzSuperblock(f *testing.F) {
	f.Add(make([]byte, superblockBytes))
	b := make([]byte, superblockBytes)
	b[0x38], b[0x39], b[0x4], b[0x18] = 0x53, 0xef, 200, 2
	f.Add(b)
	f.Add(b[:100])
	f.Fuzz(func(t *testing.T, b []byte) {
		sb, err := parseSuperblock(b)
		if err != nil {
			return
		}
		u := sb.usage()
		if u.BlockSize < 1024 || u.BlockSize > 64<<10 || u.Blocks < 0 || u.BlocksFree < 0 || u.BlocksAvail < 0 || u.BlocksAvail > u.BlocksFree || u.BlocksFree > u.Blocks {
			t.Errorf("usage %+v of %+v", u, sb)
		}
	})
}

func FuzzEntry(f *testing.F) {
	for _, name := range []string{"vol_0000000000000001", "vs_0000000000000001.new", "00000000000001.gone", "vol_0000000000000001.fork12", "..", "vol_0000000000000001.fork"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		id, at, ok := entry(name)
		if !ok {
			return
		}
		if !strings.HasPrefix(name, id+string(at)) || strings.ContainsAny(name, "/\x00\n") {
			t.Errorf("%q was parsed as %q at %q", name, id, at)
		}
		if bourse.VolumeID(id).Validate() != nil && bourse.SnapshotID(id).Validate() != nil && bourse.MachineID(id).Validate() != nil {
			t.Errorf("%q has id %q", name, id)
		}
	})
}
