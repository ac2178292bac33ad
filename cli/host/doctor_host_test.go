package host

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/internal/containerdtest"
)

func statuses(found []finding) (out []status) {
	for _, f := range found {
		out = append(out, f.Status)
	}
	return out
}

func TestCompareLabels(t *testing.T) {
	for name, c := range map[string]struct {
		labels map[string]string
		want   status
	}{
		"all":       {map[string]string{"cgroup": "v2", "limit.memory": "cgroup", "limit.cpu": "cgroup", "limit.pids": "cgroup"}, statusOK},
		"no memory": {map[string]string{"cgroup": "v1", "limit.cpu": "cgroup", "limit.pids": "cgroup"}, statusWarning},
		"none":      {map[string]string{"cgroup": "none"}, statusWarning},
	} {
		if got := compareLabels(c.labels); got.Status != c.want {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
}

func TestCheckService(t *testing.T) {
	const good = "LoadState=loaded\nActiveState=active\nLimitNOFILE=1048576\nTasksMax=infinity\nKillMode=process\nOOMPolicy=continue\n"
	for name, c := range map[string]struct {
		shown string
		want  []status
	}{
		"as written by join": {good, []status{statusOK}},
		"failed":             {strings.Replace(good, "=active", "=failed", 1), []status{statusProblem}},
		"kills machines":     {strings.Replace(good, "=process", "=control-group", 1), []status{statusProblem}},
		"few files":          {strings.Replace(good, "1048576", "1024", 1), []status{statusWarning}},
		"no limit on files":  {strings.Replace(good, "1048576", "infinity", 1), []status{statusOK}},
		"few tasks and OOM":  {strings.Replace(strings.Replace(good, "=infinity", "=4915", 1), "=continue", "=stop", 1), []status{statusWarning, statusWarning}},
		"no service":         {"LoadState=not-found\nActiveState=inactive\n", []status{statusWarning}},
	} {
		if got := checkService(c.shown); !slices.Equal(statuses(got), c.want) {
			t.Errorf("%s: %+v, want %v", name, got, c.want)
		}
	}
}

func TestCheckContainerd(t *testing.T) {
	server := containerdtest.New(t)
	if got := checkContainerd(t.Context(), &serve.HostConfig{Containerd: server.Address}); !slices.Equal(statuses(got), []status{statusOK}) {
		t.Errorf("%+v, want ok", got)
	}
}

func TestCheckContainerdThatIsNotRunning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	if got := checkContainerd(t.Context(), &serve.HostConfig{Containerd: path}); !slices.Equal(statuses(got), []status{statusProblem}) {
		t.Errorf("a socket without a server: %+v, want a problem", got)
	}
	if got := checkContainerd(t.Context(), &serve.HostConfig{Containerd: t.TempDir() + "/containerd.sock"}); !slices.Equal(statuses(got), []status{statusProblem}) {
		t.Errorf("no socket: %+v, want a problem", got)
	}
	if got := checkContainerd(t.Context(), &serve.HostConfig{Containerd: serve.ContainerdNone}); !slices.Equal(statuses(got), []status{statusOK}) {
		t.Errorf("not used: %+v, want ok", got)
	}
}

func TestNamesIn(t *testing.T) {
	worker := func(c serve.ServerConfig, h serve.HostConfig) []serve.Server {
		return []serve.Server{{ServerConfig: &c, Role: bourse.RoleWorker, Host: &h}}
	}
	for name, c := range map[string]struct {
		servers []serve.Server
		want    []string
	}{
		"unconfigured":  {nil, []string{"registry-1.docker.io"}},
		"no containers": {worker(serve.ServerConfig{Join: []string{"10.0.0.1:7946"}}, serve.HostConfig{Containerd: serve.ContainerdNone}), nil},
		"names": {
			worker(serve.ServerConfig{Join: []string{"b.example.com:7947"}, NATS: serve.NATSConfig{URLs: []string{"tls://n.example.com:4222"}}},
				serve.HostConfig{AllowedRegistries: []string{"r.example.com:5000"}, Registries: map[string]serve.Registry{"r.example.com:5000": {}, "10.0.0.5:5000": {}}}),
			[]string{"b.example.com", "n.example.com", "r.example.com"},
		},
	} {
		var got []string
		for _, n := range namesIn(c.servers) {
			got = append(got, n.host)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestResolve(t *testing.T) {
	lookup := func(_ context.Context, host string) ([]string, error) {
		if host == "known" {
			return []string{"10.0.0.1"}, nil
		}
		return nil, errors.New("no such host")
	}
	known, member, registry := hostName{"known", statusProblem}, hostName{"member", statusProblem}, hostName{"registry", statusWarning}
	for name, c := range map[string]struct {
		config string
		names  []hostName
		want   []status
	}{
		"all known":      {"nameserver 10.0.0.2\n", []hostName{known}, []status{statusOK}},
		"some unknown":   {"nameserver 10.0.0.2\n", []hostName{known, member, registry}, []status{statusOK, statusProblem, statusWarning}},
		"no names":       {"search example.com\nnameserver 10.0.0.2\n", nil, []status{statusOK}},
		"no name server": {"# nameserver\nnameserver\n", []hostName{known}, []status{statusWarning}},
		"empty":          {"", nil, []status{statusWarning}},
	} {
		if got := resolve(t.Context(), c.config, c.names, lookup); !slices.Equal(statuses(got), c.want) {
			t.Errorf("%s: %+v, want %v", name, got, c.want)
		}
	}
}
