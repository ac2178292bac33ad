package cgroup2

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/internal/vmtest"
)

var all = flag.Bool("all", false, "run all tests of the packages, not only those of limits and groups; takes minutes")

// suite is a package's tests that must pass.
type suite struct {
	dir   string   // package directory, below driver/
	tests []string // tests that must pass and must not be skipped; with -all, the package's other tests must not fail
}

// suites lists packages whose tests need this kernel.
var suites = []suite{
	{"internal/cgroup", []string{"TestGroupsLimitFromTheStart", "TestGroupsEnforce", "TestGroupsAtOnce", "TestOpenSweeps", "TestV2Limits", "TestV2Membership"}},
	{"process", append(cases(
		"memory", "a tiny memory limit", "exec counts against its task's memory", "pids", "all valid limits are accepted",
		"usage of a busy task", "usage includes commands executed in a task", "a CPU quota is enforced",
		"stop kills the whole process tree", "remaining child processes are killed", "killed driver processes are replaced",
		"a frozen task does nothing until it is thawed", "a frozen task stays frozen without its daemon", "a frozen tree can be killed",
	), "TestGroupsAreTheHosts", "TestSweepAtStart")},
	// A tenth of an emulated processor is too slow for runc, so the CPU limit is not tested.
	{"container", cases("memory", "exec counts against its task's memory", "pids", "a frozen task can be stopped")},
}

// cases lists the cases of the drivers' contract.
func cases(names ...string) (out []string) {
	for _, name := range names {
		out = append(out, "TestDriver/"+strings.ReplaceAll(name, " ", "_"))
	}
	return out
}

func (s suite) name() string { return filepath.Base(s.dir) }

// script returns the part of the machine's script that runs the suite. A test that hangs
// prints its stacks well before the machine's own time limit.
func (s suite) script(limit time.Duration) string {
	run := ""
	if !*all || s.name() == "container" { // starting containers takes seconds here
		var patterns []string
		for _, test := range s.tests {
			patterns = append(patterns, "^"+strings.ReplaceAll(regexp.QuoteMeta(test), "/", "$/^")+"$")
		}
		run = "-test.run " + quoted(strings.Join(patterns, "|"))
	}
	return fmt.Sprintf("mkdir -p /test/%[1]s; cd /test/%[1]s\n/%[1]s.test -test.v -test.timeout %[3]s %[2]s\necho \"bourse-vm: %[1]s $?\"\n", s.name(), run, limit/2)
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// check reports the tests of the suite that have not passed, according to the machine's output.
func (s suite) check(t *testing.T, console string) {
	t.Helper()
	if !strings.Contains(console, fmt.Sprintf("\nbourse-vm: %s 0\n", s.name())) {
		t.Errorf("tests of driver/%s failed", s.dir)
	}
	_, own, _ := strings.Cut(console, "bourse-vm: begin "+s.name()+"\n")
	own, _, _ = strings.Cut(own, "bourse-vm: "+s.name()+" ")
	for _, test := range s.tests {
		if !strings.Contains(own, "--- PASS: "+test+" (") {
			t.Errorf("test %s of %s did not pass", test, s.dir)
		}
	}
}

// TestUnderCgroup2 runs the tests of limits and groups under a kernel with cgroup v2 only.
// Groups must be created, limits enforced, all processes of a group killed, and leftovers
// removed. None of these tests may be skipped.
func TestUnderCgroup2(t *testing.T) {
	host := vmtest.Find(t)
	limit := 10 * time.Minute // takes 90 seconds on two idle cores
	if *all {
		limit = 30 * time.Minute
	}
	content := vmtest.Files{
		"/init": "testdata/init", "/bin/busybox": host.Busybox(),
		"/overlay.ko": vmtest.Cached(t, "overlay.ko", "scripts/need-kernel"),
	}
	content.Programs(t, "containerd", "containerd-shim-runc-v2", "runc")
	text := map[string]string{
		"/etc/resolv.conf": "nameserver 127.0.0.1\n",
		"/etc/passwd":      "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
		"/etc/group":       "root:x:0:\nnogroup:x:65534:\n",
	}
	dir := t.TempDir()
	for _, s := range suites {
		binary := filepath.Join(dir, s.name()+".test")
		build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", binary, "../../driver/"+s.dir)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build the tests of %s: %v\n%s", s.dir, err, out)
		}
		content["/"+s.name()+".test"] = binary
		text["/tests"] += "echo; echo 'bourse-vm: begin " + s.name() + "'\n" + s.script(limit)
	}
	for to, data := range text {
		content[to] = filepath.Join(dir, strings.ReplaceAll(to, "/", "-"))
		if err := os.WriteFile(content[to], []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	console, err := host.Boot(t.Context(), vmtest.Machine{Initrd: host.Pack(t, content, "new"), MiB: 1536, Limit: limit})
	for _, s := range suites {
		s.check(t, console)
	}
	if err != nil || t.Failed() {
		t.Fatalf("%v; the machine's console:\n%s", err, console)
	}
	t.Logf("took %s; the machine's console:\n%s", time.Since(began).Round(time.Second), console)
}
