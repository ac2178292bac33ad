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
)

var all = flag.Bool("all", false, "run all tests of the packages, not only those of limits and groups; takes minutes")

// suite lists the tests of a package that must pass.
type suite struct {
	dir   string   // package directory, below driver/
	tests []string // names of tests that must pass and must not be skipped; with -all, other tests must not fail either
}

// suites lists packages whose tests need this kernel.
var suites = []suite{
	{"internal/cgroup", []string{"TestGroupsLimitFromTheStart", "TestGroupsEnforce", "TestGroupsAtOnce", "TestOpenSweeps", "TestV2Limits", "TestV2Membership"}},
	{"process", append(cases(
		"memory", "memory too small for anything", "exec counts against its task's memory", "pids", "cpu limits are taken, whatever they are",
		"usage of a busy task", "usage counts what is executed beside a task", "a ceiling of processor time holds",
		"stop ends the whole tree", "an end takes what was left behind with it", "lost machinery is replaced",
		"a frozen task does nothing until it is thawed", "a frozen task stays so without its daemon", "a frozen tree can be killed",
	), "TestGroupsAreTheHosts", "TestSweepAtStart")},
	// A tenth of an emulated processor is too slow for runc, so the CPU limit is not tested.
	{"container", cases("memory", "exec counts against its task's memory", "pids", "a frozen task can be stopped")},
}

// cases returns the names of subtests of TestDriver.
func cases(names ...string) (out []string) {
	for _, name := range names {
		out = append(out, "TestDriver/"+strings.ReplaceAll(name, " ", "_"))
	}
	return out
}

func (s suite) name() string { return filepath.Base(s.dir) }

// script returns the part of the virtual machine's script that runs the suite. The time
// limit for tests is half of the machine's, so that a test that hangs can print its stacks.
func (s suite) script(limit time.Duration) string {
	run := ""
	if !*all || s.name() == "container" { // with -all, too, because starting containers takes seconds here
		var patterns []string
		for _, test := range s.tests {
			patterns = append(patterns, "^"+strings.ReplaceAll(regexp.QuoteMeta(test), "/", "$/^")+"$")
		}
		run = "-test.run " + quoted(strings.Join(patterns, "|"))
	}
	return fmt.Sprintf("mkdir -p /test/%[1]s; cd /test/%[1]s\n/%[1]s.test -test.v -test.timeout %[3]s %[2]s\necho \"bourse-vm: %[1]s $?\"\n", s.name(), run, limit/2)
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// check reports an error for each test of the suite that has not passed according to the
// machine's output.
func (s suite) check(t *testing.T, console string) {
	t.Helper()
	if !strings.Contains(console, fmt.Sprintf("\nbourse-vm: %s 0\n", s.name())) {
		t.Errorf("the tests of %s have failed", s.dir)
	}
	_, own, _ := strings.Cut(console, "bourse-vm: begin "+s.name()+"\n")
	own, _, _ = strings.Cut(own, "bourse-vm: "+s.name()+" ")
	for _, test := range s.tests {
		if !strings.Contains(own, "--- PASS: "+test+" (") {
			t.Errorf("%s of %s has not passed", test, s.dir)
		}
	}
}

// TestUnderCgroup2 runs the tests of limits and cgroups under a kernel that has only cgroup
// v2. Groups must be created, limits enforced, all processes of a group killed, and
// leftovers removed. None of these tests may be skipped.
func TestUnderCgroup2(t *testing.T) {
	p := find(t)
	limit := 10 * time.Minute // the tests take 90 seconds on two idle cores
	if *all {
		limit = 30 * time.Minute
	}
	content := files{"/init": "testdata/init", "/bin/busybox": p.busybox, "/overlay.ko": p.overlay}
	content.programs(t, "containerd", "containerd-shim-runc-v2", "runc")
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
	console, err := p.boot(t.Context(), p.pack(t, content, "new"), limit)
	for _, s := range suites {
		s.check(t, console)
	}
	if err != nil || t.Failed() {
		t.Fatalf("%v; the machine's console:\n%s", err, console)
	}
	t.Logf("took %s; the machine's console:\n%s", time.Since(began).Round(time.Second), console)
}

// TestAMachineThatFails checks that a virtual machine whose kernel panics or that hangs is
// reported as an error, with its console output.
func TestAMachineThatFails(t *testing.T) {
	p := find(t)
	for name, c := range map[string]struct {
		init  string
		limit time.Duration
		want  string
	}{
		// stty waits until the console has printed everything; otherwise the panic message
		// would be mixed with earlier output
		"panics": {"echo last words\n/bin/busybox stty sane\nexit 1\n", time.Minute, "ended before"},
		"hangs":  {"echo last words\nexec /bin/busybox sleep 1000\n", 20 * time.Second, "not ended after 20s"},
	} {
		init := filepath.Join(t.TempDir(), "init")
		if err := os.WriteFile(init, []byte("#!/bin/busybox sh\n"+c.init), 0o600); err != nil {
			t.Fatal(err)
		}
		initrd := p.pack(t, files{"/init": init, "/bin/busybox": p.busybox}, "dev")
		console, err := p.boot(t.Context(), initrd, c.limit)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(console, "last words") {
			t.Errorf("a machine that %s gave %v; its console:\n%s", name, err, console)
		}
	}
}
