package bourse_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/bourse-dev/bourse"

// levels maps directories to their levels. A package without an entry has the level of its nearest
// parent directory that has one. A package may import only packages of the same or a lower level.
var levels = map[string]int{
	".":                       1,
	"fsm":                     1,
	"internal":                1,
	"driver":                  2,
	"fabric":                  2,
	"image":                   2,
	"internal/admission":      2,
	"internal/enroll":         3,
	"internal/throttle":       2,
	"internal/codec":          2,
	"internal/containerdtest": 2,
	"internal/duplex":         2,
	"internal/loopback":       2,
	"internal/metrics":        2,
	"internal/mux":            2,
	"internal/seal":           2,
	"machinesapi":             2,
	"market":                  2,
	"network":                 2,
	"store":                   2,
	"view":                    2,
	"volume":                  2,
	"workload":                2,
	"broker":                  3,
	"deploy":                  3,
	"gateway":                 3,
	"proxy":                   3,
	"worker":                  3,
	"cli":                     4,
	"bench":                   5,
	"cmd":                     5,
	"examples":                5,
	"internal/servertest":     5,
	"sim":                     5,
	"test":                    5,
}

// roles lists packages that must not import one another. For example, package broker does not
// import package worker: it communicates with workers through package fabric.
var roles = []string{"broker", "deploy", "gateway", "proxy", "worker"}

func TestImportsPointDown(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		from := local(fields[0])
		for _, path := range fields[1:] {
			if path != module && !strings.HasPrefix(path, module+"/") {
				continue
			}
			to := local(path)
			if level(from) < level(to) {
				t.Errorf("%s (level %d) imports %s (level %d): a package may import only packages of the same or a lower level", from, level(from), to, level(to))
			}
			if a, b := role(from), role(to); a != "" && b != "" && a != b {
				t.Errorf("%s imports %s: roles must not import one another", from, to)
			}
		}
	}
}

func level(dir string) int {
	for ; dir != "."; dir = filepath.Dir(dir) {
		if n, ok := levels[dir]; ok {
			return n
		}
	}
	return levels["."]
}

// role returns the role to which a package belongs, or "" if it belongs to none.
func role(dir string) string {
	first, _, _ := strings.Cut(dir, "/")
	if slices.Contains(roles, first) {
		return first
	}
	return ""
}

func local(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

func TestEveryPackageIsDocumented(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{if .GoFiles}}{{if not .Doc}}{{.ImportPath}}{{end}}{{end}}`, "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	if list := strings.Fields(string(out)); len(list) > 0 {
		t.Errorf("packages without a package comment: %v", list)
	}
}
