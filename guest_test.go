package bourse_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

func TestGuestDefaults(t *testing.T) {
	for name, c := range map[string]struct{ in, want bourse.Guest }{
		"nothing":         {bourse.Guest{}, bourse.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256}},
		"shared by cpu":   {bourse.Guest{CPUs: 4}, bourse.Guest{CPUKind: "shared", CPUs: 4, MemoryMB: 1024}},
		"performance":     {bourse.Guest{CPUKind: "performance", CPUs: 2}, bourse.Guest{CPUKind: "performance", CPUs: 2, MemoryMB: 4096}},
		"memory is kept":  {bourse.Guest{MemoryMB: 1}, bourse.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 1}},
		"a kind of gpu":   {bourse.Guest{GPUKind: "a10"}, bourse.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256, GPUs: 1, GPUKind: "a10"}},
		"hostile is kept": {bourse.Guest{CPUs: math.MinInt64}, bourse.Guest{CPUKind: "shared", CPUs: math.MinInt64}},
	} {
		if got := c.in.WithDefaults(); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

func TestGuestValidate(t *testing.T) {
	good := bourse.Guest{}.WithDefaults()
	codeIs(t, good.Validate(), "")
	for name, change := range map[string]func(*bourse.Guest){
		"cpu kind":        func(g *bourse.Guest) { g.CPUKind = "turbo" },
		"no cpus":         func(g *bourse.Guest) { g.CPUs = 0 },
		"negative cpus":   func(g *bourse.Guest) { g.CPUs = math.MinInt64 },
		"enormous cpus":   func(g *bourse.Guest) { g.CPUs = math.MaxInt64 },
		"no memory":       func(g *bourse.Guest) { g.MemoryMB = 0 },
		"enormous memory": func(g *bourse.Guest) { g.MemoryMB = math.MaxInt64 },
		"negative gpus":   func(g *bourse.Guest) { g.GPUs = -1 },
		"enormous gpus":   func(g *bourse.Guest) { g.GPUs, g.GPUKind = math.MaxInt64, "a10" },
		"gpus of no kind": func(g *bourse.Guest) { g.GPUs = 1 },
		"hostile kind":    func(g *bourse.Guest) { g.GPUs, g.GPUKind = 1, "../a\x00" },
	} {
		t.Run(name, func(t *testing.T) {
			g := good
			change(&g)
			codeIs(t, g.Validate(), bourse.CodeInvalid)
		})
	}
}

func TestParseSize(t *testing.T) {
	for size, want := range map[string]bourse.Guest{
		"shared-cpu-1x":  {CPUKind: "shared", CPUs: 1, MemoryMB: 256},
		"shared-cpu-8x":  {CPUKind: "shared", CPUs: 8, MemoryMB: 2048},
		"performance-2x": {CPUKind: "performance", CPUs: 2, MemoryMB: 4096},
	} {
		if got, err := bourse.ParseSize(size); err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", size, got, err, want)
		}
	}
	for _, size := range []string{"", "shared-cpu-x", "shared-cpu-0x", "shared-cpu--1x", "performance-2", "performance-99999999999999999999x", "huge-1x", "shared-cpu-1x\n"} {
		_, err := bourse.ParseSize(size)
		codeIs(t, err, bourse.CodeInvalid)
	}
}

func anyGuest() *rapid.Generator[bourse.Guest] {
	return rapid.Custom(func(t *rapid.T) bourse.Guest {
		g := bourse.Guest{
			CPUKind:  rapid.SampledFrom([]bourse.CPUKind{"shared", "performance"}).Draw(t, "kind"),
			CPUs:     rapid.Int64Range(1, bourse.MaxCPUs).Draw(t, "cpus"),
			MemoryMB: bourse.MiB(rapid.Int64Range(1, int64(bourse.MaxMemory)).Draw(t, "memory")),
		}
		if rapid.Bool().Draw(t, "has gpus") {
			g.GPUs, g.GPUKind = rapid.Int64Range(1, bourse.MaxGPUs).Draw(t, "gpus"), "a10"
		}
		return g
	})
}

// TestGuestTakes checks that all amounts that a valid guest takes are valid and positive, whatever
// the operator's overcommit is. A larger guest must not take less than a smaller one, and a guest
// must not take more if the overcommit is increased. Shared CPUs must take enough that a worker
// cannot sell more of them per core than the overcommit allows.
func TestGuestTakes(t *testing.T) {
	overcommits := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, 1, 8}))
	rapid.Check(t, func(t *rapid.T) {
		small := anyGuest().Draw(t, "small")
		over := overcommits.Draw(t, "overcommit")
		got := small.Takes(over)
		if err := got.Validate(); err != nil {
			t.Fatal(err)
		}
		for _, a := range got {
			if a.Amount <= 0 {
				t.Fatalf("%s: got amount %d, want a positive one", a.Resource, a.Amount)
			}
		}
		large := small
		large.CPUs = rapid.Int64Range(small.CPUs, bourse.MaxCPUs).Draw(t, "more cpus")
		large.MemoryMB += bourse.MiB(rapid.Int64Range(0, int64(bourse.MaxMemory-small.MemoryMB)).Draw(t, "more memory"))
		for _, a := range large.Takes(over) {
			if a.Amount < got.Of(a.Resource) {
				t.Fatalf("%s: the larger guest takes %d, the smaller one %d", a.Resource, a.Amount, got.Of(a.Resource))
			}
		}
		if more := rapid.Float64Range(1, 1e6).Draw(t, "more overcommit"); more >= over || math.IsNaN(over) {
			if small.Takes(more).Of("cpu") > got.Of("cpu") {
				t.Fatalf("CPUs: got %d at overcommit %g, more than %d at %g", small.Takes(more).Of("cpu"), more, got.Of("cpu"), over)
			}
		}
		if over >= 1 && !math.IsInf(over, 0) && small.CPUKind == "shared" && float64(got.Of("cpu"))*over < float64(small.CPUs)*1000*(1-1e-12) {
			t.Fatalf("%d shared CPUs take only %d milliCPUs at overcommit %g, which oversells the core", small.CPUs, got.Of("cpu"), over)
		}
	})
}

func TestStorageOfAConfig(t *testing.T) {
	volume := bourse.NewVolumeID(1)
	for what, x := range map[string]struct {
		config bourse.Config
		fine   bool
	}{
		"a mount":              {bourse.Config{Mounts: []bourse.Mount{{Volume: volume, Path: "/data"}}}, true},
		"two mounts":           {bourse.Config{Mounts: []bourse.Mount{{Volume: volume, Path: "/a"}, {Volume: volume, Path: "/b"}}}, false},
		"no volume":            {bourse.Config{Mounts: []bourse.Mount{{Path: "/data"}}}, false},
		"a name for a volume":  {bourse.Config{Mounts: []bourse.Mount{{Volume: "data", Path: "/data"}}}, false},
		"the root":             {bourse.Config{Mounts: []bourse.Mount{{Volume: volume, Path: "/"}}}, false},
		"a path that climbs":   {bourse.Config{Mounts: []bourse.Mount{{Volume: volume, Path: "/data/../etc"}}}, false},
		"a relative path":      {bourse.Config{Mounts: []bourse.Mount{{Volume: volume, Path: "data"}}}, false},
		"a file":               {bourse.Config{Files: []bourse.File{{GuestPath: "/etc/motd", RawValue: []byte("hi"), Mode: 0o600}}}, true},
		"a file that climbs":   {bourse.Config{Files: []bourse.File{{GuestPath: "/../x"}}}, false},
		"a large file":         {bourse.Config{Files: []bourse.File{{GuestPath: "/x", RawValue: make([]byte, 2<<20)}}}, false},
		"a secret as file":     {bourse.Config{Files: []bourse.File{{GuestPath: "/x", SecretName: "S", RawValue: []byte("x")}}}, false},
		"a strange mode":       {bourse.Config{Files: []bourse.File{{GuestPath: "/x", Mode: 1 << 20}}}, false},
		"a negative root size": {bourse.Config{Rootfs: &bourse.Rootfs{SizeGB: -1}}, false},
		"a runtime":            {bourse.Config{Runtime: "io.containerd.runsc.v1"}, true},
		"a path as runtime":    {bourse.Config{Runtime: "/usr/bin/evil"}, false},
	} {
		x.config.Image = "nginx"
		if err := x.config.Normalize(); (err == nil) != x.fine {
			t.Errorf("%s: %v", what, err)
		}
	}
	host := bourse.Config{Image: "host", Init: bourse.Init{Cmd: []string{"true"}}, Files: []bourse.File{{GuestPath: "/etc/passwd"}}}
	if err := host.Normalize(); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("files with image host: got error %v, want code invalid", err)
	}
}

func TestDNSOfAConfig(t *testing.T) {
	for text, ok := range map[string]bool{
		`{}`:                                                           true,
		`{"skip_registration":true}`:                                   true,
		`{"nameservers":["1.1.1.1","fdaa::3"]}`:                        true,
		`{"nameservers":["dns.example.com"]}`:                          false,
		`{"nameservers":["1.1.1.1\nsearch x"]}`:                        false,
		`{"nameservers":["1","2","3","4"]}`:                            false,
		`{"searches":["a.internal","b."]}`:                             true,
		`{"searches":["a\noptions rotate"]}`:                           false,
		`{"searches":["` + strings.Repeat("a.", 200) + `"]}`:           false,
		`{"options":[{"name":"ndots","value":"5"},{"name":"rotate"}]}`: true,
		`{"options":[{"name":"a b"}]}`:                                 false,
		`{"hostname":"web-1","hostname_fqdn":"web-1.example.com"}`:     true,
		`{"hostname":"-"}`:                                             false,
		`{"hostname":"` + strings.Repeat("a", 65) + `"}`:               false,
		`{"hostname_fqdn":"a b"}`:                                      false,
		`[]`:                                                           false,
		`{"nameservers":"1.1.1.1"}`:                                    false,
	} {
		if err := normalized(`"dns":` + text); (err == nil) != ok {
			t.Errorf("%s: got error %v, want valid: %t", text, err, ok)
		}
	}
}
