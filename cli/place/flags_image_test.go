package place

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

func TestPortsAreServices(t *testing.T) {
	got, err := parseServices([]string{"80", "443:80/tcp:tls:http", "53/udp"})
	if err != nil {
		t.Fatal(err)
	}
	want := []workload.ServiceConfig{
		{Protocol: "tcp", InternalPort: 80, Ports: []workload.PortConfig{{Port: new(80)}, {Port: new(443), Handlers: []workload.Handler{"tls", "http"}}}},
		{Protocol: "udp", InternalPort: 53, Ports: []workload.PortConfig{{Port: new(53)}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", "0", "65536", "a", "80:b", "80/sctp", "80/tcp:gopher", ":80"} {
		if _, err := parseServices([]string{bad}); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%q: %v, want invalid", bad, err)
		}
	}
}

func TestImageFlags(t *testing.T) {
	local := filepath.Join(t.TempDir(), "run.sh")
	if err := os.WriteFile(local, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	f := imageFlags{
		ports: []string{"80"}, files: []string{"/run.sh=" + local}, literals: []string{"/motd=hi"}, rootSize: "2GiB", readOnly: true, tty: true,
		runtime: "io.containerd.runsc.v1",
	}
	c := bourse.Config{Image: "nginx"}
	if err := f.apply(&c); err != nil {
		t.Fatal(err)
	}
	want := bourse.Config{
		Image: "nginx", Init: bourse.Init{TTY: true}, Runtime: "io.containerd.runsc.v1", Rootfs: &bourse.Rootfs{SizeGB: 2, ReadOnly: true},
		Files:        []bourse.File{{GuestPath: "/run.sh", RawValue: []byte("#!/bin/sh\n"), Mode: 0o755}, {GuestPath: "/motd", RawValue: []byte("hi")}},
		StoredConfig: bourse.StoredConfig{Services: json.RawMessage(`[{"protocol":"tcp","internal_port":80,"ports":[{"port":80}]}]`)},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	for _, bad := range []imageFlags{
		{files: []string{"/x=/no/such/file"}}, {files: []string{"x"}}, {literals: []string{"x"}}, {rootSize: "100MiB"}, {rootSize: "much"},
	} {
		if err := bad.apply(&bourse.Config{Image: "nginx"}); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%+v: %v, want invalid", bad, err)
		}
	}
}
