package publish

import (
	"testing"

	"github.com/bourse-dev/bourse"
)

func TestNotable(t *testing.T) {
	base := func() *bourse.Facts {
		return &bourse.Facts{
			Worker: "w1", Region: "gru", Labels: map[string]string{"arch": "amd64"}, Drivers: []string{"process"}, Load: 0.5,
			Accounts: []bourse.Account{{Resource: "cpu", Total: 1600, Used: 0}, {Resource: "slots", Total: 10, Used: 9}},
		}
	}
	for name, c := range map[string]struct {
		change func(*bourse.Facts)
		want   bool
	}{
		"nothing":             {func(*bourse.Facts) {}, false},
		"a little less":       {func(f *bourse.Facts) { f.Accounts[0].Used = 100 }, false},
		"less":                {func(f *bourse.Facts) { f.Accounts[0].Used = 101 }, true},
		"none left":           {func(f *bourse.Facts) { f.Accounts[1].Used = 10 }, true},
		"more than the total": {func(f *bourse.Facts) { f.Accounts[1].Used = 11 }, true},
		"more in all":         {func(f *bourse.Facts) { f.Accounts[0].Total++ }, true},
		"a new resource":      {func(f *bourse.Facts) { f.Accounts = append(f.Accounts, bourse.Account{Resource: "gpu.a10", Total: 1}) }, true},
		"another resource":    {func(f *bourse.Facts) { f.Accounts[1].Resource = "seats" }, true},
		"another label":       {func(f *bourse.Facts) { f.Labels = map[string]string{"arch": "arm64"} }, true},
		"no driver":           {func(f *bourse.Facts) { f.Drivers = nil }, true},
		"a little load":       {func(f *bourse.Facts) { f.Load += 0.2 }, false},
		"no load":             {func(f *bourse.Facts) { f.Load = 0 }, true},
		"another release":     {func(f *bourse.Facts) { f.Version = "2" }, true},
		"machines":            {func(f *bourse.Facts) { f.Machines = map[bourse.State]int{bourse.StateStarted: 1} }, false},
	} {
		now := base()
		c.change(now)
		if got := IsUrgent(base(), now); got != c.want {
			t.Errorf("%s: urgent: %t, want %t", name, got, c.want)
		}
		if back := IsUrgent(now, base()); back != c.want {
			t.Errorf("%s, reversed: urgent: %t, want %t", name, back, c.want)
		}
	}
}
