package admit

import (
	"errors"
	"testing"

	"github.com/bourse-dev/bourse"
)

// A warm task is refused if its region or its labels do not match. Countables are checked by the ledger instead. A
// refusal names the worker.
func TestTasksAreRefusedForGood(t *testing.T) {
	h := &Host{Worker: "w1", Region: "gru"}
	h.Labels.Store(&Labels{All: map[string]string{"arch": "amd64", "worker": "w2"}})
	requires := func(name string, r bourse.Requirement) bourse.Requirements { return bourse.Requirements{name: r} }
	for name, c := range map[string]struct {
		regions []bourse.Choice
		require bourse.Requirements
		want    bourse.RefusalReason
	}{
		"nothing to say":   {[]bourse.Choice{{"mad"}, {"ams", "gru"}}, nil, ""},
		"its label":        {[]bourse.Choice{{"gru"}}, requires("arch", bourse.Requirement{Label: "amd64"}), ""},
		"a countable":      {[]bourse.Choice{{"gru"}}, requires("slots", bourse.Requirement{Count: 1 << 40}), ""},
		"another region":   {[]bourse.Choice{{"mad"}}, nil, bourse.RefusedRegion},
		"another label":    {[]bourse.Choice{{"gru"}}, requires("arch", bourse.Requirement{Label: "arm64"}), bourse.RefusedLabel},
		"its name":         {[]bourse.Choice{{"gru"}}, requires("worker", bourse.Requirement{Label: "w1"}), ""},
		"another's name":   {[]bourse.Choice{{"gru"}}, requires("worker", bourse.Requirement{Label: "w2"}), bourse.RefusedLabel},
		"an unknown label": {[]bourse.Choice{{"gru"}}, requires("disk", bourse.Requirement{Label: "nvme"}), bourse.RefusedUnknown},
	} {
		r := h.UnsupportedTask(&bourse.Order{Regions: c.regions, Config: bourse.Config{Requirements: c.require}})
		switch {
		case c.want == "" && r != nil, c.want != "" && (r == nil || r.Reason != c.want || r.Worker != "w1" || r.Region != "gru" || r.Detail == ""):
			t.Errorf("%s: %+v, want reason %q from w1 in gru, with a detail", name, r, c.want)
		}
	}
}

// While the store accepts no new work, nothing fits, however much capacity is free.
func TestNothingFitsWhileTheStoreIsFull(t *testing.T) {
	var short error
	h := &Host{Worker: "w1", Region: "gru", SpaceError: func() error { return short }, Ledger: Ledger{Totals: bourse.Amounts{{Resource: "slots", Amount: 2}}}}
	one := bourse.Amounts{{Resource: "slots", Amount: 1}}
	if r := h.Fits(one, one); r != nil {
		t.Errorf("with enough free: %+v", r)
	}
	short = bourse.Errorf(bourse.CodeUnavailable, "%w", errors.New("the disk is full"))
	if r := h.Fits(nil, one); r == nil || r.Reason != bourse.RefusedUnavailable || r.Worker != "w1" {
		t.Errorf("on a full disk: %+v, want unavailable", r)
	}
}
