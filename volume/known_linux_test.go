package volume

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A volume that is described again is read again when it may have changed, and
// only then.
func TestAManifestIsKnownUntilTheVolumeChanges(t *testing.T) {
	s := open(t, t.TempDir())
	create(t, s, vol1)
	describe := func() Manifest {
		t.Helper()
		m, err := s.Manifest(t.Context(), string(vol1))
		must(t, err)
		return m
	}
	first := describe()
	reads := len(s.known.list)
	if again := describe(); again.Digest != first.Digest || len(s.known.list) != reads || reads != 1 {
		t.Errorf("described twice: %s and %s, %d remembered", first.Digest, again.Digest, len(s.known.list))
	}
	must(t, os.WriteFile(filepath.Join(mount(t, s, vol1), "new"), []byte("content"), 0o600))
	must(t, s.Unmount(t.Context(), vol1))
	written := describe()
	if written.Digest == first.Digest || slices.Equal(written.Chunks, first.Chunks) {
		t.Error("the manifest is that of before it was written to")
	}
	must(t, s.Extend(t.Context(), vol1, 2))
	if grown := describe(); grown.Bytes != 2*gib {
		t.Errorf("after it grew it has %d bytes", grown.Bytes)
	}
	must(t, s.Destroy(t.Context(), vol1))
	create(t, s, vol1)
	if other := describe(); other.Bytes != gib || other.Digest == written.Digest {
		t.Error("a new volume of the same name is described as the one before")
	}
}
