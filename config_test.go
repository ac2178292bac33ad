package bourse_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

// config is a valid one, as a client writes it.
func config() bourse.Config {
	return bourse.Config{Image: "host", Init: bourse.Init{Exec: []string{"./server"}}}
}

func TestNormalize(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*bourse.Config)
		want   bourse.Guest
	}{
		"no guest":   {func(*bourse.Config) {}, bourse.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256}},
		"half guest": {func(c *bourse.Config) { c.Guest = &bourse.Guest{CPUs: 2} }, bourse.Guest{CPUKind: "shared", CPUs: 2, MemoryMB: 512}},
		"size":       {func(c *bourse.Config) { c.Size = "performance-1x" }, bourse.Guest{CPUKind: "performance", CPUs: 1, MemoryMB: 2048}},
	} {
		t.Run(name, func(t *testing.T) {
			got := config()
			c.change(&got)
			if err := got.Normalize(); err != nil {
				t.Fatal(err)
			}
			if *got.Guest != c.want || got.Size != "" {
				t.Errorf("guest %+v, size %q, want %+v", *got.Guest, got.Size, c.want)
			}
		})
	}
}

// A caller's guest is not written to: two orders may share it.
func TestNormalizeLeavesTheGivenGuestAlone(t *testing.T) {
	given := bourse.Guest{CPUs: 2}
	c := config()
	c.Guest = &given
	if err := c.Normalize(); err != nil {
		t.Fatal(err)
	}
	if given != (bourse.Guest{CPUs: 2}) {
		t.Errorf("it became %+v", given)
	}
}

func TestNormalizeRefuses(t *testing.T) {
	many := map[string]string{}
	for i := range 2000 {
		many[fmt.Sprint("K", i)] = "v"
	}
	long := strings.Repeat("x", 1<<17+1)
	for name, change := range map[string]func(*bourse.Config){
		"no image":              func(c *bourse.Config) { c.Image = "" },
		"image with a space":    func(c *bourse.Config) { c.Image = "my image" },
		"image with a NUL":      func(c *bourse.Config) { c.Image = "a\x00b" },
		"long image":            func(c *bourse.Config) { c.Image = strings.Repeat("x", 1025) },
		"host without command":  func(c *bourse.Config) { c.Init = bourse.Init{} },
		"size and guest":        func(c *bourse.Config) { c.Size, c.Guest = "shared-cpu-1x", &bourse.Guest{} },
		"unknown size":          func(c *bourse.Config) { c.Size = "huge" },
		"negative cpus":         func(c *bourse.Config) { c.Guest = &bourse.Guest{CPUs: -1} },
		"relative directory":    func(c *bourse.Config) { c.Init.WorkingDir = "tmp" },
		"command with a NUL":    func(c *bourse.Config) { c.Init.Exec = []string{"a\x00"} },
		"long argument":         func(c *bourse.Config) { c.Init.Exec = []string{"a", long} },
		"many arguments":        func(c *bourse.Config) { c.Init.Exec = make([]string, 1025) },
		"user with a NUL":       func(c *bourse.Config) { c.Init.User = "root\x00" },
		"env without a name":    func(c *bourse.Config) { c.Env = map[string]string{"": "x"} },
		"env name with =":       func(c *bourse.Config) { c.Env = map[string]string{"A=B": "x"} },
		"env with a NUL":        func(c *bourse.Config) { c.Env = map[string]string{"A": "\x00"} },
		"many env entries":      func(c *bourse.Config) { c.Env = many },
		"many metadata entries": func(c *bourse.Config) { c.Metadata = many },
		"restart policy":        func(c *bourse.Config) { c.Restart = &bourse.Restart{Policy: "maybe"} },
		"negative retries":      func(c *bourse.Config) { c.Restart = &bourse.Restart{MaxRetries: -1} },
		"stop signal":           func(c *bourse.Config) { c.StopConfig = &bourse.StopConfig{Signal: "SIGNOPE"} },
		"negative stop timeout": func(c *bourse.Config) { c.StopConfig = &bourse.StopConfig{Timeout: -1} },
		"long stop timeout":     func(c *bourse.Config) { c.StopConfig = &bourse.StopConfig{Timeout: bourse.Duration(time.Hour)} },
		"requirement name":      func(c *bourse.Config) { c.Requirements = bourse.Requirements{"../x": {Count: 1}} },
	} {
		t.Run(name, func(t *testing.T) {
			c := config()
			change(&c)
			err := c.Normalize()
			codeIs(t, err, bourse.CodeInvalid)
			if err != nil && len(err.Error()) > 400 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
		})
	}
}

func TestPolicyDefaults(t *testing.T) {
	c := config()
	if got, want := c.RestartPolicy(), (bourse.Restart{Policy: bourse.RestartOnFailure, MaxRetries: 10}); got != want {
		t.Errorf("restart %+v, want %+v", got, want)
	}
	if signal, timeout := c.Stop(); signal != "SIGINT" || timeout != 5*time.Second {
		t.Errorf("stop by %s after %s", signal, timeout)
	}
	c.Restart = &bourse.Restart{Policy: bourse.RestartNo, MaxRetries: 3}
	c.StopConfig = &bourse.StopConfig{Signal: "SIGTERM", Timeout: bourse.Duration(time.Minute)}
	if got := c.RestartPolicy(); got != *c.Restart {
		t.Errorf("restart %+v, want %+v", got, *c.Restart)
	}
	if signal, timeout := c.Stop(); signal != "SIGTERM" || timeout != time.Minute {
		t.Errorf("stop by %s after %s", signal, timeout)
	}
}

func TestInitCommand(t *testing.T) {
	for name, c := range map[string]struct {
		in   bourse.Init
		want []string
	}{
		"exec wins":          {bourse.Init{Exec: []string{"a"}, Entrypoint: []string{"b"}, Cmd: []string{"c"}}, []string{"a"}},
		"entrypoint and cmd": {bourse.Init{Entrypoint: []string{"b"}, Cmd: []string{"c"}}, []string{"b", "c"}},
		"cmd alone":          {bourse.Init{Cmd: []string{"c"}}, []string{"c"}},
	} {
		if diff := cmp.Diff(c.want, c.in.Command()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A config that Normalize takes is whole, stays as it is when normalized
// again, and survives its own JSON.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"image":"host","init":{"exec":["./server"]}}`))
	f.Add([]byte(`{"image":"host","size":"shared-cpu-2x","init":{"cmd":["a"]},"restart":{"policy":"always"},"stop_config":{"signal":15,"timeout":"3s"}}`))
	f.Add([]byte(`{"image":"nginx","guest":{"cpus":-1,"memory_mb":9223372036854775807},"requirements":{"slots":3,"arch":"arm64"}}`))
	f.Add([]byte(`{"image":"x","guest":null,"env":{"A":"b"},"services":null,"standbys":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var c bourse.Config
		if json.Unmarshal(text, &c) != nil {
			return
		}
		if err := c.Normalize(); err != nil {
			codeIs(t, err, bourse.CodeInvalid)
			return
		}
		if c.Guest == nil || c.Guest.Validate() != nil {
			t.Fatalf("guest %+v", c.Guest)
		}
		once, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var again bourse.Config
		if err := json.Unmarshal(once, &again); err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		if err := again.Normalize(); err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		twice, err := json.Marshal(again)
		if err != nil || string(once) != string(twice) {
			t.Fatalf("%s\nbecame\n%s: %v", once, twice, err)
		}
	})
}
