package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
)

func workerConfig(t *testing.T, args ...string) WorkerConfig {
	t.Helper()
	var f workerFlags
	flags := pflag.NewFlagSet("worker", pflag.ContinueOnError)
	f.bind(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f.read(flags.Changed("allow-host"))
}

func TestWorkerConfig(t *testing.T) {
	c := workerConfig(t, "--data", "/d", "--name", "gru-1", "--region", "gru", "--cpus", "3.5", "--memory", "8GiB", "--disk", "100g",
		"--gpus", "l40s=2", "--resource", "slots=10", "--resource", "seats=3", "--label", "arch=arm64", "--overcommit", "shared=8",
		"--ports", "21000-21999", "--join", "10.0.0.1:7946,10.0.0.2:7946", "--ephemeral", "--no-limits")
	if err := c.Validate(); err != nil {
		t.Fatalf("a full configuration: %v", err)
	}
	want := Capacity{
		CPUs: 3500, Memory: 8192, Disk: 102400, GPUs: bourse.Amounts{{Resource: "l40s", Amount: 2}},
		Resources: bourse.Amounts{{Resource: "seats", Amount: 3}, {Resource: "slots", Amount: 10}},
		Labels:    map[string]string{"arch": "arm64"}, Overcommit: map[string]float64{"shared": 8},
	}
	if diff := cmp.Diff(want, c.Capacity); diff != "" {
		t.Errorf("capacity (-want +got):\n%s", diff)
	}
	if c.FirstPort != 21000 || c.LastPort != 21999 || len(c.Join) != 2 || !c.Ephemeral || !c.NoLimits || !c.AllowHost {
		t.Errorf("config %+v, want the flags' values and host allowed on loopback", c)
	}
}

func TestWorkerConfigTellsAllProblemsAtOnce(t *testing.T) {
	c := workerConfig(t, "--listen", "nowhere", "--gossip", "10.0.0.1:7946", "--region", "EU!", "--name", "a/b", "--cpus", "NaN", "--memory", "-1",
		"--gpus", "x", "--resource", "slots=-1", "--label", "zone", "--overcommit", "shared=0", "--ports", "9-1", "--join", "nohost",
		"--tls-cert", "c.pem", "--log-level", "loud", "--log-format", "xml")
	err := c.Validate()
	if bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Fatalf("got %v, want invalid", err)
	}
	for _, flag := range []string{
		"--listen", "the membership", "--region", "--name", "--cpus", "--memory", "--gpus", "--resource", "--label", "--overcommit", "--ports",
		"--join", "--tls-ca", "--log-level", "--log-format", "--data",
	} {
		if !strings.Contains(err.Error(), flag) {
			t.Errorf("the error does not mention %s:\n%v", flag, err)
		}
	}
}

// TestViewHasAPlace: in the data directory, unless another was named; a broker
// may have none.
func TestViewHasAPlace(t *testing.T) {
	for want, args := range map[string][]string{"/d/view.db": {"--data", "/d"}, "/v/fleet.db": {"--data", "/d", "--view", "/v/fleet.db"}, "": {}} {
		var f brokerFlags
		flags := pflag.NewFlagSet("broker", pflag.ContinueOnError)
		f.bind(flags)
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		c := f.read(false)
		if err := c.Validate(); err != nil || c.View != want || c.Cluster != DefaultCluster {
			t.Errorf("broker %v: %v, view %q of cluster %q, want %q of %s", args, err, c.View, c.Cluster, want, DefaultCluster)
		}
		w := workerConfig(t, append(args, "--region", "gru", "--name", "gru-1")...)
		if w.View != want {
			t.Errorf("worker %v: view %q, want %q", args, w.View, want)
		}
	}
	c := workerConfig(t, "--data", "/d", "--name", "a", "--region", "gru", "--cluster", "a b")
	if err := c.Validate(); bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(err.Error(), "--cluster") {
		t.Errorf("a cluster's name with a blank: %v, want invalid", err)
	}
}

// TestOpenAddressesNeedCredentials: nothing but loopback without them, unless
// it is said aloud.
func TestOpenAddressesNeedCredentials(t *testing.T) {
	open := []string{"--data", "/d", "--name", "a", "--region", "gru", "--listen", "0.0.0.0:4290"}
	c := workerConfig(t, open...)
	if err := c.Validate(); bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(err.Error(), "--insecure") {
		t.Errorf("open without TLS: %v, want invalid with the way out", err)
	}
	if c.AllowHost {
		t.Error("a worker that others reach allows image host without being told to")
	}
	c = workerConfig(t, append(open, "--insecure", "--allow-host")...)
	if err := c.Validate(); err != nil || !c.AllowHost {
		t.Errorf("with --insecure --allow-host: %v, allow host %v; want no error and true", err, c.AllowHost)
	}
	c = workerConfig(t, append(open, "--tls-ca", "a", "--tls-cert", "b", "--tls-key", "c")...)
	if err := c.Validate(); err != nil {
		t.Errorf("with TLS: %v, want no error", err)
	}
}

func TestDevConfig(t *testing.T) {
	good := func() devConfig {
		return devConfig{regions: []string{"gru", "mad"}, workers: 2, fabric: fabricDirect, api: "127.0.0.1:0", cpus: "4", memory: "4GiB"}
	}
	d := good()
	if err := d.validate(); err != nil {
		t.Fatalf("a good one: %v", err)
	}
	for name, spoil := range map[string]func(*devConfig){
		"no worker": func(d *devConfig) { d.workers = 0 }, "too many": func(d *devConfig) { d.workers = 1000 },
		"overflow": func(d *devConfig) { d.regions, d.workers = []string{"gru", "mad", "ord"}, 6148914691236517207 }, "no region": func(d *devConfig) { d.regions = nil },
		"region twice": func(d *devConfig) { d.regions = []string{"gru", "gru"} }, "alias": func(d *devConfig) { d.regions = []string{"eu"} },
		"open": func(d *devConfig) { d.api = "0.0.0.0:4280" }, "no address": func(d *devConfig) { d.api = "x" },
		"cpus": func(d *devConfig) { d.cpus = "-1" }, "fabric": func(d *devConfig) { d.fabric = "tcp" }, "memory": func(d *devConfig) { d.memory = "lots" },
	} {
		d := good()
		spoil(&d)
		if err := d.validate(); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
}

func TestDevPorts(t *testing.T) {
	for _, n := range []int{1, 6, maxDevWorkers} {
		for _, anywhere := range []bool{false, true} {
			last := uint16(0)
			ports := devPorts(n, anywhere)
			for i := range n {
				r, err := parsePorts(ports(i))
				if err != nil || r.First <= last || r.Last >= 32768 || r.Last-r.First < 99 {
					t.Fatalf("worker %d of %d: ports %s (%v), want 100 or more behind %d and below 32768", i, n, ports(i), err, last)
				}
				last = r.Last
			}
		}
	}
}

func TestRequest(t *testing.T) {
	f := orderFlags{
		name: "web", region: "gru,any", env: []string{"A=1"}, metadata: []string{"tier=web"}, require: []string{"slots=2", "zone=b"},
		size: sizeFlags{preset: "performance-2x", memory: "1GiB"}, restart: "on-fail", stopSignal: "term", stopTimeout: "10", rm: true,
		workdir: "/srv", user: "nobody",
	}
	req, err := f.request([]string{"host", "sleep", "60"})
	if err != nil {
		t.Fatal(err)
	}
	want := &bourse.Config{
		Image: "host", Guest: &bourse.Guest{CPUKind: bourse.CPUPerformance, CPUs: 2, MemoryMB: 1024}, Env: map[string]string{"A": "1"},
		Init: bourse.Init{Cmd: []string{"sleep", "60"}, WorkingDir: "/srv", User: "nobody"}, Metadata: map[string]string{"tier": "web"},
		Restart: &bourse.Restart{Policy: bourse.RestartOnFailure}, AutoDestroy: true,
		StopConfig:   &bourse.StopConfig{Signal: "SIGTERM", Timeout: bourse.Duration(10e9)},
		Requirements: bourse.Requirements{"slots": {Count: 2}, "zone": {Label: "b"}},
	}
	if diff := cmp.Diff(want, req.Config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if req.Name != "web" || req.Region != "gru,any" {
		t.Errorf("name %q, region %q", req.Name, req.Region)
	}
}

// TestLocalProgram: ./server is the caller's, wherever the machine runs.
func TestLocalProgram(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := writeWhole("server", []byte("#!/bin/sh\n")); err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{"./server": dir + "/server", "./nothing": "./nothing", "server": "server", "/bin/sh": "/bin/sh"} {
		i := bourse.Init{Cmd: []string{in, "./server"}}
		localProgram(&i)
		if i.Cmd[0] != want || i.Cmd[1] != "./server" {
			t.Errorf("%s became %q, want %s and the arguments as they were", in, i.Cmd, want)
		}
	}
}
