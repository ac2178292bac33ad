package serve

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

func file(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bourse.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A file sets flags. Flags on the command line take precedence over the server's table,
// which takes precedence over the settings for all servers.
func TestFile(t *testing.T) {
	path := file(t, `
cluster = "c1"
address = "10.0.0.2"
name = "gru-1"
region = "gru"
data = "/var/lib/bourse"
log-level = "warn"
join = ["10.0.0.1:7946"]
insecure = true

[worker]
memory = "8GiB"
cpus = 3.5
label = ["zone=b", "rack=4"]
allow-host = true
idle-after = "5m"
log-level = "debug"

[broker]
`)
	c := workerConfig(t, "--config", path, "--memory", "4GiB")
	if err := problemsOf(&c); err != nil {
		t.Fatal(err)
	}
	switch {
	case c.Cluster != "c1" || c.Name != "gru-1" || c.Region != "gru" || c.Data != "/var/lib/bourse/worker":
		t.Errorf("common settings: %+v", c)
	case c.Capacity.Memory != 4096 || c.Capacity.CPUs != 3500 || len(c.Capacity.Labels) != 2 || !c.AllowHost || c.IdleAfter != 5*time.Minute:
		t.Errorf("the worker's settings: %+v", c)
	case c.Log.Level.String() != "DEBUG":
		t.Errorf("log level %s, want the one in the table", c.Log.Level)
	case c.Listen.String() != "10.0.0.2:4281" || c.Gossip.String() != "10.0.0.2:7946":
		t.Errorf("listens at %s and %s", c.Listen, c.Gossip)
	case strings.Join(c.Join, " ") != "10.0.0.1:7946 10.0.0.2:7947":
		t.Errorf("joins %v, want the host's broker as well", c.Join)
	}

	var b BrokerConfig
	settle(t, &b, "--config", path)
	if b.Name != "gru-1-broker" || b.Data != "/var/lib/bourse/broker" || b.Listen.Port() != 4280 || b.Log.Level.String() != "WARN" {
		t.Errorf("the broker's settings: %+v", b)
	}
}

// Each mistake is reported with its position in the file.
func TestFileWithMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"name = \"a\"\nmemry = 1\n[worker]":              "bourse.toml:2:1: memry is not a setting of any server",
		"[worker]\n\n  domain = \"x\"":                   "bourse.toml:3:3: domain is not a setting of a worker",
		"[worker]\nmemory = \"lots\"":                    "bourse.toml:2:1: --memory",
		"[worker]\nallow-host = \"perhaps\"":             "bourse.toml:2:1: ",
		"[worker]\nmemory = { a = 1 }":                   "bourse.toml:2:1: memory: use a string",
		"[worker]\nlabel = [[1]]":                        "bourse.toml:2:1: label: use a string",
		"[workers]":                                      "bourse.toml:1:2: \"workers\" is not a table",
		"[worker]\n[worker]":                             "bourse.toml:2:",
		"[worker.x]":                                     "is not a table",
		"a.b = 1":                                        "is not a table",
		"[worker]\nmemory = \"1GiB\"\nmemory = \"2GiB\"": "bourse.toml:3:",
		"[worker]\nmemory = \"1GiB":                      "bourse.toml:2:",
		"[worker]\nconfig = \"x\"":                       "config is not a setting",
		"[worker]\nlife-line = true":                     "life-line is not a setting",
	} {
		var c WorkerConfig
		flags := pflag.NewFlagSet("worker", pflag.ContinueOnError)
		c.bind(flags)
		if err := flags.Parse([]string{"--config", file(t, text)}); err != nil {
			t.Fatal(err)
		}
		if err := cli.JoinProblems(c.complete(flags)); bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\nwant %q", text, err, want)
		}
	}
}

// Every problem with a file is reported once, with its position. The position is that
// of the setting, or that of the table if a setting is missing.
func TestServersReportAllProblems(t *testing.T) {
	path := file(t, `cluster = "a b"
regon = "gru"
idle-after = "1ns"
address = "10.0.0.1"

[workers]
memory = "1GiB"

[worker]
standby-after = "1ns"
memory = "lots"

[broker]
orders = -1
cluster = "c1"
`)
	servers, err := CheckFile(path)
	if bourse.CodeOf(err) != bourse.CodeInvalid || len(servers) != 2 {
		t.Fatalf("%d servers, %v; want 2 and invalid", len(servers), err)
	}
	var got []string
	for line := range strings.Lines(cli.MessageOf(err)) {
		at, text, _ := strings.Cut(strings.TrimPrefix(line, path), " ")
		got = append(got, at+" "+strings.Fields(text)[0])
	}
	slices.Sort(got)
	want := []string{
		":11:1: --memory:", ":14:1: --orders", ":1:1: --cluster", ":2:1: regon", ":3:1: --idle-after", ":4:1: the", ":4:1: the", ":4:1: the", ":4:1: the", // the API and the membership of both
		":6:2: \"workers\"", ":9:2: --data", ":9:2: --name", ":9:2: --region", ":10:1: --standby-after",
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A problem with a flag on the command line has no position in the file.
func TestProblemOfFlagHasNoPosition(t *testing.T) {
	var c BrokerConfig
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.bind(flags)
	if err := flags.Parse([]string{"--config", file(t, "[broker]\norders = 1\n"), "--orders", "-1"}); err != nil {
		t.Fatal(err)
	}
	if err := cli.JoinProblems(complete(&c, flags)); err == nil || !strings.HasPrefix(err.Error(), "--orders -1") {
		t.Errorf("got %v, want a problem with --orders", err)
	}
}

// Servers returns all servers of a host, including those that could not start.
func TestServers(t *testing.T) {
	path := file(t, `
address = "10.0.0.2"
name = "gru-1"
region = "gru"
data = "/var/lib/bourse"
insecure = true

[worker]
containerd = "none"

[broker]
orders = -1
`)
	f, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	servers, err := f.Servers()
	if bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(err.Error(), "--orders") || strings.Contains(err.Error(), "--data") {
		t.Errorf("got %v, want an error about the broker's --orders", err)
	}
	if len(servers) != 2 {
		t.Fatalf("servers: %+v", servers)
	}
	broker, worker := servers[0], servers[1]
	if broker.Role != bourse.RoleBroker || broker.Name != "gru-1-broker" || broker.Listen.String() != "10.0.0.2:4280" || broker.Host != nil {
		t.Errorf("broker: %+v", broker)
	}
	if worker.Role != bourse.RoleWorker || worker.Name != "gru-1" || worker.Data != "/var/lib/bourse/worker" || worker.Host.Containerd != ContainerdNone {
		t.Errorf("worker: %+v", worker)
	}
}

func TestFileOfOthers(t *testing.T) {
	path := file(t, "[worker]\n")
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path); bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(err.Error(), "can be written by other users") {
		t.Errorf("file that everyone can write: %v", err)
	}
	for name, path := range map[string]string{"directory": t.TempDir(), "FIFO": fifo(t), "too large": file(t, strings.Repeat("#", maxFile+1))} {
		if _, err := ReadFile(path); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
	if os.Geteuid() == 0 {
		other := file(t, "[worker]\n")
		if err := os.Chown(other, 12345, -1); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFile(other); bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(err.Error(), "another user") {
			t.Errorf("file of another user: %v", err)
		}
	}
	if _, err := ReadFile(path + ".none"); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("no file: %v", err)
	}
}

func fifo(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func FuzzFile(f *testing.F) {
	f.Add("name = \"a\"\n[worker]\nlabel = [\"a=b\", 1, true, 1.5]\n[broker]\norders = 3\n")
	f.Add("[proxy]\nhttp = [\":80\"]\n# x\n")
	path := filepath.Join(f.TempDir(), "bourse.toml")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := ReadFile(path)
		if err != nil {
			if bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Fatal(err)
			}
			return
		}
		for _, role := range c.Roles() {
			var config WorkerConfig
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			config.bind(flags)
			_ = c.apply(flags, &config.ServerConfig, role)
		}
	})
}
