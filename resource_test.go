package bourse_test

import (
	"math"
	"testing"

	"github.com/bourse-dev/bourse"
)

func TestAmountsValidate(t *testing.T) {
	for name, c := range map[string]struct {
		amounts bourse.Amounts
		ok      bool
	}{
		"nothing":      {nil, true},
		"sorted":       {bourse.Amounts{{"cpu", 0}, {"memory", bourse.MaxAmount}}, true},
		"negative":     {bourse.Amounts{{"cpu", -1}}, false},
		"enormous":     {bourse.Amounts{{"cpu", bourse.MaxAmount + 1}}, false},
		"twice":        {bourse.Amounts{{"cpu", 1}, {"cpu", 1}}, false},
		"out of order": {bourse.Amounts{{"memory", 1}, {"cpu", 1}}, false},
	} {
		if err := c.amounts.Validate(); c.ok != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAmountsPlus(t *testing.T) {
	a := bourse.Amounts{{"cpu", 1}}.Plus(bourse.Amount{Resource: "cpu", Amount: 2}).Plus(bourse.Amount{Resource: "slots", Amount: 5})
	if a.Of("cpu") != 3 || a.Of("slots") != 5 || a.Of("disk") != 0 || a.Has("disk") {
		t.Errorf("%+v", a)
	}
	if got := a.Plus(bourse.Amount{Resource: "slots", Amount: bourse.MaxAmount}).Of("slots"); got != bourse.MaxAmount {
		t.Errorf("capped sum: got %d, want %d", got, int64(bourse.MaxAmount))
	}
}

func TestAccountFree(t *testing.T) {
	for _, c := range []struct{ total, used, want int64 }{{10, 3, 7}, {10, 10, 0}, {3, 10, 0}, {0, math.MaxInt64, 0}} {
		if got := (bourse.Account{Total: c.total, Used: c.used}).Free(); got != c.want {
			t.Errorf("%d of %d used: got %d free, want %d", c.used, c.total, got, c.want)
		}
	}
}

func TestResourceShow(t *testing.T) {
	for r, want := range map[bourse.Resource]string{"memory": "1500 MiB", "disk": "1500 MiB", "cpu": "1.5 cores", "slots": "1500", "gpu.a10": "1500"} {
		if got := r.Show(1500); got != want {
			t.Errorf("%s: %q, want %q", r, got, want)
		}
	}
}
