package view

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

func TestSummaryByRegion(t *testing.T) {
	c := schemaConn(t)
	worker := func(id bourse.WorkerID, region bourse.Region, cpu, memory int64, leaving bool) {
		plant(t, c, id, WorkerRow(&bourse.Facts{Worker: id, Region: region, Accounts: []bourse.Account{
			{Resource: "memory", Total: memory}, {Resource: "cpu", Total: cpu},
		}}, leaving))
	}
	worker("w1", "gru", 4000, 1024, false)
	worker("w2", "gru", 1000, 4096, false)
	worker("w3", "gru", 8000, 8192, true)  // takes no orders
	worker("w4", "gru", 8000, 8192, false) // silent
	worker("w5", "mad", 0, 0, true)
	worker("w6", "no region", 1000, 1000, false)
	hear(t, c, "w1", true, time.Unix(1, 0))
	hear(t, c, "w4", false, time.Unix(1, 0))
	plant(t, c, "w1", aMachine(1, "shop", "gru", 1), aMachine(2, "shop", "gru", 1), aMachine(3, "blog", "gru", 1))
	plant(t, c, "w7", aMachine(4, "shop", "ams", 1), aMachine(5, "shop", "no region", 1)) // its worker's row is not here yet
	got, err := readSummary(c)
	if err != nil {
		t.Fatal(err)
	}
	want := []RegionSummary{
		{Region: "ams", Apps: map[bourse.AppName]int{"shop": 1}},
		{
			Region: "gru", Workers: 2, Apps: map[bourse.AppName]int{"shop": 2, "blog": 1},
			Free:    bourse.Amounts{{Resource: "cpu", Amount: 3840 + 960}, {Resource: "memory", Amount: 1024 + 4096}},
			Largest: bourse.Amounts{{Resource: "cpu", Amount: 3840}, {Resource: "memory", Amount: 4096}},
		},
		{Region: "mad", Apps: map[bourse.AppName]int{}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	regions := map[bourse.AppName][]bourse.Region{"shop": {"ams", "gru"}, "blog": {"gru"}}
	if diff := cmp.Diff(regions, AppRegions(got)); diff != "" {
		t.Errorf("regions of apps (-want +got):\n%s", diff)
	}
}

// TestSummaryOfHugeAmounts: sums of what hostile workers claim do not overflow.
func TestSummaryOfHugeAmounts(t *testing.T) {
	c := schemaConn(t)
	for _, id := range []bourse.WorkerID{"w1", "w2", "w3"} {
		row := WorkerRow(&bourse.Facts{Worker: id, Region: "gru"}, false)
		row.Columns["free"] = listText(bourse.Amounts{{Resource: "cpu", Amount: bourse.MaxAmount}})
		if id == "w3" {
			row.Columns["free"] = `[{"resource":"cpu","amount":9223372036854775807}]` // out of range: nothing is known
		}
		plant(t, c, id, row)
	}
	got, err := readSummary(c)
	if err != nil || len(got) != 1 || got[0].Workers != 3 || got[0].Free.Of("cpu") != bourse.MaxAmount {
		t.Errorf("%+v, %v", got, err)
	}
}
