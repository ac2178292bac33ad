package inventory

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestCoarseRoundsDown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, bourse.MaxAmount).Draw(t, "n")
		c := roundDown(n)
		if c > n || n-c > n/8 || c == 0 && n != 0 || roundDown(c) != c {
			t.Fatalf("coarse(%d) = %d, coarse(%d) = %d", n, c, c, roundDown(c))
		}
		if more := roundDown(n + 1); more < c {
			t.Fatalf("coarse(%d) = %d, coarse(%d) = %d", n, c, n+1, more)
		}
	})
	for _, n := range []int64{-1, math.MinInt64} {
		if got := roundDown(n); got != 0 {
			t.Errorf("coarse(%d) = %d", n, got)
		}
	}
}

func TestCoarseLoad(t *testing.T) {
	for give, want := range map[float64]float64{
		0: 0, 0.01: 0, 0.5: 0.5, 0.99: 0.9375, 1.01: 1, 13.7: 13, -1: 0, math.Inf(1): 0, math.Inf(-1): 0, 1e300: 0,
	} {
		if got := roundLoad(give); got != want {
			t.Errorf("roundLoad(%v) = %v, want %v", give, got, want)
		}
	}
	if got := roundLoad(math.NaN()); got != 0 {
		t.Errorf("roundLoad(NaN) = %v, want 0", got)
	}
}

func TestWorkerReadsBack(t *testing.T) {
	c := SchemaConn(t)
	all := schemaTables(t, c)
	facts := bourse.Facts{
		Worker: "w1", Tag: 0xabcdef, Region: "gru", Version: "1", Labels: map[string]string{"arch": "arm64"}, Drivers: []string{"process"}, Load: 0.51,
		Accounts: []bourse.Account{{Resource: "cpu", Total: 8000, Used: 125}, {Resource: "memory", Total: 1000, Used: 2000}, {Resource: "disk", Total: 77, Used: 7}},
	}
	row := WorkerRow(&facts, true)
	if _, err := all.Check("w1", row); err != nil {
		t.Fatal(err)
	}
	Plant(t, c, "w1", row)
	got, err := readWorkers(c)
	if err != nil {
		t.Fatal(err)
	}
	want := []WorkerHint{{
		ID: "w1", Region: "gru", Tag: 0xabcdef, Load: 0.5, Leaving: true, Labels: facts.Labels, HostStatus: machinesapi.HostUnknown,
		Free: bourse.Amounts{{Resource: "cpu", Amount: 7680}, {Resource: "disk", Amount: 64}, {Resource: "memory", Amount: 0}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const capacity = `[{"resource":"cpu","total":8000,"used":125},{"resource":"memory","total":1000,"used":2000},{"resource":"disk","total":77,"used":7}]`
	if diff := cmp.Diff(capacity, row.Columns["capacity"]); diff != "" {
		t.Errorf("capacity:\n%s", diff)
	}
	facts.Accounts[0].Used, facts.Load = 130, 0.52
	again := WorkerRow(&facts, true)
	again.Columns["capacity"] = capacity
	if diff := cmp.Diff(row, again); diff != "" {
		t.Errorf("a small change affects more than the ledger:\n%s", diff)
	}
}
