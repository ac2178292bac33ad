package market_test

import (
	"slices"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// TestFillIsRemembered checks that the exchange records those parts of a decision about a filled
// order that the worker cannot know. Repeated orders and refusals must not displace them.
func TestFillIsRemembered(t *testing.T) {
	c := floor(3, room(3))
	x := broker(c, func(cfg *market.Config) { cfg.MaxDecisions = 4 })
	o := order("gru")
	o.HasChosenID = true
	first := place(t.Context(), x, o)
	if first.err != nil {
		t.Fatal(first.err)
	}
	if again := place(t.Context(), x, o); !again.fill.Repeated {
		t.Fatalf("the repeated order created a new machine: %v", again.err)
	}
	for range 10 {
		place(t.Context(), x, order("mad")) // mad has no workers
	}
	d, ok := x.Decision(o.ID)
	if !ok || d.Outcome != bourse.OutcomeFilled || d.Machine != first.fill.Machine.ID || d.Times.Total <= 0 {
		t.Fatalf("decision found: %v, %+v", ok, d)
	}
	if claims := d.Rounds[len(d.Rounds)-1].Claims; len(claims) != 1 || claims[0].Refusal != nil || claims[0].Worker != d.Worker {
		t.Errorf("the claims are %+v, want only the claim on %s", claims, d.Worker)
	}
}

// TestLostFillIsForgotten checks that the exchange no longer returns the decision about a machine
// after another machine has won the same order.
func TestLostFillIsForgotten(t *testing.T) {
	c := floor(1, room(3))
	x := broker(c, nil)
	o := order("gru")
	o.HasChosenID = true
	if first := place(t.Context(), x, o); first.err != nil {
		t.Fatal(first.err)
	}
	c.Clear()
	second := place(t.Context(), broker(c, nil), o)
	if again := place(t.Context(), x, o); second.err != nil || again.fill.Machine.ID != second.fill.Machine.ID {
		t.Fatalf("got %s (%v), want the second machine, %s", again.fill.Machine.ID, again.err, second.fill.Machine.ID)
	}
	if d, ok := x.Decision(o.ID); ok {
		t.Errorf("the exchange still returns the decision about machine %s", d.Machine)
	}
}

// TestRecent checks that recent decisions are listed, both fills and refusals, newest first.
func TestRecent(t *testing.T) {
	x := broker(floor(3, room(3)), nil)
	var want []bourse.OrderID
	for _, region := range []bourse.Region{"gru", "mad", "gru"} { // mad has no workers
		o := order(region)
		place(t.Context(), x, o)
		want = append([]bourse.OrderID{o.ID}, want...)
	}
	other := want[2]
	var got []bourse.OrderID
	for _, d := range x.Recent(2, func(d *bourse.Decision) bool { return d.Order != other }) {
		got = append(got, d.Order)
	}
	if !slices.Equal(got, want[:2]) {
		t.Errorf("recent decisions: %v, want %v", got, want[:2])
	}
	if got := x.Recent(1, func(*bourse.Decision) bool { return true }); len(got) != 1 || got[0].Order != want[0] {
		t.Errorf("the newest decision is %+v, want order %s", got, want[0])
	}
}
