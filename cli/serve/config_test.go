package serve

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// settle parses flags into a config and completes it.
func settle(t testing.TB, c roleConfig, args ...string) {
	t.Helper()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.bind(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := cli.JoinProblems(c.complete(flags)); err != nil {
		t.Fatal(err)
	}
}

// problemsOf returns all problems with a completed config as one error.
func problemsOf(c roleConfig) error { return cli.JoinProblems(c.problems()) }

func workerConfig(t *testing.T, args ...string) WorkerConfig {
	t.Helper()
	var c WorkerConfig
	settle(t, &c, args...)
	return c
}

func TestWorkerConfig(t *testing.T) {
	c := workerConfig(t, "--data", "/d", "--name", "gru-1", "--region", "gru", "--cpus", "3.5", "--memory", "8GiB", "--disk", "100g",
		"--gpus", "l40s=2", "--resource", "slots=10", "--resource", "seats=3", "--label", "arch=arm64", "--overcommit", "shared=8",
		"--ports", "21000-21999", "--join", "10.0.0.1:7946,10.0.0.2:7946", "--ephemeral", "--no-limits")
	if err := problemsOf(&c); err != nil {
		t.Fatalf("complete configuration: %v", err)
	}
	want := Capacity{
		CPUs: 3500, Memory: 8192, Disk: 102400, GPUs: bourse.Amounts{{Resource: "l40s", Amount: 2}},
		Resources: bourse.Amounts{{Resource: "seats", Amount: 3}, {Resource: "slots", Amount: 10}},
		Labels:    map[string]string{"arch": "arm64"}, Overcommit: map[string]float64{"shared": 8},
	}
	if diff := cmp.Diff(want, c.Capacity); diff != "" {
		t.Errorf("capacity (-want +got):\n%s", diff)
	}
	if c.Ports != (cli.PortRange{First: 21000, Last: 21999}) || len(c.Join) != 2 || !c.Ephemeral || !c.NoLimits || !c.AllowHost {
		t.Errorf("config %+v, want the flags' values and host allowed on loopback", c)
	}
}

func TestWorkerConfigReportsAllProblems(t *testing.T) {
	c := workerConfig(t, "--listen", "nowhere", "--gossip", "10.0.0.1:7946", "--region", "EU!", "--name", "a/b", "--cpus", "NaN", "--memory", "-1",
		"--gpus", "x", "--resource", "slots=-1", "--label", "zone", "--overcommit", "shared=0", "--ports", "9-1", "--join", "nohost",
		"--credentials", "/nowhere", "--log-level", "loud", "--log-format", "xml")
	err := problemsOf(&c)
	if bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Fatalf("got %v, want invalid", err)
	}
	for _, flag := range []string{
		"--listen", "the membership", "--region", "--name", "--cpus", "--memory", "--gpus", "--resource", "--label", "--overcommit", "--ports",
		"--join", "--credentials", "--log-level", "--log-format", "--data",
	} {
		if !strings.Contains(err.Error(), flag) {
			t.Errorf("the error does not mention %s:\n%v", flag, err)
		}
	}
}

// TestViewPath checks that the view is in the data directory. A broker
// without a data directory has no path for its view.
func TestViewPath(t *testing.T) {
	for want, args := range map[string][]string{"/d/view.db": {"--data", "/d"}, "": {}} {
		var c BrokerConfig
		settle(t, &c, args...)
		if err := problemsOf(&c); err != nil || c.View != want || c.Cluster != DefaultCluster {
			t.Errorf("broker %v: %v, view %q of cluster %q, want %q of %s", args, err, c.View, c.Cluster, want, DefaultCluster)
		}
		w := workerConfig(t, append(args, "--region", "gru", "--name", "gru-1")...)
		if w.View != want {
			t.Errorf("worker %v: view %q, want %q", args, w.View, want)
		}
	}
	c := workerConfig(t, "--data", "/d", "--name", "a", "--region", "gru", "--cluster", "a b")
	if err := problemsOf(&c); bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(err.Error(), "--cluster") {
		t.Errorf("cluster name with a blank: %v, want invalid", err)
	}
}

// TestOpenAddressesRequireCredentials checks that addresses other than loopback require
// credentials or --insecure.
func TestOpenAddressesRequireCredentials(t *testing.T) {
	open := []string{"--data", "/d", "--name", "a", "--region", "gru", "--listen", "0.0.0.0:4290"}
	c := workerConfig(t, open...)
	if err := problemsOf(&c); bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(err.Error(), "--insecure") {
		t.Errorf("address beyond loopback without TLS: %v, want an invalid error that mentions --insecure", err)
	}
	if c.AllowHost {
		t.Error("a worker that is accessible to others allows image host without --allow-host")
	}
	c = workerConfig(t, append(open, "--insecure", "--allow-host")...)
	if err := problemsOf(&c); err != nil || !c.AllowHost {
		t.Errorf("with --insecure --allow-host: %v, allow host %v; want no error and true", err, c.AllowHost)
	}
	c = workerConfig(t, append(open, "--credentials", credentialsDir(t, "ca.pem", "a.pem", "gossip.key"))...)
	if err := problemsOf(&c); err != nil {
		t.Errorf("with TLS: %v, want no error", err)
	}
}

// credentialsDir returns a directory that contains empty files with these names.
func credentialsDir(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A server uses the files in its credentials directory. It does not start if some of
// them are missing.
func TestCredentials(t *testing.T) {
	open := []string{"--data", "/d", "--name", "a", "--region", "gru", "--listen", "0.0.0.0:4290", "--gossip", "0.0.0.0:7946"}
	for name, c := range map[string]struct {
		files []string
		want  string // part of the error; "" if there is none
	}{
		"all files of a worker": {[]string{"ca.pem", "a.pem", "gossip.key"}, ""},
		"no certificate":        {[]string{"ca.pem", "b.pem", "gossip.key"}, "has no certificate for this server's --name"},
		"no CA":                 {[]string{"a.pem", "gossip.key"}, "without TLS"},
		"no gossip key":         {[]string{"ca.pem", "a.pem"}, "without a gossip key"},
		"nothing":               {nil, "without TLS"},
	} {
		config := workerConfig(t, append(open, "--credentials", credentialsDir(t, c.files...))...)
		if err := problemsOf(&config); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for name, dir := range map[string]string{"no directory": "/nowhere/at/all", "a file": filepath.Join(credentialsDir(t, "f"), "f")} {
		config := workerConfig(t, append(open, "--credentials", dir)...)
		if err := problemsOf(&config); bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(err.Error(), "--credentials "+dir) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
