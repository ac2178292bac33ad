package deploy

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	deployconfig "github.com/bourse-dev/bourse/deploy/config"
	"github.com/bourse-dev/bourse/image/registrytest"
	"github.com/bourse-dev/bourse/internal/containerdtest"
	"github.com/bourse-dev/bourse/internal/seal"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/workload"
)

// TestFiles deploys the configurations in package deploy/config's testdata on workers with
// containerd. The apps must be served, a second deploy must find nothing to do, and
// destroying the apps must succeed. Invalid configurations must be refused before anything
// is created. With -all, all configurations are deployed.
func TestFiles(t *testing.T) {
	t.Parallel()
	known, err := filepath.Glob("../../deploy/config/testdata/apps/*.toml")
	if err != nil || len(known) != len(files) {
		t.Fatalf("there are %d files, but the test lists %d: %v", len(known), len(files), err)
	}
	s := newSite(t)
	slots := make(chan struct{}, deploysAtOnce)
	var group sync.WaitGroup
	for i := range files {
		f := &files[i]
		if !f.quick && !*all {
			continue
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			t.Run(f.name, func(t *testing.T) { s.of(t).deploys(f) })
		})
	}
	group.Wait()
}

// site is a cluster whose workers run images. Its first region has two workers. With -all,
// there is also a worker in each other region that the configurations name.
type site struct {
	*house
	image string
	token string
}

func newSite(t *testing.T) *site {
	t.Helper()
	containerd, registry := containerdtest.New(t), registrytest.Start(t, registrytest.Options{})
	keys := filepath.Join(t.TempDir(), "secrets.key")
	if err := os.WriteFile(keys, seal.Generate(), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &site{house: &house{T: t, broker: servertest.Start(t, "b1", "serve", "broker", "--listen", "127.0.0.1:0", "--credentials", filepath.Dir(keys))}}
	s.api = servertest.Client(t, s.broker)
	for name, region := range map[string]string{"w1": "gru", "w2": "gru", "w3": "fra", "w4": "nrt"} {
		if region != "gru" && !*all {
			continue
		}
		s.workers = append(s.workers, servertest.New(t, name, "serve", "worker", "--name", name, "--region", region, "--data", filepath.Join(t.TempDir(), name),
			"--label", "site=rack-4", "--label", "nvme=true", "--resource", "licenses=10", "--cpus", "1000", "--memory", "1TiB", "--disk", "1TiB", "--ephemeral",
			"--registry-private", "--containerd", containerd.Address,
			"--containerd-namespace", servertest.Cluster(t)+"-"+name, "--join", s.broker.Addr))
	}
	s.proxy = servertest.New(t, "p1", "serve", "proxy", "--name", "p1", "--region", "gru", "--drain", "1s", "--self-signed",
		"--http", "127.0.0.1:0=any", "--https", "127.0.0.1:0=any", "--join", s.broker.Addr)
	s.image = image(t, registry)
	servertest.StartAll(t, append(slices.Clone(s.workers), s.proxy)...)
	s.eventually("all servers know each other", func() error { return servertest.Agreed(s.Context(), len(s.workers)+2, s.api) })
	token, err := os.ReadFile(s.broker.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	s.token = strings.TrimSpace(string(token))
	s.client = s.users()
	return s
}

// users returns a client that reaches any app through the proxy by the app's host name. It
// accepts any certificate.
func (s *site) users() *http.Client {
	trusting := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}} //nolint:gosec // the certificates are self-signed
	transport := &http.Transport{
		ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, s.proxy.Web[0])
		},
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			config := trusting.Clone()
			config.ServerName, _, _ = strings.Cut(addr, ":")
			return (&tls.Dialer{Config: config}).DialContext(ctx, network, s.proxy.SecureWeb[0])
		},
	}
	s.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: waitTimeout}
}

// image pushes an image that contains the commands, and returns the image's name.
func image(t *testing.T, registry *registrytest.Registry) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "server")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-o", program, "./testdata/server")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the image's program: %v\n%s", err, out)
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	list := strings.Fields(commands)
	layer := registrytest.Layer{"/bin/" + list[0]: {Data: binary, Mode: 0o755}}
	for _, name := range list[1:] {
		layer["/bin/"+name] = registrytest.File{Link: "/bin/" + list[0], Mode: 0o755}
	}
	image := registrytest.Image{Layers: []registrytest.Layer{registrytest.Busybox(t), layer}}
	image.Config.Cmd = list[:1]
	return registry.Push(t, "files:1", image).Name
}

// of returns the site for a subtest.
func (s *site) of(t *testing.T) *site {
	return &site{house: s.in(t), image: s.image, token: s.token}
}

// bourse runs the bourse program, and returns its output and exit status.
func (s *site) bourse(args ...string) (out string, status int) {
	s.Helper()
	c := exec.CommandContext(s.Context(), servertest.Program, args...)
	c.Env = append(os.Environ(), "BOURSE_API=http://"+s.broker.API, "BOURSE_API_TOKEN="+s.token)
	text, err := c.CombinedOutput()
	if c.ProcessState == nil {
		s.Fatal(err)
	}
	return string(text), c.ProcessState.ExitCode()
}

// must runs the bourse program, which must exit with the given status, and returns its
// output.
func (s *site) must(status int, args ...string) (out string) {
	s.Helper()
	out, got := s.bourse(args...)
	if got != status {
		s.Fatalf("bourse %s exited with status %d, want %d:\n%s", strings.Join(args, " "), got, status, out)
	}
	return out
}

// deploys runs the whole test for one configuration.
func (s *site) deploys(f *file) {
	app := bourse.AppName(f.name)
	deployed := append([]string{"deploy", "--app", f.name, "--config", s.copied(f), "--wait-timeout", "1m", "--watch-for", "0s"}, f.flags...)
	if !f.host {
		deployed = append(deployed, "--image", s.image)
	}
	if !f.regions {
		deployed = append(deployed, "--region", "gru")
	}
	want := s.wanted(f)
	if ports := listen(s.T, &want); ports != "" {
		deployed = append(deployed, "--env", "LISTEN="+ports)
	}
	if f.refused != "" {
		s.refuses(f, deployed)
		return
	}
	if f.secret != "" {
		s.must(0, "app", "create", f.name)
		s.must(0, "secrets", "set", f.secret, "--app", f.name)
	}
	s.must(2, append(deployed, "--plan")...)
	began := time.Now()
	out := s.must(0, deployed...)
	s.Logf("deployed in %s", time.Since(began).Round(time.Millisecond))
	s.is(f, &want)
	if f.line == "" && !strings.Contains(out, f.writes) {
		s.Errorf("the release command did not print %q:\n%s", f.writes, out)
	}
	if out := s.must(0, append(deployed, "--plan")...); !strings.Contains(out, "nothing to do") {
		s.Errorf("plan of a second deploy, want \"nothing to do\":\n%s", out)
	}
	if f.again || *all {
		s.must(0, append(deployed, "--env", "CHANGED=yes")...)
		for _, m := range s.is(f, &want) {
			if m.Config.Env["CHANGED"] != "yes" {
				s.Errorf("machine %s has the environment %v, want CHANGED=yes", m.ID, m.Config.Env)
			}
		}
	}
	s.must(0, "app", "destroy", f.name, "--force", "--yes")
	if left, _, err := s.api.Machines(s.Context(), app, machinesapi.ListMachines{}); bourse.CodeOf(err) != bourse.CodeNotFound {
		s.Errorf("after the app was destroyed, the machines are %v, %v; want not_found", left, err)
	}
}

// refuses checks that a deploy is refused before anything is created.
func (s *site) refuses(f *file, deployed []string) {
	out, status := s.bourse(deployed...)
	if status == 0 || !strings.Contains(out, f.refused) {
		s.Errorf("deploy exited with %d, want a refusal with %q:\n%s", status, f.refused, out)
	}
	if _, _, err := s.api.Machines(s.Context(), bourse.AppName(f.name), machinesapi.ListMachines{}); bourse.CodeOf(err) != bourse.CodeNotFound {
		s.Errorf("list the machines of an app that must not exist: %v, want not_found", err)
	}
}

// copied returns the path of a configuration. If it contains fields that are Bourse's own,
// this is a copy named bourse.toml, because the name of a file determines which fields it
// may contain.
func (s *site) copied(f *file) string {
	s.Helper()
	path := filepath.Join("../../deploy/config/testdata/apps", f.name+".toml")
	if !strings.HasPrefix(f.name, "bourse-") {
		return path
	}
	text, err := os.ReadFile(path)
	if err != nil {
		s.Fatal(err)
	}
	path = filepath.Join(s.TempDir(), "bourse.toml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

// wanted returns the app that the configuration describes.
func (s *site) wanted(f *file) deploy.App {
	s.Helper()
	c, err := deployconfig.Load(s.copied(f))
	if err != nil {
		s.Fatal(err)
	}
	options := deployconfig.Options{Files: os.DirFS("../../deploy/config/testdata/apps")}
	if !f.host {
		options.Image = s.image
	}
	app, _, err := c.App(options)
	if err != nil {
		s.Fatal(err)
	}
	return app
}

// listen returns the ports of the app's services and checks, separated by spaces. A port
// that is checked over TLS is followed by an s.
func listen(tb testing.TB, app *deploy.App) string {
	tb.Helper()
	ports := map[string]bool{}
	for i := range app.Groups {
		c := &app.Groups[i].Config
		for _, service := range workload.Services(c) {
			ports[fmt.Sprint(service.InternalPort)] = true
		}
		checks := workload.Checks(c)
		for j := range checks {
			ports[fmt.Sprint(checks[j].Port)] = true
		}
		for j := range checks {
			if port := fmt.Sprint(checks[j].Port); checks[j].TLS {
				delete(ports, port)
				ports[port+"s"] = true
			}
		}
	}
	delete(ports, "0") // 0 means the port in $PORT
	var out []string
	for port := range ports {
		out = append(out, port)
	}
	return strings.Join(out, " ")
}

// is checks that the app's machines are as the configuration describes, and returns them.
func (s *site) is(f *file, want *deploy.App) []machinesapi.Machine {
	s.Helper()
	app := bourse.AppName(f.name)
	list := s.machines(app)
	if len(list) != f.machines {
		s.Errorf("the app has %d machines, want %d", len(list), f.machines)
	}
	asked := false
	for i := range list {
		m := &list[i]
		state := bourse.StateStarted
		if len(m.Config.Standbys) > 0 {
			state = bourse.StateStopped
		}
		if m.State != state {
			s.Errorf("machine %s is %s, want %s", m.ID, m.State, state)
		}
		if !slices.ContainsFunc(want.Groups, func(g deploy.Group) bool { return g.Name == m.Config.Metadata[deploy.KeyGroup] }) {
			s.Errorf("machine %s belongs to group %q, which the file does not contain", m.ID, m.Config.Metadata[deploy.KeyGroup])
		}
		if f.line != "" && !asked && state == bourse.StateStarted && m.Config.Metadata[deploy.KeyGroup] == want.Groups[0].Name {
			asked = true
			s.writes(app, m.ID, f.line, f.writes)
		}
	}
	if f.line != "" && !asked {
		s.Errorf("no machine of group %s runs", want.Groups[0].Name)
	}
	if f.page != "" {
		s.eventually("its page", func() error { return s.page(f) })
	}
	return list
}

// writes runs a line of shell in a machine and checks the output.
func (s *site) writes(app bourse.AppName, id bourse.MachineID, line, want string) {
	s.Helper()
	r, err := s.api.Exec(s.Context(), app, id, machinesapi.ExecMachine{Command: []string{"/bin/sh", "-c", line}, Timeout: 30})
	if got := strings.TrimSpace(r.Stdout + r.Stderr); err != nil || got != want {
		s.Errorf("%s: %q, %v, want %q", line, got, err, want)
	}
}

// page requests an app's page like a user and checks it.
func (s *site) page(f *file) error {
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+f.name+".localhost/", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req) // the reply may be a redirect to HTTPS
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if want := f.name + " " + f.page; err == nil && !strings.HasPrefix(string(text), want) {
		err = fmt.Errorf("%s: %q, want %q", resp.Status, text, want)
	}
	return err
}
