package bourse_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

func order(t testing.TB) bourse.Order {
	t.Helper()
	o := bourse.Order{ID: bourse.NewOrderID(), App: bourse.App{Name: "shop"}, Regions: []bourse.Choice{{"gru"}}, Config: config()}
	if err := o.Config.Normalize(); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestOrderValidate(t *testing.T) {
	good := order(t)
	codeIs(t, good.Validate(), "")
	for name, change := range map[string]func(*bourse.Order){
		"id":                   func(o *bourse.Order) { o.ID = "x" },
		"app":                  func(o *bourse.Order) { o.App.Name = "a/b" },
		"name":                 func(o *bourse.Order) { o.Name = "my machine" },
		"no region":            func(o *bourse.Order) { o.Regions = nil },
		"an alias for regions": func(o *bourse.Order) { o.Regions = []bourse.Choice{{"eu"}} },
		"a hostile region":     func(o *bourse.Order) { o.Regions = []bourse.Choice{{"gru"}, {"../x"}} },
		"negative race":        func(o *bourse.Order) { o.Race = -1 },
		"enormous race":        func(o *bourse.Order) { o.Race = math.MaxInt },
		"negative deadline":    func(o *bourse.Order) { o.Timeout = -1 },
		"enormous deadline":    func(o *bourse.Order) { o.Timeout = math.MaxInt64 },
		"negative lease":       func(o *bourse.Order) { o.LeaseTTL = -1 },
		"enormous lease":       func(o *bourse.Order) { o.LeaseTTL = math.MaxInt64 },
		"no guest":             func(o *bourse.Order) { o.Config.Guest = nil },
		"hostile guest": func(o *bourse.Order) {
			o.Config.Guest = &bourse.Guest{CPUKind: "shared", CPUs: math.MaxInt64, MemoryMB: 1}
		},
		"config": func(o *bourse.Order) { o.Config.Image = "" },
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			change(&o)
			codeIs(t, o.Validate(), bourse.CodeInvalid)
		})
	}
}

func TestOrderDeadline(t *testing.T) {
	o := order(t)
	if got := o.Deadline(); got != bourse.DefaultOrderTimeout {
		t.Errorf("default deadline: got %s, want %s", got, bourse.DefaultOrderTimeout)
	}
	pulled := o
	pulled.Config.Image = "nginx"
	if got := pulled.Deadline(); got != bourse.MaxOrderTimeout {
		t.Errorf("default deadline with an image to pull: got %s, want %s", got, bourse.MaxOrderTimeout)
	}
	o.Timeout = bourse.Duration(time.Second)
	if got := o.Deadline(); got != time.Second {
		t.Errorf("deadline with a timeout: got %s, want 1s", got)
	}
}

// FuzzOrder checks that no input causes a panic, and that a valid order takes only amounts that are
// valid in a ledger.
func FuzzOrder(f *testing.F) {
	seed, err := json.Marshal(order(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"id":"01J00000000000000000000000","app":{"name":"a"},"regions":[["gru"],[]],"config":{"image":"host"},"race":-1,"within":"1h"}`))
	f.Add([]byte(`{"id":"01J00000000000000000000000","app":{"name":"a"},"regions":[["gru"]],"config":{"image":"x","guest":{"cpu_kind":"shared","cpus":4096,"memory_mb":67108864,"gpus":1024,"gpu_kind":"a"},"requirements":{"slots":4398046511103}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var o bourse.Order
		if json.Unmarshal(text, &o) != nil {
			return
		}
		if err := o.Validate(); err != nil {
			codeIs(t, err, bourse.CodeInvalid)
			return
		}
		for _, overcommit := range []float64{0, 1, 16, math.NaN(), math.Inf(1)} {
			takes := o.Config.Guest.Takes(overcommit)
			for name, r := range o.Config.Requirements {
				if r.Count > 0 {
					takes = takes.Plus(bourse.Amount{Resource: bourse.Resource(name), Amount: r.Count})
				}
			}
			if err := takes.Sorted().Validate(); err != nil {
				t.Fatalf("takes %+v: %v", takes, err)
			}
		}
		if d := o.Deadline(); d <= 0 || d > bourse.MaxOrderTimeout {
			t.Fatalf("deadline %s", d)
		}
	})
}
