package machines_test

import (
	"slices"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/worker/machines"
)

func TestLimits(t *testing.T) {
	o := machines.Policy{PIDs: 4096}
	sold := machines.Policy{PIDs: -1, SharedQuota: true}
	for name, c := range map[string]struct {
		o     machines.Policy
		image string
		guest bourse.Guest
		want  driver.Limits
	}{
		"shared":      {o, "nginx", bourse.Guest{CPUKind: "shared", CPUs: 2, MemoryMB: 512}, driver.Limits{CPUWeight: 125, CPUQuota: 2000, Memory: 512, PIDs: 4096}},
		"of the host": {o, "host", bourse.Guest{CPUKind: "shared", CPUs: 2, MemoryMB: 512}, driver.Limits{CPUWeight: 125, CPUQuota: 2000, Memory: 512}},
		"performance": {sold, "nginx", bourse.Guest{CPUKind: "performance", CPUs: 2, MemoryMB: 512}, driver.Limits{CPUWeight: 2000, CPUQuota: 2000, Memory: 512}},
		"5 in 80": {sold, "nginx", bourse.Guest{CPUKind: "shared", CPUs: 2, MemoryMB: 512}, driver.Limits{
			CPUWeight: 125, CPUQuota: 125, CPUPeriod: 80 * time.Millisecond, CPUBurst: 10 * time.Millisecond, Memory: 512,
		}},
	} {
		m := &bourse.Machine{Config: bourse.Config{Image: c.image, Guest: &c.guest}, Takes: c.guest.Takes(16)}
		if got := c.o.Limits(m); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// If a config has one entry in processes, that entry's program runs, with the environment that the entry requests.
func TestProcess(t *testing.T) {
	m := &bourse.Machine{ID: "000001ff000000", App: "web", Region: "gru", Config: bourse.Config{
		Image: "nginx", Guest: &bourse.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 64}, Env: map[string]string{"A": "1", "B": "1"},
		Init:         bourse.Init{Entrypoint: []string{"a"}, Cmd: []string{"b"}, User: "u"},
		StoredConfig: bourse.StoredConfig{Processes: []byte(`[{"entrypoint":["x"],"cmd":["y"],"user":"v","env":{"B":"2"},"env_from":[{"env_var":"ME","field_ref":"id"}]}]`)},
	}}
	got := machines.Policy{}.Of(m, machines.Attached{}, nil)
	if !slices.Equal(got.Entrypoint, []string{"x"}) || !slices.Equal(got.Args, []string{"y"}) || got.User != "v" || got.Command != nil {
		t.Errorf("runs %+v", got)
	}
	for _, want := range []string{"A=1", "B=2", "ME=000001ff000000", "FLY_REGION=gru"} {
		if !slices.Contains(got.Env, want) {
			t.Errorf("%s is not in %q", want, got.Env)
		}
	}
}

// A program that ignores its app's secrets gets only those that it names. A host program gets secrets in its
// environment. For an image's program, they are passed separately, so that they are never written to disk.
func TestSecretsOfAProcess(t *testing.T) {
	secrets := map[string]string{"PASSWORD": "hunter2", "TOKEN": "t"}
	m := &bourse.Machine{Config: bourse.Config{
		Image: "host", Guest: &bourse.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 64}, Init: bourse.Init{Exec: []string{"a"}},
		StoredConfig: bourse.StoredConfig{Processes: []byte(`[{"secrets":[{"env_var":"PASS","name":"PASSWORD"}],"ignore_app_secrets":true}]`)},
	}}
	if err := machines.CheckSecrets(&m.Config, secrets); err != nil {
		t.Fatal(err)
	}
	host := machines.Policy{}.Of(m, machines.Attached{}, secrets)
	m.Config.Image = "nginx"
	image := machines.Policy{}.Of(m, machines.Attached{}, secrets)
	if !slices.Contains(host.Env, "PASS=hunter2") || slices.Contains(host.Env, "TOKEN=t") || slices.Contains(host.Env, "PASSWORD=hunter2") {
		t.Errorf("a host program has %q", host.Env)
	}
	if !slices.Equal(image.Secrets, []string{"PASS=hunter2"}) || slices.Contains(image.Env, "PASS=hunter2") {
		t.Errorf("an image's program has %q, and secrets %q", image.Env, image.Secrets)
	}
	delete(secrets, "PASSWORD")
	if err := machines.CheckSecrets(&m.Config, secrets); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("a missing secret: %v", err)
	}
}
