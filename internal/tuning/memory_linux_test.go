package tuning

import (
	"os"
	"path/filepath"
	"testing"
)

// The lowest limit of the group and its ancestors counts, in either cgroup version.
func TestCgroupMemory(t *testing.T) {
	for name, tt := range map[string]struct {
		membership string
		files      map[string]string
		want       uint64
	}{
		"version 2":                       {"0::/a/b\n", map[string]string{"a/b/memory.max": "1000\n", "a/memory.max": "max\n"}, 1000},
		"an ancestor's":                   {"0::/a/b\n", map[string]string{"a/b/memory.max": "1000\n", "a/memory.max": "500\n"}, 500},
		"version 1":                       {"5:cpu,cpuacct:/x\n4:memory:/a\n", map[string]string{"memory/a/memory.limit_in_bytes": "700\n"}, 700},
		"none":                            {"0::/\n", map[string]string{"memory.max": "max\n"}, 0},
		"a path outside of the hierarchy": {"0::/../../etc\n", nil, 0},
		"no cgroups":                      {"", nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range tt.files {
				path := filepath.Join(root, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			membership := filepath.Join(root, "membership")
			if err := os.WriteFile(membership, []byte(tt.membership), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := cgroupMemory(membership, root); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}
