package place

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

func TestRequest(t *testing.T) {
	f := Flags{
		name: "web", Region: "gru,any", env: []string{"A=1"}, metadata: []string{"tier=web"}, require: []string{"slots=2", "zone=b"},
		size: Size{preset: "performance-2x", memory: "1GiB"}, restart: "on-fail", stopSignal: "term", stopTimeout: "10", rm: true,
		workdir: "/srv", user: "nobody",
	}
	req, err := f.Request([]string{"host", "sleep", "60"})
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

// TestLocalProgram checks that a relative path such as ./server is resolved in the caller's
// directory, because the machine runs in another one.
func TestLocalProgram(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("server", []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{"./server": dir + "/server", "./nothing": "./nothing", "server": "server", "/bin/sh": "/bin/sh"} {
		i := bourse.Init{Cmd: []string{in, "./server"}}
		LocalProgram(&i)
		if i.Cmd[0] != want || i.Cmd[1] != "./server" {
			t.Errorf("%s became %q, want %s and unchanged arguments", in, i.Cmd, want)
		}
	}
}
