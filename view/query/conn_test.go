package query

import (
	"os"
	"path/filepath"
	"testing"
)

// TestConnectionToAReplacedFileIsNotReused returns a connection to a file that was replaced
// while the connection was in use, after the idle connections were pruned. The connection must
// not be reused, because it reads the old file.
func TestConnectionToAReplacedFileIsNotReused(t *testing.T) {
	infos := make([]os.FileInfo, 2)
	for i, name := range []string{"former", "present"} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		infos[i] = info
	}
	former, present := &reader{file: infos[0]}, &reader{file: infos[1]}
	p := &pool{keep: 2}
	p.put(present, false)
	p.put(former, false)
	if got := p.take(infos[1]); got != present {
		t.Errorf("took %p, want %p, which reads the current file", got, present)
	}
	if got := p.take(infos[1]); got != nil {
		t.Errorf("took %p, which reads the old file (%p)", got, former)
	}
}
