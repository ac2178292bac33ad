package bourse_test

import (
	"go/parser"
	"go/token"
	"os"
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
	"store/pages":               1,
	"view":                      2,
	"view/gossip":               2,
	"view/gossip/gossiptest":    2,
	"view/gossip/sealed":        2,
	"view/query":                2,
	"driver":                    2,
	"driver/drivertest":         2,
	"driver/process":            2,
	"driver/container":          2,
	"driver/pull":               2,
	"driver/logs":               2,
	"driver/internal/cgroup":    2,
	"driver/internal/companion": 2,
	"image":                     2,
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
	"worker":                    3,
	"broker":                    3,
	"gateway":                   3,
	"supervise":                 3,
	"cli":                       4,
	"cmd/bourse":                5,
	"internal/admission":        2,
	"internal/loopback":         2,
	"internal/duplex":           2,
	"internal/containerdtest":   2,
	"internal/trywrite":         2,
	"internal/pace":             2,
	"internal/oomscore":         2,
	"internal/bodies":           2,
	"internal/throttle":         2,
	"internal/quiet":            1,
	"internal/codec":            2,
	"internal/codec/codectest":  2,
	"internal/compact":          2,
	"bench":                     5,
	"scripts/demo":              5,
	"examples/hello":            5,
	"examples/increment":        5,
	"internal/servertest":       5,
	"test":                      5,
	"test/hostile":              5,
	"test/cgroup2":              5,
}

// edges are the imports between packages of this project, beside those of the
// root, which everyone may import. Each has its reason.
var edges = map[string]map[string]string{
	"fsm":         {"internal/quiet": "says once a minute what it cannot record"},
	"fsm/fsmtest": {"fsm": "is a journal of it"},
	"store": {
		"fsm":              "is its journal",
		"internal/compact": "keeps tasks in its form",
		"internal/quiet":   "says once a minute that the disk is full",
		"store/pages":      "reads its file whole before bbolt does",
	},
	"driver/drivertest":      {"driver": "is the suite of the contract, and a fake of it"},
	"driver/internal/cgroup": {"driver": "speaks of its limits and usage"},
	"driver/process": {
		"driver":                    "implements it",
		"driver/logs":               "writes machines' output, and reads it",
		"driver/internal/cgroup":    "has it make the groups that tasks live in",
		"driver/internal/companion": "its supervisor is one",
		"internal/oomscore":         "forks machines without its protection",
	},
	"driver/internal/companion": {"internal/oomscore": "forks without its protection"},
	"volume":                    {"internal/oomscore": "forks its tools without its protection"},
	"driver/container": {
		"driver":                 "implements it",
		"driver/logs":            "has its keeper write containers' output",
		"driver/internal/cgroup": "asks what the host accounts",
	},
	"driver/pull": {"driver": "implements it"},
	"driver/logs": {
		"driver":                    "gives its log lines",
		"driver/internal/companion": "its keeper is one",
	},
	"internal/codec/codectest": {"internal/codec": "writes bodies for tests"},
	"image/registrytest":       {"internal/containerdtest": "pushes its busybox"},
	"fabric": {
		"internal/bodies": "reads and writes bodies within its limits",
		"internal/codec":  "its bodies have this form",
		"internal/duplex": "its streams are made of these frames",
	},
	"fabric/direct": {
		"internal/bodies":    "each listener has limits of its own",
		"fabric":             "implements it",
		"internal/admission": "names servers in certificates",
		"internal/trywrite":  "its callers write for others",
	},
	"warm": {"internal/trywrite": "its callers write for others"},
	"fabric/fabrictest": {
		"fabric":          "is the suite of the contract",
		"internal/bodies": "its handlers stream as a worker's do",
	},
	"fabric/nats":       {"fabric": "implements it"},
	"machinesapi":       {"internal/duplex": "its streams are made of these frames"},
	"market/markettest": {"market": "fakes what it asks for"},
	"view/gossip": {
		"view":               "spreads its transactions",
		"view/gossip/sealed": "memberlist hears and says nothing but through it",
	},
	"view/gossip/gossiptest": {
		"view":        "its nodes have one each",
		"view/gossip": "runs whole groups of members",
	},
	"view/query": {
		"view":            "asks its file, and hears of its changes",
		"internal/bodies": "reads bodies within its limits",
	},
	"worker": {
		"internal/admission": "knows by its certificate who reads what it has granted",
		"driver":             "starts machines through it",
		"fabric":             "serves the paths and bodies of the worker's API",
		"fsm":                "its operations are runs",
		"store":              "its truth",
		"network":            "attaches machines to it",
		"volume":             "hands its manifests from worker to worker",
		"warm":               "speaks frames to the programs of warm machines",

		"internal/throttle": "bounds the claims in progress",
		"internal/quiet":    "says once a minute what it cannot record",
	},
	"broker": {
		"internal/throttle": "bounds what it begins at once",
		"internal/bodies":   "reads and writes bodies within its limits",
		"fabric":            "asks workers through its client",
		"machinesapi":       "speaks its wire types",
	},
	"gateway": {
		"internal/bodies": "lets a job's output take its time",
		"driver/pull":     "speaks for its pollers",
		"fabric":          "reads and writes bodies as every server does",
	},
	"internal/servertest": {
		"internal/admission": "shows what servers show",
		"internal/loopback":  "finds the credentials of its servers",
		"machinesapi":        "returns clients of its brokers",
	},
	"examples/increment": {"warm": "shows a program that speaks frames"},
	"supervise":          {"driver": "runs its tasks through one"},
	"cli": {
		"internal/admission": "asks which addresses need credentials",
		"internal/loopback":  "finds the token of an API on loopback",
		"machinesapi":        "is its client",
		"supervise":          "reads its tasks, and prints what they write",
		"driver":             "prints a task's lines",
	},
}

// wiring packages build whole programs and may import whatever they wire.
var wiring = []string{"cmd/bourse", "bench", "scripts/demo", "test"}

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
			t.Errorf("package %s has no floor: add it to the table, with a reason for each of its imports", from)
			continue
		}
		for _, path := range fields[1:] {
			if path == module || !strings.HasPrefix(path, module) {
				continue
			}
			to := local(path)
			switch {
			case floors[to] > floor:
				t.Errorf("%s (floor %d) imports %s (floor %d): imports point down", from, floor, to, floors[to])
			case slices.Contains(wiring, from):
			case edges[from][to] == "":
				t.Errorf("%s imports %s without a reason in the table", from, to)
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

// The package map in the README names each package that a reader meets, and
// no other.
func TestReadmeMapMatchesTheTree(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "<!-- packages -->\n```\n")
	block, _, ended := strings.Cut(rest, "```")
	if !ok || !ended {
		t.Fatal("README.md has no block marked <!-- packages -->")
	}
	named := map[string]bool{}
	for line := range strings.Lines(block) {
		named[strings.TrimSuffix(strings.Fields(line)[0], "/")] = true
	}
	for dir := range floors {
		if !named[dir] {
			t.Errorf("README.md's map lacks %s", dir)
		}
		delete(named, dir)
	}
	for dir := range named {
		t.Errorf("README.md's map names %s, which is no package", dir)
	}
}
