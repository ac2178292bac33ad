package bourse_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

// config returns a valid config, as a client would send it.
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
				t.Errorf("got guest %+v and size %q, want %+v and no size", *got.Guest, got.Size, c.want)
			}
		})
	}
}

// TestNormalizeLeavesTheGivenGuestAlone checks that Normalize does not modify the guest that the
// caller has passed, because two orders may share it.
func TestNormalizeLeavesTheGivenGuestAlone(t *testing.T) {
	given := bourse.Guest{CPUs: 2}
	c := config()
	c.Guest = &given
	if err := c.Normalize(); err != nil {
		t.Fatal(err)
	}
	if given != (bourse.Guest{CPUs: 2}) {
		t.Errorf("Normalize changed the caller's guest to %+v", given)
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
				t.Errorf("got a message of %d bytes, want at most 400", len(err.Error()))
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
		t.Errorf("got stop signal %s and timeout %s, want SIGINT and 5s", signal, timeout)
	}
	c.Restart = &bourse.Restart{Policy: bourse.RestartNo, MaxRetries: 3}
	c.StopConfig = &bourse.StopConfig{Signal: "SIGTERM", Timeout: bourse.Duration(time.Minute)}
	if got := c.RestartPolicy(); got != *c.Restart {
		t.Errorf("restart %+v, want %+v", got, *c.Restart)
	}
	if signal, timeout := c.Stop(); signal != "SIGTERM" || timeout != time.Minute {
		t.Errorf("got stop signal %s and timeout %s, want SIGTERM and 1m", signal, timeout)
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

// FuzzConfig checks that a normalized config is complete, does not change if it is normalized
// again, and can be encoded and decoded.
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

func TestCommand(t *testing.T) {
	for text, want := range map[string][]string{
		`"a | b"`:     {"sh", "-c", "a | b"},
		`["a", "b "]`: {"a", "b "},
		`["a", ""]`:   {"a", ""},
		`""`:          nil, `" "`: nil, `[]`: nil, `[""]`: nil, `[1]`: nil, `7`: nil, `null`: nil, `{}`: nil, `"a\u0000"`: nil, `["a", "\u0000"]`: nil,
	} {
		var got bourse.Command
		err := json.Unmarshal([]byte(text), &got)
		if want == nil && bourse.CodeOf(err) != bourse.CodeInvalid || want != nil && (err != nil || !slices.Equal(got, want)) {
			t.Errorf("%s: got %q, %v; want %q", text, got, err, want)
		}
	}
}

// FuzzCommand checks that every command that can be decoded can be executed.
func FuzzCommand(f *testing.F) {
	for _, text := range []string{`"a"`, `["a","b"]`, `null`, `[]`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var c bourse.Command
		if err := c.UnmarshalJSON(text); err == nil && (len(c) == 0 || c[0] == "") {
			t.Errorf("%q: got %q, want a command or an error", text, c)
		}
	})
}

func TestRestartAgain(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	ago := func(times ...time.Duration) (out []time.Time) {
		for _, d := range times {
			out = append(out, now.Add(-d))
		}
		return out
	}
	for what, c := range map[string]struct {
		policy bourse.RestartPolicy
		exit   bourse.Exit
		before []time.Time
		again  bool
		recent int
	}{
		"no, failed":            {bourse.RestartNo, bourse.Exit{Code: 1}, nil, false, 0},
		"on-failure, good":      {bourse.RestartOnFailure, bourse.Exit{}, nil, false, 0},
		"on-failure, failed":    {bourse.RestartOnFailure, bourse.Exit{Signal: 9}, nil, true, 0},
		"always, good":          {bourse.RestartAlways, bourse.Exit{}, ago(time.Minute), true, 1},
		"too often":             {bourse.RestartAlways, bourse.Exit{}, ago(time.Second, time.Minute), false, 2},
		"often, but long ago":   {bourse.RestartAlways, bourse.Exit{}, ago(time.Hour, bourse.RestartWindow), true, 0},
		"a policy that is none": {"sometimes", bourse.Exit{Code: 1}, nil, false, 0},
	} {
		c.exit.At = now
		again, recent := bourse.Restart{Policy: c.policy, MaxRetries: 2}.ShouldRestart(c.exit, c.before)
		if again != c.again || len(recent) != c.recent {
			t.Errorf("%s: got restart %t after %d recent restarts, want %t after %d", what, again, len(recent), c.again, c.recent)
		}
	}
	for n, want := range map[int]time.Duration{1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 9: 25600 * time.Millisecond, 10: 30 * time.Second, 1 << 30: 30 * time.Second} {
		if got := bourse.RestartBackoff(n); got != want {
			t.Errorf("delay before restart %d: got %s, want %s", n, got, want)
		}
	}
}

const secret = "hunter2"

// secretConfig returns a config that contains a secret in every part that only the tenant may know.
func secretConfig(image string) bourse.Config {
	return bourse.Config{
		Image: image, Guest: &bourse.Guest{MemoryMB: 64}, Env: map[string]string{"PASSWORD": secret, "PORT": secret},
		Init:         bourse.Init{Exec: []string{"login", secret}, User: "nobody"},
		Requirements: bourse.Requirements{"slots": {Count: 1}},
		DNS:          &bourse.DNS{Hostname: "h"},
		StoredConfig: bourse.StoredConfig{
			Processes:  json.RawMessage(`[{"env":{"A":"` + secret + `"}}]`),
			Containers: json.RawMessage(`[{"env":{"A":"` + secret + `"}}]`),
		},
	}
}

// TestQuotesCarryNoSecrets checks that a request for a quote does not contain the environment,
// files, command or payload. Workers must still come to the same decision as for the later claim.
func TestQuotesCarryNoSecrets(t *testing.T) {
	for _, image := range []string{bourse.ImageHost, "nginx"} {
		order := bourse.Order{
			ID: bourse.NewOrderID(), App: bourse.App{Name: "shop", ID: bourse.NewAppID()}, Regions: []bourse.Choice{{"gru"}}, Config: secretConfig(image),
		}
		if image == "nginx" {
			order.Config.Files = []bourse.File{{GuestPath: "/run/secret", RawValue: []byte(secret)}}
		}
		if err := order.Config.Normalize(); err != nil {
			t.Fatal(err)
		}
		asked := order.ForQuote()
		text, err := json.Marshal(asked)
		if err != nil || strings.Contains(string(text), secret) || asked.Config.Files != nil {
			t.Errorf("the request for a quote contains a secret or files: %s, %v", text, err)
		}
		if err := asked.Validate(); err != nil {
			t.Errorf("image %s: %v", image, err)
		}
		if _, ok := asked.Config.Env["PORT"]; !ok || asked.Config.Requirements["slots"].Count != 1 || *asked.Config.Guest != *order.Config.Guest {
			t.Errorf("got %+v in the request for a quote, want PORT, the requirements and the guest", asked.Config)
		}
		if order.Config.Env["PASSWORD"] != secret || order.Config.Init.User != "nobody" {
			t.Error("ForQuote changed the order itself")
		}
	}
}

// TestAPublicConfigHasNoEnvironment checks that the part of a config that every server may store
// contains no environment.
func TestAPublicConfigHasNoEnvironment(t *testing.T) {
	config := secretConfig("nginx")
	config.Init = bourse.Init{}
	config.Files = []bourse.File{{GuestPath: "/run/secret", RawValue: []byte(secret)}}
	text, err := json.Marshal(config.Public())
	if err != nil || strings.Contains(string(text), secret) || !strings.Contains(string(text), "nginx") {
		t.Errorf("public: %s, %v", text, err)
	}
}

// TestConfigIsBoundedAsAWhole checks that the total size of a config, excluding files, is limited,
// whichever of its parts are large.
func TestConfigIsBoundedAsAWhole(t *testing.T) {
	part := strings.Repeat("x", 64<<10)
	many := func(n int, size int) map[string]string {
		out := map[string]string{}
		for i := range n {
			out["k"+strconv.Itoa(i)] = strings.Repeat("x", size)
		}
		return out
	}
	for name, tt := range map[string]struct {
		change func(*bourse.Config)
		ok     bool
	}{
		"metadata":        {func(c *bourse.Config) { c.Metadata = many(5, 60<<10) }, false},
		"many small ones": {func(c *bourse.Config) { c.Metadata = many(1000, 300) }, false},
		"environment":     {func(c *bourse.Config) { c.Env = many(5, 60<<10) }, false},
		"command":         {func(c *bourse.Config) { c.Init.Exec = []string{part, part, part, part, part} }, false},
		"what is kept":    {func(c *bourse.Config) { c.Services = json.RawMessage(`["` + part + part + part + part + `"]`) }, false},
		"all together": {func(c *bourse.Config) {
			c.Env, c.Metadata, c.Init.Exec = many(2, 50<<10), many(2, 50<<10), []string{part}
		}, false},
		"as much as fits":    {func(c *bourse.Config) { c.Env, c.Metadata = many(2, 50<<10), many(2, 50<<10) }, true},
		"files are apart":    {func(c *bourse.Config) { c.Files = []bourse.File{{GuestPath: "/a", RawValue: make([]byte, 1<<20)}} }, true},
		"one string, escape": {func(c *bourse.Config) { c.Env = map[string]string{"a": strings.Repeat("\x01", 64<<10)} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := bourse.Config{Image: "nginx", Guest: &bourse.Guest{}}
			tt.change(&c)
			err := c.Normalize()
			if (err == nil) != tt.ok || err != nil && bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("got %v, want ok %v", err, tt.ok)
			}
		})
	}
}

func BenchmarkConfigValidate(b *testing.B) {
	c := bourse.Config{Image: "nginx", Guest: &bourse.Guest{}, Env: map[string]string{"A": "1", "B": "2"}, Metadata: map[string]string{"role": "web"}}
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Normalize(); err != nil {
			b.Fatal(err)
		}
	}
}
