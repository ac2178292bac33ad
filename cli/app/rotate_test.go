package app

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/machinesapi"
)

// rotating is an API that carries out a rotation's steps in order. The first request must start the rotation.
type rotating struct {
	*testing.T
	steps []machinesapi.Rotation
	asked int
}

func (r *rotating) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var in machinesapi.Rotate
	if err := json.NewDecoder(req.Body).Decode(&in); err != nil || in.Start != (r.asked == 0 || r.steps[r.asked-1].Step == machinesapi.RotationCheck) {
		r.Errorf("request %d: %+v, %v", r.asked, in, err)
	}
	out := r.steps[min(r.asked, len(r.steps)-1)]
	r.asked++
	_ = json.NewEncoder(w).Encode(out) // the client may have disconnected
}

func TestRotate(t *testing.T) {
	ok := []machinesapi.RotationServer{{ID: "b1", Role: bourse.RoleBroker, OK: true}, {ID: "w1", Role: bourse.RoleWorker, OK: true}}
	down := []machinesapi.RotationServer{ok[0], {ID: "w1", Role: bourse.RoleWorker, Error: "the worker is down"}}
	add := machinesapi.Rotation{Step: machinesapi.RotationAdd, Servers: ok}
	use := machinesapi.Rotation{Step: machinesapi.RotationUse, Servers: ok}
	remove := machinesapi.Rotation{Step: machinesapi.RotationRemove, Servers: ok, Done: true}
	for _, c := range []struct {
		name  string
		steps []machinesapi.Rotation
		args  []string
		code  int
		want  []string
	}{
		{"all servers answer", []machinesapi.Rotation{add, use, remove}, nil, 0, []string{
			"distribute the new key          2 of 2 servers\nuse the new key                 2 of 2 servers\nremove the old key              2 of 2 servers\nthe gossip key was replaced\n",
		}},
		{"one server is down temporarily", []machinesapi.Rotation{{Step: machinesapi.RotationCheck, Servers: down}, add, {Step: machinesapi.RotationUse, Servers: down}, use, remove}, []string{"--wait", "1h"}, 0, []string{
			"check that all servers answer   1 of 2 servers\ndistribute the new key          2 of 2 servers\nuse the new key                 1 of 2 servers\nuse the new key                 2 of 2 servers\n",
		}},
		{"one stays down", []machinesapi.Rotation{add, {Step: machinesapi.RotationUse, Servers: down}}, []string{"--wait", "-1s"}, 7, []string{
			"w1: the worker is down", `the step "use the new key", which 1 server did not complete`, "repeat the command", "bourse member remove",
		}},
		{"the old key is needed", []machinesapi.Rotation{add, {Step: machinesapi.RotationUse, Servers: ok, Blocked: "3 secrets"}}, nil, 5, []string{
			"use the new key                 2 of 2 servers\n", "cannot be removed yet: 3 secrets", "bourse secrets set",
		}},
		{"as JSON", []machinesapi.Rotation{add, remove}, []string{"--json"}, 0, []string{`"step":"add"`, `"done":true`}},
	} {
		api := http.NewServeMux()
		api.Handle("POST /v1/keys/gossip/rotation", &rotating{T: t, steps: c.steps})
		got := line.Against(t, api, append([]string{"credentials", "rotate", "gossip"}, c.args...)...)
		for _, want := range c.want {
			if got.Code != c.code || !strings.Contains(got.Out+got.Err, want) {
				t.Errorf("%s: exit status %d, %q %q; want %d with %q", c.name, got.Code, got.Out, got.Err, c.code, want)
			}
		}
	}
	refused := clitest.Replies(http.StatusPreconditionFailed, map[string]string{"error": "this cluster has no certificates"})
	if got := line.Against(t, refused, "credentials", "rotate", "gossip"); got.Code != 5 {
		t.Errorf("without certificates: %+v", got)
	}
}

// TestRotateCA checks that the command creates a CA in an empty directory, uses it again when it is
// repeated, and stores it in the context that it uses to reach the cluster.
func TestRotateCA(t *testing.T) {
	var sent []string
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in machinesapi.Rotate
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		if _, err := admission.CheckIssuer([]byte(in.CA), []byte(in.Issuer)); err != nil {
			t.Error(err)
		}
		sent = append(sent, in.CA)
		_ = json.NewEncoder(w).Encode(machinesapi.Rotation{Step: machinesapi.RotationUse, Done: !in.KeepOld}) // the client may have disconnected
	}))
	defer api.Close()
	home := t.TempDir()
	vars := map[string]string{"HOME": home}
	getenv := func(name string) string { return vars[name] }
	old := string(admission.CertPEM(api.Certificate()))
	_, err := cli.UpdateContexts(getenv, func(all *cli.Contexts) error {
		all.Current, all.ByName["prod"] = "prod", cli.Context{API: api.URL, CA: old, Token: "t"}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	trusted := func() string {
		t.Helper()
		all, err := cli.LoadContexts(getenv)
		if err != nil {
			t.Fatal(err)
		}
		return all.ByName["prod"].CA
	}
	dir := filepath.Join(home, "ca")
	if got := line.RunWith(t, vars, "credentials", "rotate", "ca", "--dir", dir, "--keep-old"); got.Code != 0 || !strings.Contains(got.Err, "without --keep-old") || trusted() != old+sent[0] {
		t.Errorf("with --keep-old: %+v; the context trusts %q", got, trusted())
	}
	if got := line.RunWith(t, vars, "credentials", "rotate", "ca", "--dir", dir); got.Code != 0 || !strings.Contains(got.Out, "the CA was replaced\n") || trusted() != sent[0] {
		t.Errorf("second call: %+v; the context trusts %q", got, trusted())
	}
	if len(sent) != 2 || sent[0] != sent[1] {
		t.Errorf("%d requests, with the same CA: %v", len(sent), sent[0] == sent[len(sent)-1])
	}
	for name, mode := range map[string]fs.FileMode{caFile: 0o644, caKeyFile: 0o600, "issuer.pem": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	for name, args := range map[string][]string{
		"a directory for another key": {"gossip", "--dir", dir},
		"a CA without its key":        {"ca", "--dir", filepath.Dir(copyWithout(t, dir, caKeyFile))},
		"a CA without an issuer":      {"ca", "--dir", filepath.Dir(copyWithout(t, dir, "issuer.pem"))},
		"a directory in a file":       {"ca", "--dir", filepath.Join(dir, caFile, "x")},
	} {
		if got := line.RunWith(t, vars, append([]string{"credentials", "rotate"}, args...)...); got.Code != 2 {
			t.Errorf("%s: %+v, want exit status 2", name, got)
		}
	}
	if len(sent) != 2 {
		t.Errorf("%d requests", len(sent))
	}
}

// copyWithout copies a directory, except one file, and returns the path that the file would have in
// the copy.
func copyWithout(t *testing.T, dir, name string) string {
	t.Helper()
	other := t.TempDir()
	if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(other, name)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	return path
}
