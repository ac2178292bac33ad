package bourse_test

import (
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/bourse-dev/bourse"

// floors says on which floor each package stands. Imports point down only.
var floors = map[string]int{
	".":                         1,
	"fsm":                       1,
	"fsm/fsmtest":               1,
	"store":                     2,
	"store/kv":                  2,
	"store/kv/pages":            1,
	"check":                     2,
	"program":                   2,
	"release":                   2,
	"service":                   2,
	"kept":                      2,
	"view":                      2,
	"view/wire":                 2,
	"view/sqlfile":              2,
	"view/schema":               2,
	"view/inventory":            2,
	"view/gossip":               2,
	"view/gossip/gossiptest":    2,
	"view/gossip/sealed":        2,
	"view/replication":          2,
	"view/query":                2,
	"driver":                    2,
	"driver/drivertest":         2,
	"driver/process":            2,
	"driver/container":          2,
	"driver/pull":               2,
	"driver/logs":               2,
	"driver/internal/cgroup":    2,
	"driver/internal/companion": 2,
	"driver/internal/concealed": 2,
	"driver/internal/execio":    2,
	"image":                     2,
	"image/credentials":         2,
	"image/push":                2,
	"image/registrytest":        2,
	"volume":                    2,
	"network":                   2,
	"device":                    2,
	"fabric":                    2,
	"fabric/direct":             2,
	"fabric/fabrictest":         2,
	"fabric/nats":               2,
	"market":                    2,
	"warm":                      2,
	"market/markettest":         2,
	"machinesapi":               2,
	"deploy":                    3,
	"deploy/run":                3,
	"deploy/config":             3,
	"deploy/build":              3,
	"seal":                      2,
	"worker":                    3,
	"worker/state":              3,
	"worker/publish":            3,
	"worker/secrets":            3,
	"worker/volumes":            3,
	"worker/volumes/volumetest": 3,
	"worker/admit":              3,
	"worker/checks":             3,
	"worker/holds":              3,
	"worker/idle":               3,
	"worker/machines":           3,
	"worker/machines/fittings":  3,
	"worker/machines/images":    3,
	"worker/machines/nicknames": 3,
	"worker/machines/samples":   3,
	"worker/machines/processes": 3,
	"worker/machines/spec":      3,
	"worker/standby":            3,
	"worker/tasks":              3,
	"worker/tasks/taskstest":    3,
	"worker/schedule":           3,
	"worker/reach":              3,
	"worker/waits":              3,
	"broker":                    3,
	"broker/access":             3,
	"broker/addresses":          3,
	"broker/apps":               3,
	"broker/declined":           3,
	"broker/elsewhere":          3,
	"broker/endpoint":           3,
	"broker/lookup":             3,
	"broker/metrics":            3,
	"broker/openapi":            3,
	"broker/orgs":               3,
	"broker/placements":         3,
	"broker/quota":              3,
	"broker/proxies":            3,
	"broker/releases":           3,
	"broker/secrets":            3,
	"broker/tokens":             3,
	"gateway":                   3,
	"proxy":                     3,
	"proxy/balance":             3,
	"proxy/metrics":             3,
	"proxy/edge":                3,
	"proxy/replay":              3,
	"proxy/route":               3,
	"proxy/way":                 3,
	"flycompat":                 3,
	"supervise":                 3,
	"deploy/move":               3,
	"cli":                       4,
	"cli/place":                 4,
	"cli/plans":                 4,
	"cli/app":                   4,
	"cli/config":                4,
	"cli/deploy":                4,
	"cli/machine":               4,
	"cli/task":                  4,
	"cli/token":                 4,
	"cli/volume":                4,
	"cli/image":                 4,
	"cli/order":                 4,
	"cli/region":                4,
	"cli/secrets":               4,
	"cli/reservation":           4,
	"cli/spare":                 4,
	"cli/worker":                4,
	"cli/sql":                   4,
	"cli/proxy":                 4,
	"cli/view":                  4,
	"cli/serve":                 4,
	"cli/credentials":           4,
	"cli/dev":                   4,
	"cli/supervise":             4,
	"cli/clitest":               4,
	"cmd/bourse":                5,
	"internal/admission":        2,
	"internal/loopback":         2,
	"internal/duplex":           2,
	"internal/containerdtest":   2,
	"internal/metrics":          2,
	"internal/mux":              2,
	"internal/pace":             2,
	"internal/tempdir":          1,
	"internal/oomscore":         2,
	"internal/bodies":           2,
	"internal/throttle":         2,
	"internal/fair":             1,
	"internal/quiet":            1,
	"internal/samehost":         1,
	"internal/redial":           1,
	"internal/trace":            1,
	"internal/trace/tracetest":  1,
	"internal/codec":            2,
	"internal/codec/codectest":  2,
	"internal/ndjson":           2,
	"bench":                     5,
	"scripts/demo":              5,
	"examples/hello":            5,
	"examples/increment":        5,
	"internal/servertest":       5,
	"test":                      5,
	"test/hostile":              5,
	"test/documents":            5,
	"test/proxy":                5,
	"test/deploy":               5,
	"test/cgroup2":              5,
}

func TestImportsPointDown(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		from := local(fields[0])
		seen[from] = true
		floor, ok := floors[from]
		if !ok {
			t.Errorf("package %s has no floor: add it to the table", from)
			continue
		}
		for _, path := range fields[1:] {
			if path == module || !strings.HasPrefix(path, module) {
				continue
			}
			if to := local(path); floors[to] > floor {
				t.Errorf("%s (floor %d) imports %s (floor %d): imports point down", from, floor, to, floors[to])
			}
		}
	}
	for from := range floors {
		if !seen[from] {
			t.Errorf("the table names %s, which is no package", from)
		}
	}
}

func local(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

func TestEveryPackageIsDocumented(t *testing.T) {
	for dir := range floors {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		documented := slices.ContainsFunc(files, func(name string) bool {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.PackageClauseOnly|parser.ParseComments)
			return err == nil && f.Doc != nil && !strings.HasSuffix(name, "_test.go")
		})
		if !documented {
			t.Errorf("package %s has no package comment", dir)
		}
	}
}
